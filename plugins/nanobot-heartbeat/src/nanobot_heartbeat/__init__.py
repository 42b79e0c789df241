"""Checks a list of tasks at an interval, and does what is due."""

__all__: list[str] = []
