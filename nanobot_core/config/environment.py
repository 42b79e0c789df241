"""The environment of the process; no other package reads it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from nanobot_core.config.tree import KeyPath
    from nanobot_core.messages import JsonValue

PREFIX = "NANOBOT_"
_NO_VALUES = frozenset(("NANOBOT_CONFIG", "NANOBOT_HOME", "NANOBOT_PROFILE"))
_TEMPORARY = ("/tmp", "/var/tmp", "/usr/tmp")  # noqa: S108 - where tempfile looks, not a path to use
CONFIG_NAMES = ("config.yaml", "config.yml", "config.json")


def process_environment() -> Mapping[str, str]:
    """Return the environment of this process, live."""
    return os.environ


def environment(
    names: Iterable[str], environ: Mapping[str, str] | None = None
) -> Mapping[str, str]:
    """Return those of the named variables that are set.

    Args:
        names: variables to look up.
        environ: variables; ``None`` means those of the process.
    """
    source = process_environment() if environ is None else environ
    return {name: source[name] for name in names if name in source}


def resolve_home(environ: Mapping[str, str]) -> Path:
    """Return nanobot's folder, absolute: ``NANOBOT_HOME`` or ``~/.nanobot``."""
    return expand_home(environ.get("NANOBOT_HOME") or "~/.nanobot").absolute()


def resolve_config_path(option: Path | None, environ: Mapping[str, str], home: Path) -> Path:
    """Return the path of the configuration file, absolute, whether or not it exists.

    Args:
        option: the file that the command line names; by default ``NANOBOT_CONFIG``.
        environ: variables.
        home: nanobot's folder, searched for ``config.yaml``, ``config.yml`` and ``config.json``.
    """
    named = named_config_path(option, environ)
    if named is not None:
        return named
    candidates = [home / name for name in CONFIG_NAMES]
    return next((path for path in candidates if path.is_file()), candidates[0])


def named_config_path(option: Path | None, environ: Mapping[str, str]) -> Path | None:
    """Return the file that the command line or ``NANOBOT_CONFIG`` names, absolute, or ``None``."""
    named = option or environ.get("NANOBOT_CONFIG")
    return expand_home(named).absolute() if named else None


def provide_temporary_folder(home: Path) -> None:
    """Let temporary files go into `home` if no folder of the system can be written.

    That is so in a container with a read-only root. It applies to child processes, too.
    """
    folders = (*environment(("TMPDIR", "TEMP", "TMP")).values(), *_TEMPORARY)
    if any(os.access(folder, os.W_OK | os.X_OK) for folder in folders):
        return
    from nanobot_core.disk import make_folder  # costs time, and is rarely needed

    folder = home / "cache" / "tmp"
    try:
        make_folder(folder)
    except OSError:
        return  # what needs it reports that
    os.environ["TMPDIR"] = str(folder)


def expand_home(path: str | Path) -> Path:
    """Return `path` with its ``~`` or ``~user`` expanded, as a shell does.

    The name of an unknown user stays unchanged, where `Path.expanduser` raises an error.
    """
    try:
        return Path(path).expanduser()
    except RuntimeError:
        return Path(path)


def environment_values(environ: Mapping[str, str]) -> Iterator[tuple[str, KeyPath, JsonValue]]:
    """Yield (variable, key path, value) for ``NANOBOT_SECTION__KEY``, in order of the names."""
    # Loads YAML, which commands that only need the home do not use.
    from nanobot_core.config.source import parse_value

    for name in sorted(environ):
        steps = tuple(name.removeprefix(PREFIX).lower().split("__"))
        if name.startswith(PREFIX) and name not in _NO_VALUES and all(steps):
            yield name, steps, parse_value(environ[name])
