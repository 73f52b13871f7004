"""Graphs from names, files and formulas."""
