"""Training on several devices, of one machine or with ``torchrun`` of several: SIGN, QSIGN and Cluster-GCN.

Every global batch is shared out among the devices, and the losses are weighted so that a step is that of one process
on the whole batch.
"""
