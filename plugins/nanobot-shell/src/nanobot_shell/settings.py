"""Settings of shell commands."""

from __future__ import annotations

import re
from typing import Annotated, Literal, TypeAlias

from pydantic import AfterValidator, AliasChoices, Field

from nanobot_core import PluginSettings

_REGULAR_EXPRESSION = re.compile(r"^\^|(?<!\$)\$$|\\[bBdDsSwW.]|\.[*+]|\(\?")


def _glob(pattern: str) -> str:
    if _REGULAR_EXPRESSION.search(pattern):
        msg = (
            f"expected a pattern such as 'git push*', in which * matches any text, found the "
            f"regular expression {pattern!r}; it is compared with the whole command"
        )
        raise ValueError(msg)
    return pattern


Pattern = Annotated[str, AfterValidator(_glob)]
SandboxName: TypeAlias = Literal["auto", "bwrap", "landlock", "seatbelt", "none"]


class ExecSettings(PluginSettings):
    """Section ``tools.exec``."""

    timeout_s: int = Field(
        default=60, ge=1, le=600, validation_alias=AliasChoices("timeout_s", "timeoutS", "timeout")
    )
    """Seconds a command may take when the call names no limit."""

    max_output_chars: int = Field(default=10_000, ge=200, le=1_000_000)
    """Characters of output that the model reads; longer output is cut in the middle and kept in a
    file that the result names. ``tools.max_tool_result_chars`` applies too."""

    sandbox: SandboxName = "auto"
    """``auto`` takes the first that works, and asks the owner about each command if none does. A
    named one is required. ``none`` runs commands unconfined and does not ask."""

    sandbox_network: bool = True
    """Whether commands in the sandbox reach the network."""

    memory_mb: int | None = Field(default=None, ge=16)
    """Address space of one process in MiB; unlimited by default, as many runtimes reserve much."""

    max_processes: int | None = Field(default=4096, ge=1)
    """Processes and threads of the user (of the sandbox, where it has a user namespace)."""

    cpu_s: int | None = Field(default=None, ge=1)
    """Seconds of CPU time of one process."""

    path_append: str = ""
    """Folders added behind PATH, separated by colons; readable in the sandbox too."""

    allowed_env_keys: tuple[str, ...] = ()
    """Names of environment variables that commands get in addition to HOME, LANG, TERM and PATH."""

    deny_patterns: tuple[Pattern, ...] = ()
    """Patterns with ``*`` and ``?``, case ignored; a line with a matching command is refused."""

    allow_patterns: tuple[Pattern, ...] = ()
    """When not empty, each command of a line and each file of a redirection must match one."""

    channels: tuple[str, ...] = ()
    """Channels in which the tools are offered; empty means all."""

    max_background: int = Field(default=8, ge=0, le=64)
    """Background commands that may run at once, over all chats."""
