"""Subagents: tasks that the agent, or a program, gives to runs of their own."""

from nanobot_subagents.program import delegate as delegate

__all__ = ["delegate"]
