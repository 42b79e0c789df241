"""Where an installed plugin comes from: the digest of its files, and who published it."""

from __future__ import annotations

from pathlib import Path

from nanobot_core.errors import InstallError
from nanobot_core.install import LOCK_FILE
from nanobot_core.install.lock import lock_installed, read_lock
from nanobot_core.install.plan import installed_distributions
from nanobot_core.install.publisher import load_publishers
from nanobot_core.plugins.metadata import normalise
from nanobot_core.record import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a distribution comes from.

    Attributes:
        publisher: who published it, as the index said when it was installed; empty if unknown.
        digest: hash of all its files, as in ``nanobot.lock``; empty for a working copy or a file.
        locked: what the lock says about this digest, in words; empty without a lock or a digest.
    """

    publisher: str = ""
    digest: str = ""
    locked: str = ""


def origin_of(distribution: str, home: Path, lock_file: Path) -> Origin:
    """Return where an installed distribution comes from. Blocks.

    Args:
        distribution: its name.
        home: nanobot's folder.
        lock_file: the path of the lock, which need not exist.
    """
    name = normalise(distribution)
    found = installed_distributions().get(name)
    if found is None:
        return Origin()
    now = lock_installed(found)
    try:
        publisher = load_publishers(home).get(name, "")
        lock = read_lock(lock_file)
    except InstallError as error:
        return Origin(digest=now.digest, locked=str(error))
    if lock is None or not now.digest:
        return Origin(publisher=publisher, digest=now.digest)
    then = lock.distributions.get(name)
    if then is None:
        locked = f"not in {LOCK_FILE}"
    else:
        locked = f"as in {LOCK_FILE}" if then == now else f"{LOCK_FILE} has another"
    return Origin(publisher=publisher, digest=now.digest, locked=locked)
