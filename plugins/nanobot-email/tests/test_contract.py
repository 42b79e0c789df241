"""The contract of channels and the scripted day, with a local mail service."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from nanobot_core.testing import (
    ChannelContract,
    ChannelDay,
    StandInPlatform,
    load_stand_in,
)
from nanobot_email.channel import build_channel

LocalEmail = load_stand_in(Path(__file__).with_name("local_email.py"))


class WatchedPlatform(StandInPlatform):
    """Counts mail as acknowledged when the channel's own record of the mailbox includes it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(LocalEmail(), build_channel, folder)
        self.acknowledges = True
        self._file = folder / "data" / "email" / "watermarks.json"
        self._said: list[str] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        # The channel has run before: otherwise the mail that it finds is old.
        self._file.parent.mkdir(parents=True)
        place = "agent@example.com@127.0.0.1/INBOX"
        self._file.write_text(json.dumps({place: {"validity": 1_700_000_000, "uid": 0}}))
        return self

    @property
    def acknowledged(self) -> list[str]:  # type: ignore[override]
        (watermark,) = json.loads(self._file.read_text()).values()
        return self._said[: watermark["uid"]]

    async def say(self, key: str, text: str) -> None:
        self._said.append(key)
        await super().say(key, text)


class TestEmailChannel(ChannelContract):
    def serve(self, tmp_path: Path) -> StandInPlatform:
        return WatchedPlatform(tmp_path)


class TestEmailDay(ChannelDay):
    stand_in = LocalEmail
