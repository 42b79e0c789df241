"""StandIn: a chat platform on this machine, as the people on it see and use it."""

from __future__ import annotations

import asyncio
import importlib.util
import inspect
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self, TypeAlias

from nanobot_core.clock import SystemClock
from nanobot_core.record import dataclass
from nanobot_core.testing.channel import ChannelPlatform
from nanobot_core.testing.context import FakeGateway, FakePluginContext

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core.chat import FileKind
    from nanobot_core.contracts.channel import Channel

Refusal: TypeAlias = Literal["token", "permission", "revoked"]
"""Why a platform refuses credentials: they are wrong, lack a permission, or were revoked."""


@dataclass(frozen=True, slots=True)
class Person:
    """Someone on the platform.

    Attributes:
        id: as in `InboundMessage.sender_id`.
        name: as shown to others.
    """

    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ChatFile:
    """A file in a message.

    Attributes:
        name: file name; may be empty where the platform shows none.
        content: its bytes.
        kind: how the platform shows it.
    """

    name: str
    content: bytes
    kind: FileKind = "file"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A message as people see it now.

    Attributes:
        id: the platform's id; for a message of a person, the key that `StandIn.say` returned.
        author: name of the author.
        text: what people read: the markup is applied, and not part of the text.
        spans: kind (a ``SpanKind`` of `nanobot_core.chat`) and words of each formatted part.
        files: attached files.
        buttons: labels of its buttons, in order.
        quotes: id of the message that it replies to, or ``None``.
        edited: its text was replaced at least once.
    """

    id: str
    author: str
    text: str = ""
    spans: tuple[tuple[str, str], ...] = ()
    files: tuple[ChatFile, ...] = ()
    buttons: tuple[str, ...] = ()
    quotes: str | None = None
    edited: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Abilities:
    """What a platform offers, which determines the steps of a `ChannelDay` and their results.

    Attributes:
        longest_text: most characters of one message; ``None`` if a text is never divided.
        formatting: kinds of formatting that people see; the text of all others is shown plain.
        table_text: a table is shown as text in columns; otherwise its cells are still in order.
        groups: it has a group with Anna, Bert and the agent.
        group_threads: in the group, each message that mentions the agent and is no reply begins a
            thread with a session of its own, so that two of them have no order.
        edits: people can edit their messages, and the channel takes edits with the default settings
            or with those of `StandIn.section`.
        pictures: people can send pictures.
        voice: people can send voice messages, which arrive as a file.
        files_out: the agent can send a file.
        quotes: people can reply to a message, and the channel knows the text of that message.
        buttons: people can press buttons of the agent's messages.
        drafts: an answer is shown while it grows.
        pairing: strangers are offered pairing in their private chat.
        acknowledges: the channel confirms messages to the platform; otherwise
            `StandIn.acknowledged` remains empty.
        resends: messages that people write while the channel is disconnected arrive later: the
            platform offers them again, or the channel fetches them from its history.
        reports_blocking: a send to someone who blocked the agent fails with a reason.
        asks_to_wait: calls are refused with a time to wait when there are too many.
        equal_keys_once: a message of the agent that is sent again with the same key is shown once;
            otherwise, a kill between sending and recording can show it twice.
        refusals: the ways in which it refuses credentials.
        measure: returns the length of a text in the unit of
            `ChannelCapabilities.max_message_chars`.
    """

    longest_text: int | None = 4_000
    formatting: frozenset[str] = frozenset()
    table_text: bool = True
    groups: bool = True
    group_threads: bool = False
    edits: bool = False
    pictures: bool = True
    voice: bool = True
    files_out: bool = True
    quotes: bool = True
    buttons: bool = False
    drafts: bool = False
    pairing: bool = True
    acknowledges: bool = True
    resends: bool = True
    reports_blocking: bool = True
    asks_to_wait: bool = True
    equal_keys_once: bool = False
    refusals: tuple[Refusal, ...] = ("token",)
    measure: Callable[[str], int] = len


class StandIn(ABC):
    """A local platform with Anna (the owner), Bert and the agent on it; an async context manager.

    It enforces the platform's rules, serves the real client of the channel over the loopback, and
    runs in its own thread or as tasks of the test's event loop. What people write while no channel
    is connected waits, as on the platform. Methods that begin a fault return when the fault is in
    effect. A class in ``tests/local_NAME.py`` that can be created without arguments is found by the
    tests that run several channels together.

    Attributes:
        name: name of the channel.
        abilities: what the platform offers.
        anna: the owner.
        bert: someone else.
        agent: name under which the agent writes.
        group: chat id of the group, as in `InboundMessage.chat_id` or a part of it that `shown`
            takes; empty for a platform without groups.
        plugin: id of the channel's plugin, if it is not the name of the channel.
        plugins: ids of plugins that the channel needs besides its own, such as ``http``.
    """

    name: ClassVar[str]
    abilities: ClassVar[Abilities]
    anna: ClassVar[Person]
    bert: ClassVar[Person]
    agent: ClassVar[str] = "Nano"
    group: ClassVar[str] = ""
    plugin: ClassVar[str] = ""
    plugins: ClassVar[tuple[str, ...]] = ()

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start serving, on free ports."""

    @abstractmethod
    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close all connections and stop serving."""

    # --- configuration

    @abstractmethod
    def section(self) -> dict[str, Any]:
        """Return the channel's section: address, credentials, and what shortens waiting.

        ``allow_from`` is added by the tests.
        """

    def config(self) -> dict[str, Any]:
        """Return further sections, such as ``http`` with the port that receives webhooks."""
        return {}

    # --- what people do

    @abstractmethod
    def private(self, person: Person) -> str:
        """Return the chat id of the private chat between `person` and the agent."""

    @abstractmethod
    async def say(
        self,
        text: str = "",
        *,
        sender: Person | None = None,
        chat: str = "",
        mention: bool = False,
        files: Sequence[ChatFile] = (),
        quote: str | None = None,
    ) -> str:
        """Let a person write, and return the platform's id of the message at once.

        Messages of one chat are offered in order.

        Args:
            text: plain words, or a command such as ``/status``.
            sender: Anna by default.
            chat: the private chat with the sender by default; or `group`.
            mention: the message mentions the agent, in the way of the platform.
            files: attached files; kinds ``image``, ``voice`` and ``file``.
            quote: id of the message that it replies to.
        """

    async def edit(self, key: str, text: str) -> None:
        """Let the author replace the text of a message; only needed with `Abilities.edits`."""
        raise NotImplementedError

    async def press(self, message: Shown, label: str, *, sender: Person | None = None) -> None:
        """Let a person (Anna by default) press a button; only with `Abilities.buttons`."""
        raise NotImplementedError

    # --- what people and the platform see

    @abstractmethod
    def shown(self, chat: str) -> list[Shown]:
        """Return the messages of a chat, also those of people, in the order of the platform.

        The messages of a thread or topic belong to its chat. A deleted message is not shown.
        """

    @property
    @abstractmethod
    def acknowledged(self) -> list[str]:
        """Ids of messages that the channel has confirmed to the platform, in that order."""

    # --- faults

    @abstractmethod
    async def hang_up(self, after: int = 0) -> None:
        """Take `after` more messages of the agent, then break and refuse every connection."""

    @abstractmethod
    async def come_back(self) -> None:
        """Accept connections again."""

    @abstractmethod
    async def go_silent(self) -> None:
        """Let the open connections for receiving stay open, and send nothing on them any more.

        What people write is offered on connections that are opened afterwards. Other calls work.
        """

    @abstractmethod
    def duplicate_next(self) -> None:
        """Offer the next message of a person twice."""

    def busy(self, seconds: float, times: int = 1) -> None:
        """Refuse the next `times` messages of the agent, and ask to wait for `seconds`.

        Only needed with `Abilities.asks_to_wait`.
        """
        raise NotImplementedError

    def block(self, chat: str, *, blocked: bool = True) -> None:
        """Refuse messages of the agent in a private chat, as after the person blocked it.

        With ``blocked=False`` they are accepted again.
        Only needed with `Abilities.reports_blocking`.
        """
        raise NotImplementedError

    def refuse_credentials(self, why: Refusal) -> None:
        """Refuse the credentials of `section` from now on."""
        raise NotImplementedError


def load_stand_in(file: Path) -> type[StandIn]:
    """Return the stand-in that a module defines, imported by its path.

    The tests of a package are usually no package themselves, so that they cannot import their
    neighbours. A module is imported once.

    Raises:
        LookupError: it does not define exactly one class that can be created.
    """
    name = f"stand_in_of_{file.stem}_{hash(file.resolve())}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file)
        if spec is None or spec.loader is None:
            msg = f"'{file}' is not a module"
            raise LookupError(msg)
        sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(sys.modules[name])
    found = [
        value
        for value in vars(sys.modules[name]).values()
        if isinstance(value, type)
        and issubclass(value, StandIn)
        and value.__module__ == name
        and not inspect.isabstract(value)
    ]
    if len(found) != 1:
        msg = f"'{file}' defines {len(found)} stand-ins that can be created instead of one"
        raise LookupError(msg)
    return found[0]


class StandInPlatform(ChannelPlatform):
    """A `StandIn` as the platform of `ChannelContract`; an async context manager.

    ::

        class TestAcmeChannel(ChannelContract):
            def serve(self, tmp_path: Path) -> StandInPlatform:
                return StandInPlatform(LocalAcme(), build_channel, tmp_path)

    Args:
        stand_in: not started yet.
        build: makes the channel, as `ChannelSpec.factory` does.
        folder: where the plugin keeps its files.
    """

    def __init__(
        self, stand_in: StandIn, build: Callable[[FakePluginContext], Channel], folder: Path
    ) -> None:
        self.stand_in: StandIn = stand_in
        self.chat_id: str = stand_in.private(stand_in.anna)
        self.acknowledges: bool = stand_in.abilities.acknowledges
        self._build = build
        self._keys: dict[str, str] = {}
        self._channels: list[Channel] = []
        self._folder = folder

    async def __aenter__(self) -> Self:
        await self.stand_in.__aenter__()
        # The ports are known now.
        self._ctx = FakePluginContext(
            self._folder,
            settings={"allow_from": [self.stand_in.anna.id], **self.stand_in.section()},
            plugin_id=self.stand_in.name,
            clock=SystemClock(),
            gateway=FakeGateway(),
        )
        await self._ctx.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        async with asyncio.timeout(10):
            for channel in self._channels:
                await channel.stop()
        await self._ctx.__aexit__(kind, error, traceback)
        await self.stand_in.__aexit__(kind, error, traceback)

    # The base declares plain lists, and here they are what the stand-in knows at the moment.
    @property
    def acknowledged(self) -> list[str]:  # type: ignore[override]
        """Keys of the messages that were confirmed."""
        return [self._keys[key] for key in self.stand_in.acknowledged if key in self._keys]

    @property
    def delivered(self) -> list[str]:  # type: ignore[override]
        """Texts of the agent in the chat."""
        return [message.text for message in answers(self.stand_in, self.chat_id)]

    def channel(self) -> Channel:
        """Return a new channel."""
        self._channels.append(self._build(self._ctx))
        return self._channels[-1]

    async def say(self, key: str, text: str) -> None:
        """Let Anna write."""
        self._keys[await self.stand_in.say(text)] = key

    async def hang_up(self, after: int = 0) -> None:
        """Break the connections."""
        await self.stand_in.hang_up(after)

    async def come_back(self) -> None:
        """Accept connections again."""
        await self.stand_in.come_back()

    def length(self, text: str) -> int:
        """Return the length of `text` in the unit of the platform."""
        return self.stand_in.abilities.measure(text)


def answers(stand_in: StandIn, chat: str) -> list[Shown]:
    """Return what the agent has written to a chat."""
    return [message for message in stand_in.shown(chat) if message.author == stand_in.agent]


def transcript(messages: Iterable[Shown]) -> str:
    """Return messages as people would read them, with formatting, files and buttons."""
    return "\n".join(line for message in messages for line in _lines(message))


def _lines(message: Shown) -> list[str]:
    return [
        f"{message.author}: {message.text}",
        *(f"   <{kind}> {words}" for kind, words in message.spans),
        *(f"   [{file.kind}: {file.name}, {len(file.content)} B]" for file in message.files),
        *(["   " + " ".join(f"({label})" for label in message.buttons)] if message.buttons else []),
    ]
