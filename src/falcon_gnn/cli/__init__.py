"""The command ``falcon-gnn``."""

from falcon_gnn.cli.commands import app, main

__all__ = ["app", "main"]
