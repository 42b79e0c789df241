"""Channels: who may write, inbox, outbox, and supervision."""
