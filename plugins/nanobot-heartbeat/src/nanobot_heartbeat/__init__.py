"""Looks at a checklist at an interval, and does what is due."""

__all__: list[str] = []
