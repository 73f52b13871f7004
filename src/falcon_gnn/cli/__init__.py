"""The command ``falcon-gnn``."""
