"""Signs that the agent is working on a message."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

from nanobot_core.chat import CallFailed, Cause, Recent

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_slack.client import SlackClient
    from nanobot_slack.settings import SlackSettings

_WAITING = 10
_STATUS = "is working on it…"
_STATUS_S = 60.0
"""Slack clears a status after two minutes."""
_PASSING = frozenset({Cause.BUSY, Cause.UNREACHABLE})


class WorkSigns:
    """A reaction on each message that the agent works on, and a status in its thread.

    They begin with the first `show`, and end with the answer. A message without an answer keeps its
    reaction until `show` has not been called for a while. A process that was killed leaves them;
    the next one removes them with the answer.

    Args:
        silence_s: that while, in seconds.
    """

    def __init__(
        self, ctx: PluginContext, client: SlackClient, settings: SlackSettings, silence_s: float
    ) -> None:
        self._ctx = ctx
        self._client = client
        self._emoji = settings.react_emoji
        self._done_emoji = settings.done_emoji
        self._silence_s = silence_s
        self._waiting: Recent[str, dict[str, bool]] = Recent()
        self._askers: Recent[str, str] = Recent()
        self._asked: Recent[str, float] = Recent()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._statuses: Recent[str, float] = Recent()
        self._has_status = True

    def expect(self, chat_id: str, ts: str, sender: str) -> None:
        """Note that the agent will work on the message `ts` of a chat."""
        self._askers.put(chat_id, sender)
        waiting = self._waiting.get(chat_id) or {}
        newest = list({**waiting, ts: waiting.get(ts, False)}.items())[-_WAITING:]
        self._waiting.put(chat_id, dict(newest))
        asked_s = self._asked.get(chat_id)
        if asked_s is not None and self._ctx.clock.monotonic_s() < asked_s + self._silence_s:
            # The host may begin before the message is known here, and asks again only later.
            self._ctx.spawn(self._show_now(chat_id), name="slack reaction")

    def asker(self, chat_id: str) -> str:
        """Return who wrote last in a chat; empty if that is not known."""
        return self._askers.get(chat_id) or ""

    async def show(self, chat_id: str) -> None:
        """Show that the agent works on the messages of a chat.

        Raises:
            CallFailed: Slack did not accept it.
        """
        self._asked.put(chat_id, self._ctx.clock.monotonic_s())
        channel, _, thread_ts = chat_id.partition(":")
        waiting = self._waiting.get(chat_id) or {}
        new = [ts for ts, is_shown in waiting.items() if not is_shown]
        if self._emoji and waiting:
            self._expire_later(chat_id)
            for ts in new:
                # Set before: the host may cancel this call, which arrives nevertheless.
                waiting[ts] = True
                await self._react("reactions.add", channel, ts, self._emoji)
        if thread_ts:
            await self._show_status(chat_id, channel, thread_ts)

    def answered(self, chat_id: str, ts: str) -> None:
        """Remove the signs of a message, because its answer is shown."""
        waiting = self._waiting.get(chat_id) or {}
        waiting.pop(ts, None)
        if not waiting and (timer := self._timers.pop(chat_id, None)):
            timer.cancel()
        if self._emoji or self._done_emoji:
            self._ctx.spawn(self._remove(chat_id, [ts], is_done=True), name="slack reaction")

    def close(self) -> None:
        """Forget what is shown."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    async def _show_now(self, chat_id: str) -> None:
        with suppress(CallFailed):
            await self.show(chat_id)

    def _expire_later(self, chat_id: str) -> None:
        if timer := self._timers.get(chat_id):
            timer.cancel()
        loop = asyncio.get_running_loop()
        self._timers[chat_id] = loop.call_later(self._silence_s, self._expire, chat_id)

    def _expire(self, chat_id: str) -> None:
        self._timers.pop(chat_id, None)
        shown = [ts for ts, is_shown in (self._waiting.get(chat_id) or {}).items() if is_shown]
        self._waiting.drop(chat_id)
        self._ctx.spawn(self._remove(chat_id, shown, is_done=False), name="slack reaction")

    async def _remove(self, chat_id: str, messages: list[str], *, is_done: bool) -> None:
        channel = chat_id.partition(":")[0]
        for ts in messages:
            with suppress(CallFailed):
                if self._emoji:
                    await self._react("reactions.remove", channel, ts, self._emoji)
                if is_done and self._done_emoji:
                    await self._react("reactions.add", channel, ts, self._done_emoji)

    async def _react(self, method: str, channel: str, ts: str, emoji: str) -> None:
        try:
            await self._client.call(method, {"channel": channel, "timestamp": ts, "name": emoji})
        except CallFailed as error:
            # Such as a reaction that exists, or a message that does not.
            if error.cause is not Cause.REFUSED:
                raise

    async def _show_status(self, chat_id: str, channel: str, thread_ts: str) -> None:
        now = self._ctx.clock.monotonic_s()
        shown = self._statuses.get(chat_id)
        if not self._has_status or (shown is not None and now < shown + _STATUS_S):
            return
        self._statuses.put(chat_id, now)
        try:
            await self._client.call(
                "assistant.threads.setStatus",
                {"channel_id": channel, "thread_ts": thread_ts, "status": _STATUS},
            )
        except CallFailed as error:
            # The app may not be allowed to; then a reaction is enough.
            self._has_status = error.cause in _PASSING
