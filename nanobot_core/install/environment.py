"""Who owns the running interpreter, and what may install into its environment."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import sysconfig
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Final, Literal, TypeAlias

from nanobot_core.config.environment import environment
from nanobot_core.errors import InstallError
from nanobot_core.record import dataclass

Owner: TypeAlias = Literal["venv", "uv", "uv tool", "pipx"]
MARKER: Final = "EXTERNALLY-MANAGED"
"""File beside the standard library of a Python that its operating system manages (PEP 668)."""
_LABELS: Final[dict[Owner, str]] = {
    "venv": "virtual environment",
    "uv": "virtual environment of uv",
    "uv tool": "environment of uv tool",
    "pipx": "environment of pipx",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Interpreter:
    """What is known of a Python.

    Attributes:
        python: its program.
        prefix: folder of its environment.
        base_prefix: folder of the Python that a virtual environment was made from.
        site: folder where distributions are installed.
        scripts: folder of their programs.
        stdlib: folder of its standard library.
        has_pip: pip can be imported.
        uv: program of uv, or ``None``.
    """

    python: str
    prefix: Path
    base_prefix: Path
    site: Path
    scripts: Path
    stdlib: Path
    has_pip: bool
    uv: str | None

    @classmethod
    def running(cls) -> Interpreter:
        """Return the Python that runs this process."""
        return cls(
            python=sys.executable,
            prefix=Path(sys.prefix),
            base_prefix=Path(sys.base_prefix),
            site=Path(sysconfig.get_path("purelib")),
            scripts=Path(sysconfig.get_path("scripts")),
            stdlib=Path(sysconfig.get_path("stdlib")),
            has_pip=find_spec("pip") is not None,
            uv=shutil.which("uv", path=environment(["PATH"]).get("PATH")),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """An environment that plugins can be installed into.

    Attributes:
        interpreter: its Python.
        owner: what made it.
        uses_uv: uv installs into it; otherwise its own pip does.
    """

    interpreter: Interpreter
    owner: Owner
    uses_uv: bool

    @property
    def label(self) -> str:
        """What it is and which program installs, in words."""
        program = "uv" if self.uses_uv else "pip"
        return f"{_LABELS[self.owner]} {self.interpreter.prefix}, with {program}"

    @property
    def hint(self) -> str:
        """What its owner undoes, and how to restore it; or an empty string."""
        if self.owner == "uv tool":
            again = (
                "uv tool upgrade and uv tool install remove what they did not install themselves"
            )
        elif self.owner == "pipx":
            again = "pipx reinstall removes what pipx did not install itself"
        else:
            return ""
        return f"{again}; nanobot plugins sync installs it again"


def find_environment(interpreter: Interpreter, *arguments: str) -> Environment:
    """Return the environment of `interpreter`.

    Args:
        interpreter: the running Python.
        arguments: the command of pip for the same purpose, for the error message.

    Raises:
        InstallError: nothing may be installed there; the remedy is the command to use instead.
    """
    command = _command(interpreter, arguments)
    image = f"in an image, add to its Dockerfile: RUN {command}"
    if interpreter.prefix == interpreter.base_prefix:
        own = "elsewhere, install nanobot in a virtual environment (python3 -m venv FOLDER)"
        reason = "it is a system-wide Python, not a virtual environment"
        if (interpreter.stdlib / MARKER).exists():
            reason = "the operating system manages this Python (PEP 668)"
        raise _refusal(interpreter, reason, f"{image}; {own}")
    if not os.access(interpreter.site, os.W_OK):
        reason = f"{interpreter.site} is read-only for this account"
        other = f"if another account owns it, run as that account: {command}"
        raise _refusal(interpreter, reason, f"{image}; {other}")
    if not interpreter.has_pip and not interpreter.uv:
        reason = "it has no pip, and uv is not on PATH"
        ways = f"install uv, or run {shlex.quote(interpreter.python)} -m ensurepip"
        raise _refusal(interpreter, reason, ways)
    return describe_environment(interpreter)


def describe_environment(interpreter: Interpreter) -> Environment:
    """Return the environment of `interpreter`, whether or not it can be changed."""
    owner = _owner(interpreter.prefix)
    uses_uv = owner in {"uv", "uv tool"} or not interpreter.has_pip
    return Environment(
        interpreter=interpreter, owner=owner, uses_uv=uses_uv and interpreter.uv is not None
    )


def _command(interpreter: Interpreter, arguments: Sequence[str]) -> str:
    """Return the command of pip, or that of uv in an environment without pip."""
    if interpreter.has_pip:
        return shlex.join([interpreter.python, "-m", "pip", *arguments])
    own = [each for each in arguments if each != "--yes"]  # uv never asks
    return shlex.join(["uv", "pip", own[0], "--python", interpreter.python, *own[1:]])


def _refusal(interpreter: Interpreter, reason: str, remedy: str) -> InstallError:
    return InstallError(f"cannot install into {interpreter.prefix}", reason, remedy)


def _owner(prefix: Path) -> Owner:
    if (prefix / "uv-receipt.toml").exists():
        return "uv tool"
    if (prefix / "pipx_metadata.json").exists():
        return "pipx"
    try:
        lines = (prefix / "pyvenv.cfg").read_text("utf-8", "replace").splitlines()
    except OSError:
        return "venv"
    return "uv" if any(line.partition("=")[0].strip() == "uv" for line in lines) else "venv"
