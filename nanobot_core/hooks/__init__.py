"""Declared call points, and the caller that runs their implementations."""
