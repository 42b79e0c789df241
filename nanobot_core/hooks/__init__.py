"""Declared call points, and the caller that runs what plugins hung on them."""
