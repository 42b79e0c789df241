"""Inbox and outbox: what came in and is not answered, what is to go out and is not delivered."""
