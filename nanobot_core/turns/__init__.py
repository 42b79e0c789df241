"""Turns: from one message to its stored reply."""
