"""nanobot-message: a tool that sends messages and files to chats."""

__all__: list[str] = []
