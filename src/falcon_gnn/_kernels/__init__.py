"""Compiled loops over plain arrays. They validate nothing; each has a slow twin in ``tests/oracles.py``.

The only room that imports numba. It stands below ``graph`` so that the adjacency can be built by it.
"""
