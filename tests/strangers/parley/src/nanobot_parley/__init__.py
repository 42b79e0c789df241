"""The channel for Parley."""
