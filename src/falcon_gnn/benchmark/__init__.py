"""Experiments from configuration files: run, record, tabulate beside the paper, and search for the best options."""
