"""``nanobot.lock``: which plugins, with what they depend on, the owner has approved.

It has names, versions and digests, and no addresses. A digest covers the hashes of all files of a
distribution, so that it is the same for a wheel and for what is installed from it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import Distribution
from pathlib import Path
from typing import ClassVar, Final, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from nanobot_core._version import __version__
from nanobot_core.disk import replace_file
from nanobot_core.errors import InstallError
from nanobot_core.install import LOCK_FILE
from nanobot_core.install.candidate import Candidate, digest_of, installed_hashes
from nanobot_core.install.plan import installed_distributions, needed_by
from nanobot_core.plugins.index import ENTRY_POINT_GROUP
from nanobot_core.plugins.metadata import CORE

_MAX_NAMED: Final = 4


class LockedDistribution(BaseModel):
    """One distribution.

    Attributes:
        version: its version.
        digest: digest of its files; empty for a working copy, whose files change.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    version: str
    digest: str = ""


class Lock(BaseModel):
    """The content of the file.

    Attributes:
        core: version of nanobot-core.
        distributions: the plugins' distributions and all that they depend on, by name.
    """

    model_config: ClassVar[ConfigDict] = ConfigDict(frozen=True, extra="forbid")

    schema_version: Literal[1] = 1
    core: str
    distributions: dict[str, LockedDistribution]


def lock_path(config: Path) -> Path:
    """Return the path of the lock, beside the configuration."""
    return config.with_name(LOCK_FILE)


def installed_lock() -> Lock:
    """Return a lock of what is installed now. Blocks."""
    installed = installed_distributions()
    plugins = [name for name, each in installed.items() if _has_plugin(each)]
    names = needed_by(installed, plugins) - {CORE}
    return Lock(
        core=__version__,
        distributions={name: lock_installed(installed[name]) for name in sorted(names)},
    )


def read_lock(file: Path) -> Lock | None:
    """Return the lock, or ``None`` if no lock was written.

    Raises:
        InstallError: it cannot be read, or does not have the format.
    """
    try:
        return Lock.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValidationError) as error:
        reason = "it cannot be read, or has another format"
        remedy = "restore it, or write it again with nanobot plugins lock"
        raise InstallError(str(file), reason, remedy) from error


def write_lock(file: Path, lock: Lock) -> None:
    """Replace the lock.

    Raises:
        OSError: it cannot be written.
    """
    replace_file(file, f"{lock.model_dump_json(indent=1)}\n")


def describe_changes(file: Path) -> str:
    """Return in one line what differs from the lock; empty if nothing does, or without a lock."""
    try:
        lock = read_lock(file)
    except InstallError as error:
        return str(error)
    if lock is None:
        return ""
    found = differences(lock, installed_lock())
    if not found:
        return ""
    more = f" and {len(found) - _MAX_NAMED} more" if len(found) > _MAX_NAMED else ""
    named = ", ".join(found[:_MAX_NAMED])
    remedy = (
        "run nanobot plugins lock to approve it, or nanobot plugins sync --locked to restore it"
    )
    return f"changed since {file.name}: {named}{more}; {remedy}"


def differences(lock: Lock, now: Lock) -> list[str]:
    """Return how an environment differs from its lock, each in a few words."""
    found = []
    if lock.core != now.core:
        found.append(f"{CORE} {lock.core} is now {now.core}")
    for name in sorted({*lock.distributions, *now.distributions}):
        old, new = lock.distributions.get(name), now.distributions.get(name)
        if old is None and new is not None:
            found.append(f"{name} {new.version} is new")
        elif old is not None and new is None:
            found.append(f"{name} {old.version} is missing")
        elif old is not None and new is not None and old != new:
            is_rebuilt = old.version == new.version
            found.append(
                f"{name} {old.version} has other files"
                if is_rebuilt
                else f"{name} {old.version} is now {new.version}"
            )
    return found


def to_restore(lock: Lock, now: Lock) -> list[str]:
    """Return the names whose locked version is not installed.

    Raises:
        InstallError: the lock is that of another nanobot-core.
    """
    if lock.core != now.core:
        reason = f"it is for {CORE} {lock.core}, and {now.core} is installed"
        raise InstallError(LOCK_FILE, reason, f"install {CORE}=={lock.core} first, or lock again")
    return [
        name for name, each in lock.distributions.items() if now.distributions.get(name) != each
    ]


def refuse_unlocked(lock: Lock, candidates: Sequence[Candidate]) -> None:
    """Refuse what the lock does not have.

    Raises:
        InstallError: a distribution is not in the lock, or has other files.
    """
    for candidate in candidates:
        locked = lock.distributions.get(candidate.name)
        if locked is None or locked.version != candidate.version:
            reason = f"{LOCK_FILE} does not have it"
        elif locked.digest and locked.digest != candidate.digest:
            reason = f"its files are not those in {LOCK_FILE}"
        else:
            continue
        remedy = "do not install it, unless you know why it changed; nanobot plugins lock approves"
        raise InstallError(candidate.label, reason, remedy)


def lock_installed(distribution: Distribution) -> LockedDistribution:
    """Return the entry of an installed distribution."""
    is_editable = '"editable": true' in (distribution.read_text("direct_url.json") or "")
    digest = "" if is_editable else digest_of(installed_hashes(distribution))
    return LockedDistribution(version=distribution.version, digest=digest)


def _has_plugin(distribution: Distribution) -> bool:
    try:
        return any(entry.group == ENTRY_POINT_GROUP for entry in distribution.entry_points)
    except ValueError:  # its entry_points.txt is damaged
        return False
