"""Inbox and outbox: received messages without an answer, and replies that are not delivered."""
