"""Memory-lean training: propagation, models, batches, historical embeddings, the memory measure and the trainer."""
