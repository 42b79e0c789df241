"""nanobot-files: tools to read, write, search and edit files."""

__all__: list[str] = []
