"""Channels: who may write, what comes in, what goes out, and what runs."""
