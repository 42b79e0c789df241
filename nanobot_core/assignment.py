"""Assignment: work for the agent that no message of a person starts at that moment.

A job that is due, a task that the agent delegates, the result of such a task: each is done for the
person who asked for it, with that person's rights.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import field
from fnmatch import fnmatchcase
from typing import Literal, TypeAlias

from nanobot_core.record import dataclass
from nanobot_core.text import Repaired, as_label

AssignmentSource: TypeAlias = Literal["cron", "heartbeat", "subagent", "service"]
"""``service``: anything else that a plugin has done, such as the handling of a mail."""
Authority: TypeAlias = Literal["machine", "owner", "guest"]
"""``machine``: at the terminal or in a program of this machine, whose user is the owner."""
Delivery: TypeAlias = Literal["always", "when_notable", "never"]
"""``when_notable``: the model decides whether the answer is worth a message."""
MAX_LABEL_CHARS = 100


@dataclass(frozen=True, slots=True)
class ToolRule:
    """Which tools may be used; patterns such as ``mcp_*``. It can only take tools away.

    Attributes:
        allow: patterns of the tools that may be used.
        deny: patterns of the tools among them that may not.
    """

    allow: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()

    def admits(self, names: Iterable[str], more_names: Iterable[str] = ()) -> bool:
        """Whether the rule admits a tool.

        Args:
            names: of the tool; the rule must allow one, and deny none.
            more_names: by which it is denied too, but not allowed.
        """
        names = tuple(names)
        return _match_any(names, self.allow) and not _match_any((*names, *more_names), self.deny)


@dataclass(frozen=True, slots=True, kw_only=True)
class Requester(Repaired):
    """Who asked for work, and where, at the moment when they asked.

    Attributes:
        channel: channel of the chat in which they asked.
        chat_id: that chat, which gets the answers.
        sender_id: who asked, as in `InboundMessage.sender_id`.
        session_key: session in which they asked.
        authority: the rights that they had.
        is_group: the chat has more people than the sender.
        tools: what limited the tools when they asked; work for them is limited by it too.
    """

    channel: str = "cli"
    chat_id: str = "direct"
    sender_id: str = "user"
    session_key: str = "cli:direct"
    authority: Authority = "guest"
    is_group: bool = False
    tools: tuple[ToolRule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment(Repaired):
    """Work for the agent, and its limits.

    It has at most the rights that the requester had when they asked, and at most those that they
    have when it is done: what a guest asked for is not done once they are no longer admitted.

    Attributes:
        plugin: id of the plugin that gives it.
        id: names it within the plugin; giving it again under the same id has no effect.
        source: what the turn comes from.
        requester: who asked for it.
        title: a few words for people.
        session_key: session in which it is done; empty means that of the requester.
        parent: session whose ``/stop`` ends it and whose budget pays for it, or ``None``.
        instructions: system prompt instead of the agent's own, its files and its memory; ``None``
            leaves them.
        tools: rules that a tool must satisfy besides those of the requester.
        model: name of the model or preset, or ``None`` for that of the session.
        max_iterations: model calls before it is ended with a summary, or ``None`` for the
            configured number.
        delivery: whether the requester's chat gets the answer. Unless it is ``always``, tools
            cannot send messages either.
    """

    plugin: str
    id: str
    source: AssignmentSource
    requester: Requester
    title: str = ""
    session_key: str = ""
    parent: str | None = None
    instructions: str | None = None
    tools: tuple[ToolRule, ...] = field(default=())
    model: str | None = None
    max_iterations: int | None = None
    delivery: Delivery = "always"

    @property
    def label(self) -> str:
        """The title as people may see it, or the source."""
        return as_label(self.title, MAX_LABEL_CHARS) or self.source

    @property
    def is_plain(self) -> bool:
        """Whether it is done as a message of its requester would be, without other limits."""
        own = (self.session_key, self.instructions, self.model, self.max_iterations)
        rules = (*self.requester.tools, *self.tools)
        return self.delivery == "always" and not rules and not any(own)

    def admits(self, names: Iterable[str], more_names: Iterable[str] = ()) -> bool:
        """Whether every rule admits a tool; see `ToolRule.admits`."""
        names, more_names = tuple(names), tuple(more_names)
        rules = (*self.requester.tools, *self.tools)
        return all(rule.admits(names, more_names) for rule in rules)


def _match_any(names: Iterable[str], globs: Iterable[str]) -> bool:
    return any(fnmatchcase(name, glob) for name in names for glob in globs)
