"""Jobs that the agent does at a time, at an interval or on an event."""

__all__: list[str] = []
