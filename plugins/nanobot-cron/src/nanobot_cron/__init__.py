"""Jobs that the agent runs at a time, at an interval or on an event."""

__all__: list[str] = []
