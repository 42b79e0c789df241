"""Serves the tools of nanobot's plugins to other agents, as an MCP server."""
