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
    from nanobot_core.contracts.login import LoginPrompt
    from nanobot_core.contracts.provider import ProviderSpec
    from nanobot_core.errors import ConfigProblem


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
        problems: findings about the file.
        is_applied: the gateway uses the content of the file.
    """

    file: str
    revision: str
    forms: tuple[SettingsForm, ...]
    problems: tuple[ConfigProblem, ...] = ()
    is_applied: bool = True


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


@dataclass(frozen=True, slots=True, kw_only=True)
class VersionChange:
    """What happens to one distribution.

    Attributes:
        name: its name.
        before: the installed version, or an empty string.
        after: the version afterwards, or an empty string if it is removed.
    """

    name: str
    before: str
    after: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedPlugin:
    """A plugin that would be installed.

    Attributes:
        id: its id.
        label: its distribution and version.
        reaches: what it reaches, in words; ``None`` if its distribution does not say so.
        news: what it does and its owner has not agreed to.
        is_new: no version of it is installed.
        is_asked_for: the owner named its distribution, which is not only a dependency.
        publisher: who published it, in words; empty if it does not come from an index.
        new_publisher: how its publisher changes, in words; empty if it does not.
    """

    id: str
    label: str
    reaches: tuple[str, ...] | None
    news: tuple[str, ...]
    is_new: bool
    is_asked_for: bool
    publisher: str = ""
    new_publisher: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallPlan:
    """What an installation would change; it has changed nothing.

    Attributes:
        requirement: what the owner named.
        environment: where it would take place, in words.
        changes: distributions that would be different; none if it is installed already.
        plugins: plugins among them.
        digest: of all of this and of the files that would be installed.
    """

    requirement: str
    environment: str
    changes: tuple[VersionChange, ...]
    plugins: tuple[PlannedPlugin, ...]
    digest: str


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

    def providers(self) -> Sequence[ProviderSpec]:
        """Return the providers of models that enabled plugins give."""

    async def change_plugin(self, plugin_id: str, change: PluginChange) -> str:
        """Enable, disable or reload a plugin, and return what was done, one line for each change.

        Raises:
            NanobotError: it cannot be done; nothing has changed.
        """

    async def sign_in(self, channel: str, prompt: LoginPrompt) -> str:
        """Sign in to the platform of a channel, and start the channel again.

        Returns:
            Who the agent is there.

        Raises:
            ChannelError: the platform does not accept the credentials, or is out of reach.
        """

    async def plan_install(self, requirement: str) -> InstallPlan:
        """Return what installing a plugin would change. It can take minutes.

        Args:
            requirement: name of a distribution, with or without versions (PEP 508); never a path
                or an address.

        Raises:
            InstallError: it cannot be installed.
        """

    async def install(self, plan: InstallPlan) -> Sequence[str]:
        """Install what the owner has agreed to, and reload the gateway. It can take minutes.

        Returns:
            What the owner has to do before a plugin can run, each in a sentence.

        Raises:
            InstallError: it failed, or another plan would be carried out now; everything is as
                before.
        """

    async def configuration(self) -> Configuration:
        """Return what can be configured, with the values of the file, also if it was edited.

        Raises:
            ConfigUnreadable: the file cannot be read, or was changed meanwhile.
        """

    async def configure(self, changes: Mapping[str, JsonValue], revision: str) -> str:
        """Change values in the configuration file, comments kept, and apply them.

        Args:
            changes: key path to value; ``None`` removes the value from the file. If there are
                none, the file is applied as it is.
            revision: of the configuration that the changes were made for.

        Returns:
            What was applied, one line for each change.

        Raises:
            ConfigInvalid: values do not fit; the error lists every problem, nothing has changed.
            ConfigUnreadable: the file has another revision, or cannot be read or written.
        """

    async def log(self, lines: int) -> Sequence[str]:
        """Return the last lines of the log, secrets replaced; none if the log has no file."""
