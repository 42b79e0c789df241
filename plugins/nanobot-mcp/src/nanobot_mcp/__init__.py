"""Tools, resources and prompts of MCP servers."""

__all__: list[str] = []
