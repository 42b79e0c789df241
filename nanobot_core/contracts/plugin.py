"""Smaller contributions: settings, commands, checks, policies, and a plugin's own life."""

from __future__ import annotations

from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Literal, Protocol, TypeAlias

from nanobot_core.events import TurnInfo
from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager

    from nanobot_core.contracts.client import AgentClient
    from nanobot_core.contracts.context import PluginContext


@dataclass(frozen=True, slots=True)
class SettingsSection:
    """The place and the model of a plugin's settings.

    Attributes:
        path: key path in the configuration, such as ``tools.exec`` or ``usage``.
        model: ``package.module:Class`` of a pydantic model that forbids unknown keys.
        environment: names of environment variables the plugin reads; ``"*"`` means any, which is
            shown to the owner as a capability.
    """

    path: str
    model: str
    environment: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginFacts:
    """Facts about a plugin that its code does not show.

    Attributes:
        summary: one line for ``nanobot plugins list``; by default the distribution's summary.
        requires: ids of plugins that must be active for this one to work, with the versions that
            fit: ``bakery>=2``. With a question mark, ``bakery>=2?``, the plugin also works without
            the other one, but not with another version.
        after: ids of plugins whose hooks run before those of this one.
        before: ids of plugins whose hooks run after those of this one.
        capabilities: what it reaches, in words for the owner (``runs commands``).
        hosts: network hosts that it talks to.
        reads: hooks of the core whose contributions it uses, such as ``contribute_jobs``; see
            `PluginContext.contributed`.
        tool_names: patterns such as ``mcp_*`` of tools that are known only at run time.
        secret_files: patterns of files in the plugin's data folder that hold credentials, such as
            ``tokens/*``. A backup keeps them apart; list every such file.
        docs: address of its documentation.
    """

    summary: str = ""
    requires: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    before: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    tool_names: tuple[str, ...] = ()
    secret_files: tuple[str, ...] = ()
    docs: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommandCall:
    """A slash command as it was typed: ``/name text``.

    Attributes:
        turn: the turn that it started.
        name: of the command, without the slash.
        text: what follows the name, without spaces around it; may be empty.
        is_owner: the owner typed it.
    """

    turn: TurnInfo
    name: str
    text: str
    is_owner: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SlashCommand:
    """A command that is answered without the model.

    Attributes:
        name: without the slash, ``[a-z0-9-]``.
        summary: one line for ``/help``.
        handler: ``package.module:name`` of an async callable ``(ctx, call)`` that returns
            the reply in Markdown.
        control: answered at once, even while a turn runs.
        owner_only: refused to everyone but the owner.
    """

    name: str
    summary: str
    handler: str
    control: bool = False
    owner_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CliGroup:
    """A group of subcommands of ``nanobot``.

    Attributes:
        name: word after ``nanobot``.
        summary: line in ``nanobot --help``.
        app: ``package.module:name`` of a `typer.Typer` (or of a function, for one command). The
            ``obj`` of its context is a `CommandLine`.
        parent: core group that it extends, such as ``plugins``; empty for the top level.
    """

    name: str
    summary: str
    app: str
    parent: str = ""


class CommandLine(Protocol):
    """The terminal, for the commands of a plugin: the ``obj`` of their `typer.Context`."""

    def __call__(self) -> AbstractAsyncContextManager[PluginContext]:
        """Start the plugin for the command; it stops at the end of the block.

        Raises:
            PluginError: it is disabled or its code fails.
            ConfigError: the configuration cannot be used.
        """

    def client(self) -> AbstractAsyncContextManager[AgentClient]:
        """Open the agent for a program of the owner's: that of the running gateway, or a new one.

        Raises:
            ConfigError: the configuration cannot be used.
            NanobotError: the gateway cannot be used with these options.
        """

    def slash(self, text: str) -> str:
        """Return the reply to a slash command, given with the rights of the owner.

        A running gateway answers it, else a new agent: so only one process writes what a gateway
        works with. If it fails, standard error says why and the process ends with exit code 1.

        Args:
            text: such as ``/cron list --json``.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One finding of ``nanobot doctor``.

    Attributes:
        status: ``error`` makes the command exit with 1.
        message: what was found, in one sentence.
        remedy: what to do; empty if nothing.
    """

    status: Literal["ok", "warning", "error"]
    message: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check for ``nanobot doctor``, bounded to two seconds.

    Attributes:
        name: what is checked, in a few words.
        run: ``package.module:name`` of an async callable ``(ctx)`` that returns a `CheckResult`.
    """

    name: str
    run: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextBlock:
    """A passage that a plugin adds to what the model reads.

    Attributes:
        name: heading of the passage, unique within the plugin.
        text: Markdown.
        placement: ``stable`` is in the system prompt and must change only with its source;
            ``turn`` comes before the user's words.
        position: place among the stable passages, lowest first: 100 memory, 200 the text of skills,
            300 the list of skills, 900 recent history.
        priority: if all passages together exceed their budget, the lowest one is shortened or left
            out first.
        max_tokens: most tokens it may take; longer text is cut in the middle, and that is logged.
    """

    name: str
    text: str
    placement: Literal["stable", "turn"] = "turn"
    position: int = 500
    priority: int = 0
    max_tokens: int = 2_000


@dataclass(frozen=True, slots=True)
class Allow:
    """The call may run."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """The call may run with other arguments, which are validated again."""

    arguments: JsonObject


@dataclass(frozen=True, slots=True)
class Ask:
    """The owner decides.

    Attributes:
        question: one line for the owner; tool and arguments are shown with it.
        subject: what "always" remembers, such as a command with its folder; empty means the
            arguments as they are.
        paths: absolute paths, free of links, that the call may reach when it is approved, besides
            those that need no approval.
    """

    question: str
    subject: str = ""
    paths: tuple[Path, ...] = ()


@dataclass(frozen=True, slots=True)
class Deny:
    """The call must not run; the model reads why."""

    reason: str


Decision: TypeAlias = Allow | Rewrite | Ask | Deny


@dataclass(frozen=True, slots=True)
class Refuse:
    """The message is not admitted.

    Attributes:
        reason: why, for the log.
        reply: sent to the sender, at most once a minute in each chat; empty for no answer.
    """

    reason: str
    reply: str = ""


@dataclass(frozen=True, slots=True)
class Ticket:
    """Answer to ``choose_approval``: whether the asked person allowed the call, and who it was.

    Attributes:
        allowed: whether the call may run.
        by: who answered, such as a sender id or ``terminal``.
        always: the same call of the owner's needs no further approval.
    """

    allowed: bool
    by: str
    always: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """A plugin's report on itself.

    Attributes:
        ok: it works as it should.
        message: its condition in one sentence, for ``nanobot doctor``.
    """

    ok: bool
    message: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsChange:
    """A plugin's section before and after a change, as plain data with secrets in plain text.

    Attributes:
        before: the former section.
        after: the present section.
        path: key path of the section.
    """

    before: JsonObject = field(default_factory=dict)
    after: JsonObject = field(default_factory=dict)
    path: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """The change is in force."""


@dataclass(frozen=True, slots=True)
class NeedsReload:
    """The change is in force after a reload of the plugin."""


StopCause: TypeAlias = Literal["shutdown", "disable", "reload", "quarantine"]
