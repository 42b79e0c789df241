"""What the owner decides about shell commands."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, AliasChoices, Field

from nanobot_core import PluginSettings


def _compilable(pattern: str) -> str:
    try:
        re.compile(pattern)
    except re.error as error:
        msg = f"wanted a regular expression, found {pattern!r}: {error}"
        raise ValueError(msg) from error
    return pattern


Pattern = Annotated[str, AfterValidator(_compilable)]


class ExecSettings(PluginSettings):
    """Section ``tools.exec``."""

    timeout_s: int = Field(
        default=60, ge=1, le=600, validation_alias=AliasChoices("timeout_s", "timeoutS", "timeout")
    )
    """Seconds a command may take when the call names no limit."""

    max_output_chars: int = Field(default=10_000, ge=200, le=1_000_000)
    """Characters of output that the model reads; more is cut in the middle."""

    sandbox: Literal["auto", "bwrap", "none"] = "auto"
    """``auto`` uses bubblewrap where it works, ``bwrap`` refuses to run without it."""

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
    """Names of environment variables handed to commands besides HOME, LANG, TERM and PATH."""

    deny_patterns: tuple[Pattern, ...] = ()
    """Regular expressions, case ignored; a command in which one is found is refused."""

    allow_patterns: tuple[Pattern, ...] = ()
    """When not empty, one of these must be found in each simple command, case ignored."""

    channels: tuple[str, ...] = ()
    """Channels in which the tools are offered; empty means all."""

    max_background: int = Field(default=8, ge=0, le=64)
    """Background commands that may run at once, over all chats."""
