"""Isolation: a tool plugin in a process and a Python environment of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from pathlib import Path
from typing import TypeAlias

from nanobot_core.contracts.tool import DeclaredTool
from nanobot_core.messages import JsonObject
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatedPlugin:
    """A plugin that runs in another process, and everything needed to run it.

    Attributes:
        id: the plugin's id.
        version: version of its distribution in its environment.
        python: interpreter of that environment; nanobot-core is installed there as well.
        variables: the whole environment of the process.
        setup: input of `isolated_agent` in that process. It contains secrets: do not pass it as
            arguments or environment, which other processes of the same user can read.
        tools: its tools.
        timeout_s: seconds for a call of a tool without a limit of its own.
    """

    id: str
    version: str
    python: Path
    variables: Mapping[str, str]
    setup: JsonObject = field(repr=False)
    tools: tuple[DeclaredTool, ...]
    timeout_s: float


StandInFactory: TypeAlias = Callable[[IsolatedPlugin], object]


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolatorSpec:
    """A way to run plugins in processes of their own.

    Attributes:
        name: unique name.
        factory: ``package.module:name`` of a `StandInFactory`. What it returns takes the plugin's
            place in this process: an object with hook implementations, such as
            ``contribute_tools``, that is activated under the plugin's id and gets its context.
    """

    name: str
    factory: str
