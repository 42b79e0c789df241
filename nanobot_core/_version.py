"""The release, in a module of its own so that ``nanobot --version`` imports nothing else."""

__version__ = "0.2.0"
