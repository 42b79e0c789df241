"""Drafts: as streams, which are messages to which text is added, or as edits within a budget."""

from __future__ import annotations

import re
from collections import deque
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from nanobot_core.chat import COMMONMARK, CallFailed, Cause, Recent, RichText, write_markup

if TYPE_CHECKING:
    from nanobot_core import Clock
    from nanobot_slack.client import SlackClient

_WINDOW_S = 60.0
_DRAFTS = 35
"""Slack allows about 50 calls of ``chat.update`` per minute; the others are for answers."""
_STREAM_CHARS = 11_000
"""A stream has at most 12,000 characters; the answer replaces it anyway."""
_UNSTABLE = re.compile(r"[*_~`\[|<!#>]")
_GROWING = frozenset({"pre", "quote"})
_TABLE_BEGINS = re.compile(r"^\|[^\n]*(\n\|[^\n]*)*\n?\Z", re.MULTILINE)
_RULER = re.compile(r"^-[-+]*$", re.MULTILINE)
_FENCE = re.compile(r"\n(> )?`{3,}\Z")
_MENTION = re.compile(r"<(?=[!@#])")


@dataclass(slots=True)
class _Stream:
    sent: str


class Streams:
    """The open streams of a connection.

    A stream only grows, and Slack ends it after some minutes; so it shows the part of a draft that
    no longer changes, and the answer replaces it by an edit.
    """

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._open: Recent[str, _Stream] = Recent()
        self._is_allowed = True

    async def start(
        self, channel: str, thread_ts: str, text: RichText, *, team: str, asker: str
    ) -> str | None:
        """Start a stream and return its message, or ``None`` if there can be none here.

        Args:
            team: workspace of `asker`.
            asker: the person who gets the answer; needed in channels.

        Raises:
            CallFailed: Slack cannot be reached, or the agent cannot write there.
        """
        stable = stable_part(text)
        if not (self._is_allowed and thread_ts and asker):
            return None
        if not stable:
            # Slack ends an idle stream, so it begins with the first words.
            raise CallFailed(Cause.BUSY, "the draft has no words to show yet")
        try:
            answer = await self._client.call(
                "chat.startStream",
                {
                    "channel": channel,
                    "thread_ts": thread_ts,
                    "recipient_team_id": team,
                    "recipient_user_id": asker,
                    "markdown_text": stable,
                },
            )
        except CallFailed as error:
            if error.cause not in {Cause.REFUSED, Cause.CREDENTIALS}:
                raise
            # Not every app and workspace has streams; edits show the same.
            self._is_allowed = False
            return None
        ts = str(answer.get("ts"))
        self._open.put(ts, _Stream(stable))
        return ts

    async def grow(self, channel: str, ts: str, text: RichText) -> bool:
        """Add the new part of a text, and return False if the message is not a stream any more.

        Raises:
            CallFailed: the text may be missing.
        """
        stream = self._open.get(ts)
        if stream is None:
            return False
        stable = stable_part(text)
        added = stable.removeprefix(stream.sent) if stable.startswith(stream.sent) else ""
        if not added and not stream.sent.startswith(stable):
            await self.stop(channel, ts)
            return False
        if not added or len(stable) > _STREAM_CHARS:
            return True
        try:
            await self._client.call(
                "chat.appendStream", {"channel": channel, "ts": ts, "markdown_text": added}
            )
        except CallFailed as error:
            if error.cause is Cause.BUSY:
                raise
            # Slack has ended the stream, or it is unknown what it shows.
            await self.stop(channel, ts)
            return False
        stream.sent = stable
        return True

    async def stop(self, channel: str, ts: str, *, is_known: bool = True) -> None:
        """End a stream, if it is open.

        Args:
            is_known: only if this connection has started it.

        Raises:
            CallFailed: Slack cannot be reached.
        """
        if is_known and self._open.get(ts) is None:
            return
        self._open.drop(ts)
        try:
            await self._client.call("chat.stopStream", {"channel": channel, "ts": ts})
        except CallFailed as error:
            # Slack ends streams by itself after some minutes.
            if error.cause is not Cause.REFUSED:
                raise


def stable_part(text: RichText) -> str:
    """Return the Markdown of the beginning of a draft that remains when more is written.

    The last line may still become formatted, and a block of code may continue. Nothing in it
    notifies people: Slack reads mentions in a stream.
    """
    end = _stable_end(text)
    spans = [
        replace(span, length=min(span.end, end) - span.offset)
        for span in text.spans
        if span.offset < end
    ]
    markup = write_markup(RichText(text.text[:end], tuple(spans)), COMMONMARK)
    if any(span.kind == "pre" and span.end == end for span in spans):
        markup = _FENCE.sub("", markup)
    return _MENTION.sub("<\u2060", markup)


def _stable_end(text: RichText) -> int:
    """Return where the last whole word ends that is certain to have its final formatting."""
    begin = _TABLE_BEGINS.search(text.text)
    whole = text.text[: begin.start()] if begin else text.text
    line = whole.rfind("\n") + 1
    begun = _UNSTABLE.split(whole[line:], maxsplit=1)[0]
    end = line + begun.rfind(" ") + 1
    for span in reversed(text.spans):
        is_open = span.end >= len(text.text.rstrip())
        is_table = (
            span.kind == "pre" and is_open and _RULER.search(text.text, span.offset, span.end)
        )
        # The next row may make all columns wider.
        if span.offset < end and (is_table or (span.kind not in _GROWING and end < span.end)):
            end = span.offset
    return end


class Budget:
    """The edits of drafts in the last minute, in all chats together."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._spent: deque[float] = deque()

    def spend(self) -> None:
        """Count an edit.

        Raises:
            CallFailed: there were too many. The draft can be left out; the answer follows.
        """
        now = self._clock.monotonic_s()
        while self._spent and self._spent[0] <= now - _WINDOW_S:
            self._spent.popleft()
        if len(self._spent) >= _DRAFTS:
            raise CallFailed(Cause.BUSY, "this minute's edits of drafts are used up")
        self._spent.append(now)
