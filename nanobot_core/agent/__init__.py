"""The agent: model calls and tool calls until there is an answer or a limit."""
