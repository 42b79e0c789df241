"""Reads what was written while there was no connection."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause, Records

if TYPE_CHECKING:
    from collections.abc import Callable

    from nanobot_core import JsonObject, PluginContext
    from nanobot_slack.client import SlackClient

_KEPT = 200
_CHATS = 20
"""Only those with the newest messages: Slack allows about 50 such calls per minute."""
_MESSAGES = 100


class Watermarks:
    """The newest message of each conversation and thread before which all are stored.

    A conversation without one is new here: nothing before its first message is read.
    """

    def __init__(self, records: Records) -> None:
        self._records = records
        self._open: dict[str, list[str]] = {}
        self._done: dict[str, str] = {}

    def begin(self, place: str, ts: str) -> None:
        """Note that a message has arrived."""
        self._open.setdefault(place, []).append(ts)

    def forget(self) -> None:
        """Forget the messages that have arrived and will not be stored: the channel has ended."""
        self._open.clear()
        self._done.clear()

    async def end(self, place: str, ts: str) -> None:
        """Note that a message is stored, and record the watermark."""
        waiting = self._open.get(place, [])
        with suppress(ValueError):
            waiting.remove(ts)
        if not waiting:
            self._open.pop(place, None)
        done = self._done[place] = max(self._done.get(place, ts), ts, key=_order)
        if any(_order(each) < _order(done) for each in waiting):
            return
        before = await self._records.get(place)
        if not isinstance(before, str) or _order(before) < _order(done):
            with suppress(OSError):  # it costs a repetition, which the inbox recognises
                await self._records.put(place, done)

    async def newest(self) -> dict[str, str]:
        """Return the watermarks of the conversations with the newest messages."""
        entries = await self._records.entries()
        marks = {place: ts for place, ts in entries.items() if isinstance(ts, str)}
        places = sorted(marks, key=lambda place: _order(marks[place]), reverse=True)
        return {place: marks[place] for place in places[:_CHATS]}


def build_watermarks(ctx: PluginContext) -> Watermarks:
    """Return the watermarks of the plugin's channel, for ``ctx.shared``."""
    return Watermarks(Records(ctx.data_dir / "watermarks.json", _KEPT))


def place_of(channel: str, thread_ts: str) -> str:
    """Return the key of a conversation or a thread."""
    return f"{channel}:{thread_ts}" if thread_ts else channel


class History:
    """The conversations as Slack keeps them."""

    def __init__(
        self, ctx: PluginContext, client: SlackClient, marks: Watermarks, limit_s: float
    ) -> None:
        self._log = ctx.logger
        self._client = client
        self._marks = marks
        self._limit_s = limit_s

    async def catch_up(self, take: Callable[[dict[str, object], str], None]) -> None:
        """Pass on the messages after the watermarks, in order, within a limit of time.

        Args:
            take: accepts a message and the id of its conversation.
        """
        try:
            async with asyncio.timeout(self._limit_s):
                for place, mark in (await self._marks.newest()).items():
                    channel, _, thread_ts = place.partition(":")
                    for message in await self._missed(channel, thread_ts, mark):
                        take(message, channel)
        except TimeoutError:
            self._log.warning("Slack's histories take too long; messages may be missing")

    async def _missed(self, channel: str, thread_ts: str, mark: str) -> list[dict[str, object]]:
        method = "conversations.replies" if thread_ts else "conversations.history"
        arguments: JsonObject = {"channel": channel, "oldest": mark, "limit": str(_MESSAGES)}
        if thread_ts:
            arguments["ts"] = thread_ts
        try:
            answer = await self._client.call(method, arguments, form=True)
        except CallFailed as error:
            if error.cause is not Cause.FORBIDDEN:
                self._log.warning("messages of {} may be missing: {}", channel, error)
            return []
        if answer.get("has_more"):
            self._log.warning("more than {} messages of {} were missed", _MESSAGES, channel)
        found = answer.get("messages")
        listed = found if isinstance(found, list) else []
        messages: list[dict[str, object]] = [
            dict(each) for each in listed if isinstance(each, dict)
        ]
        # Slack adds the first message of a thread.
        new = [each for each in messages if _order(str(each.get("ts"))) > _order(mark)]
        return sorted(new, key=lambda each: _order(str(each.get("ts"))))


def _order(ts: str) -> tuple[int, int]:
    seconds, _, fraction = ts.partition(".")
    try:
        return int(seconds), int(fraction.ljust(9, "0"))
    except ValueError:
        return 0, 0
