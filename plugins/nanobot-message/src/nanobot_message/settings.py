"""Settings of the `message` tool."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from nanobot_core import PluginSettings


def _check_chat(glob: str) -> str:
    channel, _, chat_id = glob.partition(":")
    if not channel or not chat_id:
        msg = "expected channel:chat such as 'telegram:123', 'telegram:*' or '*:*'"
        raise ValueError(msg)
    return glob


class MessageSettings(PluginSettings):
    """Section ``tools.message``."""

    allow_chats: tuple[Annotated[str, AfterValidator(_check_chat)], ...] = ()
    """Chats other than its own that a turn may write to, as globs ``channel:chat``."""

    extra_roots: tuple[Path, ...] = ()
    """Folders other than the workspace and the received files from which files may be sent."""

    max_file_bytes: int = Field(default=50_000_000, ge=1)
    """Largest file that is sent."""

    max_files: int = Field(default=10, ge=1, le=100)
    """Most files in one message."""
