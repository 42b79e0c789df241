"""Moves a home of nanobot-ai in, and keeps and restores backups of a home.

Only the command line uses this package. A new home is written beside its place and gets its name
in one step, so that a kill leaves the old home or the new one.
"""
