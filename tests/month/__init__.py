"""A simulated month of one gateway with every plugin, every channel, and faults.

``python -m tests.month --seed 1`` runs one. Time passes by moving the gateway's clock an hour at a
time; everything else is real: processes, sockets, files, kills.
"""
