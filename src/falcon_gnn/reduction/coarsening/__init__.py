"""The coarsening baseline (Huang et al. 2021): graph reduction by local variation or matching."""
