"""What every channel must do, as tests that its plugin inherits, and a double of its inbox."""

from __future__ import annotations

import asyncio
import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, ClassVar

import pytest

from nanobot_core.channels.access import fault_of
from nanobot_core.contracts.channel import Channel, Complete
from nanobot_core.errors import BusError, BusFull, ChannelError, DeliveryError
from nanobot_core.ids import new_id
from nanobot_core.messages import InboundMessage, OutboundMessage
from nanobot_core.testing.suite import ConformanceSuite

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path


_LIMIT_S = 10.0
_POLL_S = 0.01
_KINDS = {"image", "audio", "video", "file"}
_START = datetime(2026, 1, 1, tzinfo=UTC)


class RecordingInbox:
    """An `Inbox` that keeps what a channel publishes.

    A message whose `dedupe_key` was stored before is a repetition.

    Attributes:
        attempts: the messages of all calls of `publish`, as passed.
        stored: the messages that were stored, completed, with an id and a timestamp.
        contacts: number of calls of `alive`.

    Args:
        admits: whether the sender of a message may write; everyone by default.
    """

    def __init__(self, admits: Callable[[InboundMessage], bool] = lambda _: True) -> None:
        self.attempts: list[InboundMessage] = []
        self.stored: list[InboundMessage] = []
        self.contacts: int = 0
        self._admits = admits
        self._failures: deque[BusError] = deque()
        self._may_go_on = asyncio.Event()
        self._may_go_on.set()
        self._changed = asyncio.Condition()

    def fail_next(self, *errors: BusError) -> None:
        """Let the next calls of `publish` raise these, one each."""
        self._failures.extend(errors)

    def hold(self) -> None:
        """Let calls of `publish` wait until `let_go`, as if the disk were slow."""
        self._may_go_on.clear()

    def let_go(self) -> None:
        """Let the waiting calls continue."""
        self._may_go_on.set()

    async def publish(self, message: InboundMessage, complete: Complete | None = None) -> bool:
        """Store a message; see `Inbox.publish`."""
        self.attempts.append(message)
        await self._tell()
        await self._may_go_on.wait()
        if self._failures:
            raise self._failures.popleft()
        if not self._admits(message) or self._is_known(message):
            return False
        if complete is not None:
            message = await complete(message)
        # Another call may have stored it while this one was completed.
        if self._is_known(message):
            return False
        self.stored.append(
            replace(message, id=message.id or new_id(), timestamp=message.timestamp or _START)
        )
        await self._tell()
        return True

    def alive(self) -> None:
        """Count the contact."""
        self.contacts += 1

    async def wait_for_attempts(self, count: int, limit_s: float = 5.0) -> None:
        """Wait until `publish` was called `count` times.

        Raises:
            TimeoutError: it was not within `limit_s` seconds.
        """
        await self._wait(lambda: len(self.attempts) >= count, limit_s)

    async def wait_for_stored(self, count: int, limit_s: float = 5.0) -> None:
        """Wait until `count` messages are stored.

        Raises:
            TimeoutError: they are not within `limit_s` seconds.
        """
        await self._wait(lambda: len(self.stored) >= count, limit_s)

    def _is_known(self, message: InboundMessage) -> bool:
        key = message.dedupe_key
        return key is not None and any(key == other.dedupe_key for other in self.stored)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, condition: Callable[[], bool], limit_s: float) -> None:
        async with asyncio.timeout(limit_s), self._changed:
            await self._changed.wait_for(condition)


class ChannelPlatform(ABC):
    """The service behind a channel, as a test plays it.

    Attributes:
        chat_id: a chat that exists, whose messages the channel takes.
        acknowledges: the platform has acknowledgements; otherwise `acknowledged` remains empty.
        acknowledged: keys of messages that the channel has taken for good, in the order in which
            the platform got the acknowledgements.
        delivered: texts that the chat shows, in order, in the dialect of the platform.
    """

    chat_id: str
    acknowledges: bool = True
    acknowledged: list[str]
    delivered: list[str]

    @abstractmethod
    def channel(self) -> Channel:
        """Return a new channel for this platform, as the gateway makes one for each start."""

    @abstractmethod
    async def say(self, key: str, text: str) -> None:
        """Let a person write into the chat, and return without waiting for the channel.

        The platform offers messages one after the other, and each until it is acknowledged.

        Args:
            key: the platform's id of the message; what it offers twice has one id.
            text: plain words.
        """

    @abstractmethod
    async def hang_up(self, after: int = 0) -> None:
        """Take `after` more messages of the channel, then break and refuse every connection."""

    @abstractmethod
    async def come_back(self) -> None:
        """Accept connections again."""

    def length(self, text: str) -> int:
        """Return the length of `text` in the units of `ChannelCapabilities.max_message_chars`."""
        return len(text)


class ChannelContract(ConformanceSuite):
    """Subclass it as ``TestMyChannel`` and supply `serve`."""

    TEXT: ClassVar[str] = "Grüße aus Köln"

    @abstractmethod
    def serve(self, tmp_path: Path) -> AbstractAsyncContextManager[ChannelPlatform]:
        """Return a platform that runs until the context is left; it closes its channels."""

    async def test_messages_arrive_whole_and_in_order(self, tmp_path: Path) -> None:
        inbox = RecordingInbox()
        texts = [f"message {number}" for number in range(10)]
        async with self.serve(tmp_path) as platform, _running(platform, inbox) as channel:
            for number, text in enumerate(texts):
                await platform.say(str(number + 1), text)
            await inbox.wait_for_stored(len(texts))
            await _acknowledged(platform, *(str(number + 1) for number in range(len(texts))))
        assert [message.content for message in inbox.stored] == texts
        for message in inbox.stored:
            assert message.channel == channel.name
            assert message.chat_id == platform.chat_id
            assert message.sender_id
            assert fault_of(message) == ""
            assert message.timestamp is None or message.timestamp.tzinfo is not None
            json.dumps(message.metadata)

    async def test_equal_texts_have_keys_of_their_own(self, tmp_path: Path) -> None:
        inbox = RecordingInbox()
        async with self.serve(tmp_path) as platform, _running(platform, inbox):
            await platform.say("1", self.TEXT)
            await platform.say("2", self.TEXT)
            await inbox.wait_for_stored(2)
        keys = [message.dedupe_key for message in inbox.stored]
        assert all(keys)
        assert len(set(keys)) == 2

    async def test_the_platform_is_told_only_after_the_message_is_stored(
        self, tmp_path: Path
    ) -> None:
        inbox = RecordingInbox()
        async with self.serve(tmp_path) as platform, _running(platform, inbox):
            inbox.hold()
            await platform.say("1", self.TEXT)
            await inbox.wait_for_attempts(1)
            for _ in range(10):
                await asyncio.sleep(_POLL_S)
                assert platform.acknowledged == []
            inbox.let_go()
            await inbox.wait_for_stored(1)
            await _acknowledged(platform, "1")
        assert [message.content for message in inbox.stored] == [self.TEXT]

    @pytest.mark.parametrize("error", [BusFull(10, 10), BusError("the disk is full")])
    async def test_a_message_that_is_not_stored_is_offered_again(
        self, tmp_path: Path, error: BusError
    ) -> None:
        inbox = RecordingInbox()
        inbox.fail_next(error)
        async with self.serve(tmp_path) as platform, _running(platform, inbox):
            await platform.say("1", self.TEXT)
            await platform.say("2", "after it")
            await inbox.wait_for_stored(2)
            await _acknowledged(platform, "1", "2")
        first, second = inbox.attempts[:2]
        assert first.dedupe_key == second.dedupe_key
        assert [message.content for message in inbox.stored] == [self.TEXT, "after it"]

    async def test_a_refused_message_counts_as_arrived(self, tmp_path: Path) -> None:
        inbox = RecordingInbox(admits=lambda message: message.content != self.TEXT)
        async with self.serve(tmp_path) as platform, _running(platform, inbox):
            await platform.say("1", self.TEXT)
            await platform.say("2", "welcome")
            await inbox.wait_for_stored(1)
            await _acknowledged(platform, "1", "2")
        assert [message.content for message in inbox.stored] == ["welcome"]

    async def test_stop_ends_start_and_may_be_called_again(self, tmp_path: Path) -> None:
        async with self.serve(tmp_path) as platform, asyncio.timeout(_LIMIT_S):
            channel = platform.channel()
            async with asyncio.TaskGroup() as group:
                inbox = RecordingInbox()
                group.create_task(channel.start(inbox))
                await platform.say("1", self.TEXT)
                await inbox.wait_for_stored(1)
                await channel.stop()
            await channel.stop()
            await platform.channel().stop()

    async def test_a_cancelled_start_leaves_nothing_and_the_next_one_receives(
        self, tmp_path: Path
    ) -> None:
        inbox = RecordingInbox()
        async with self.serve(tmp_path) as platform, asyncio.timeout(_LIMIT_S):
            before = asyncio.all_tasks()
            for number in (1, 2):
                channel = platform.channel()
                async with asyncio.TaskGroup() as group:
                    started = group.create_task(channel.start(inbox))
                    await platform.say(str(number), self.TEXT)
                    await inbox.wait_for_stored(number)
                    await _acknowledged(platform, *map(str, range(1, number + 1)))
                    started.cancel()
                assert started.cancelled()
                await channel.stop()
                await _until(lambda: not asyncio.all_tasks() - before)

    async def test_a_sent_text_is_shown_in_its_chat(self, tmp_path: Path) -> None:
        async with self.serve(tmp_path) as platform, _running(platform) as channel:
            await channel.send(_reply(channel, platform, self.TEXT))
            assert [text.strip() for text in platform.delivered] == [self.TEXT]

    async def test_a_long_text_is_split_without_loss(self, tmp_path: Path) -> None:
        async with self.serve(tmp_path) as platform, _running(platform) as channel:
            words = _words(channel, pieces=3)
            await channel.send(_reply(channel, platform, " ".join(words)))
            assert len(platform.delivered) > 1
            for piece in platform.delivered:
                assert platform.length(piece) <= channel.capabilities.max_message_chars
            assert " ".join(platform.delivered).split() == words

    async def test_a_send_without_connection_may_be_tried_again(self, tmp_path: Path) -> None:
        async with self.serve(tmp_path) as platform, _running(platform, may_break=True) as channel:
            reply = _reply(channel, platform, self.TEXT)
            await platform.hang_up()
            with pytest.raises(DeliveryError) as raised:
                await channel.send(reply)
            assert (raised.value.channel, raised.value.retryable) == (channel.name, True)
            await platform.come_back()
            await channel.send(reply)
            assert [text.strip() for text in platform.delivered] == [self.TEXT]

    async def test_a_send_that_is_repeated_shows_no_piece_twice(self, tmp_path: Path) -> None:
        async with self.serve(tmp_path) as platform, _running(platform, may_break=True) as channel:
            words = _words(channel, pieces=3)
            reply = _reply(channel, platform, " ".join(words))
            await platform.hang_up(after=1)
            with pytest.raises(DeliveryError):
                await channel.send(reply)
            await platform.come_back()
            await channel.send(reply)
            assert " ".join(platform.delivered).split() == words

    async def test_it_says_plausibly_what_its_platform_can_do(self, tmp_path: Path) -> None:
        inbox = RecordingInbox()
        async with self.serve(tmp_path) as platform, _running(platform, inbox) as channel:
            able = channel.capabilities
            assert channel.name.isidentifier()
            assert able.max_message_chars > 0
            assert able.markdown
            assert set(able.media) <= _KINDS
            for seconds in (able.edit_interval_s, able.typing_interval_s, able.silence_limit_s):
                assert seconds is None or seconds > 0
            assert (await channel.login()).strip()
            if able.typing_interval_s is not None:
                await channel.show_typing(platform.chat_id)
            if able.silence_limit_s is not None:
                await _until(lambda: inbox.contacts > 0)


@asynccontextmanager
async def _running(
    platform: ChannelPlatform, inbox: RecordingInbox | None = None, *, may_break: bool = False
) -> AsyncIterator[Channel]:
    """Run a new channel, and stop it as the gateway does.

    With `may_break` the channel may end because its connection is lost, as the contract allows.
    """
    channel = platform.channel()
    tolerated = (ChannelError,) if may_break else ()

    async def receive() -> None:
        with suppress(*tolerated):
            await channel.start(inbox or RecordingInbox())

    async with asyncio.timeout(_LIMIT_S), asyncio.TaskGroup() as group:
        started = group.create_task(receive())
        try:
            yield channel
        finally:
            await channel.stop()
            await asyncio.wait({started}, timeout=_LIMIT_S)


def _reply(channel: Channel, platform: ChannelPlatform, text: str) -> OutboundMessage:
    return OutboundMessage(
        channel=channel.name,
        chat_id=platform.chat_id,
        content=text,
        idempotency_key="contract-reply",
    )


def _words(channel: Channel, *, pieces: int) -> list[str]:
    """Return words that differ, enough for more than `pieces` - 1 messages."""
    needed = channel.capabilities.max_message_chars * (pieces - 1) + 10
    return [f"word{number}" for number in range(needed // len("word ") + 1)]


async def _acknowledged(platform: ChannelPlatform, *keys: str) -> None:
    """Wait until these messages, and no others, are acknowledged."""
    if platform.acknowledges:
        await _until(lambda: platform.acknowledged == list(keys))


async def _until(condition: Callable[[], bool]) -> None:
    """Wait until `condition` holds; a platform has no event to wait for."""
    async with asyncio.timeout(_LIMIT_S):
        while not condition():  # noqa: ASYNC110 - see above
            await asyncio.sleep(_POLL_S)
