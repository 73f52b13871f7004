"""The version of falcon-gnn, said here only."""

__version__ = "0.2.0"
