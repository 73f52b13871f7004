"""``python -m falcon_gnn`` is the command ``falcon-gnn``."""

from falcon_gnn.cli.commands import main

if __name__ == "__main__":
    main()
