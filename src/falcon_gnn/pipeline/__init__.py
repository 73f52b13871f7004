"""One run: collapse a graph, train on what is left, score it on the original, and record everything."""
