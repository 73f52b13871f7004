"""Graphs from and to the objects of other libraries: PyTorch Geometric, NetworkX and DGL; one module each."""
