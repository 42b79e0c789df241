"""Operations: what an owner does with a running gateway, for plugins such as a web page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from nanobot_core.messages import JsonObject, JsonValue
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.contracts.bus import DeadLetter


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenQuestion:
    """A tool call that waits for the owner's approval. Its arguments are frozen.

    Attributes:
        id: names it in `Operations.answer_question`.
        session_key: session of the turn.
        tool: name of the tool.
        arguments: of the call.
        question: one line for the owner.
        digest: hash of tool and arguments.
        expires_at: afterwards the call is denied, aware.
    """

    id: str
    session_key: str
    tool: str
    arguments: JsonObject
    question: str
    digest: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsForm:
    """A section of settings, for a form.

    Attributes:
        path: its key path, such as ``tools.exec``.
        owner: id of the plugin that reads it; empty for the core.
        schema: JSON Schema of the section.
        values: those of the file and other sources, secrets replaced by `MASK`.
        fixed: key paths below it whose value does not come from the file, so that a change of the
            file has no effect, with the source.
    """

    path: str
    owner: str
    schema: JsonObject
    values: JsonObject = field(default_factory=dict)
    fixed: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    """What can be configured.

    Attributes:
        file: path of the file that changes go to.
        revision: changes with the content of the file.
        forms: sections, those of the core first.
    """

    file: str
    revision: str
    forms: tuple[SettingsForm, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginEntry:
    """A plugin in a list.

    Attributes:
        id: its id.
        state: one word, such as ``active``, ``disabled`` or ``failed``.
        is_quiet: it is as its owner wants it.
        reason: why it is in this state, in one sentence.
        remedy: what to do, or empty.
        version: version of its distribution; empty if it is not installed.
        distribution: name of the distribution.
        summary: what it is.
        gives: contributions as ``kind: names``.
        capabilities: what it reaches.
        calls: of its hooks since it was loaded.
        errors: those of them that failed.
        total_s: seconds that they took together.
        blocked_s: seconds in which it blocked the event loop.
        tool_tokens: estimated tokens of its tools in each request that offers all of them.
    """

    id: str
    state: str
    is_quiet: bool
    reason: str = ""
    remedy: str = ""
    version: str = ""
    distribution: str = ""
    summary: str = ""
    gives: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    calls: int = 0
    errors: int = 0
    total_s: float = 0.0
    blocked_s: float = 0.0
    tool_tokens: int = 0


PluginChange: TypeAlias = Literal["enable", "disable", "disable-cascade", "reload"]


class Operations(Protocol):
    """What an owner does with a running gateway. Callers check that it is the owner who asks."""

    def questions(self) -> Sequence[OpenQuestion]:
        """Return the tool calls that wait for an approval, the oldest first."""

    async def answer_question(self, question_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question; False if it is not open any more.

        Raises:
            BusError: the answer cannot be stored and does not count.
        """

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session and the work for it, as ``/stop`` does."""

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """Return the messages that were given up, the oldest first."""

    async def retry(self, letter_id: str) -> bool:
        """Try a dead letter again; False if it does not exist."""

    async def drop(self, letter_id: str) -> bool:
        """Delete a dead letter; False if it does not exist."""

    def plugins(self) -> Sequence[PluginEntry]:
        """Return the condition of every plugin."""

    async def change_plugin(self, plugin_id: str, change: PluginChange) -> str:
        """Enable, disable or reload a plugin, and return what was done, one line for each change.

        Raises:
            NanobotError: it cannot be done; nothing has changed.
        """

    async def configuration(self) -> Configuration:
        """Return what can be configured, with the present values."""

    async def configure(self, changes: Mapping[str, JsonValue], revision: str) -> str:
        """Change values in the configuration file, comments kept, and apply them.

        Args:
            changes: key path to value; ``None`` removes the value from the file.
            revision: of the configuration that the changes were made for.

        Returns:
            What was applied, one line for each change.

        Raises:
            ConfigInvalid: values do not fit; the error lists every problem, nothing has changed.
            ConfigUnreadable: the file has another revision, or cannot be read or written.
        """

    async def log(self, lines: int) -> Sequence[str]:
        """Return the last lines of the log, secrets replaced; none if the log has no file."""
