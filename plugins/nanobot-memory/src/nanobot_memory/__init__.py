"""Memory across sessions: history, summaries, three files, and Dream."""

__all__: list[str] = []
