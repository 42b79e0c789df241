"""Offers of earlier connections on disk, so that the first turn has the tools at once."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import uuid4

from nanobot_mcp.offers import Offer, offer_from_json, offer_to_json
from nanobot_mcp.settings import ServerSettings, fingerprint

_FORMAT = 1
_MAX_BYTES = 20_000_000


class OfferStore:
    """One file for each server. All methods block.

    Args:
        folder: where the files are; made with the first of them.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, name: str, server: ServerSettings) -> tuple[Offer, ...] | None:
        """Return what the server offered last; ``None`` when it is unknown or is another one now.

        A file that cannot be used counts as none: it is written again after the next connection.
        """
        path = self._path(name)
        try:
            if path.stat().st_size > _MAX_BYTES:
                return None
            record = json.loads(path.read_text("utf-8"))
            if not isinstance(record, dict) or record.get("key") != _key(server):
                return None
            return tuple(offer_from_json(item) for item in record["offers"])
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            return None

    def save(self, name: str, server: ServerSettings, offers: Sequence[Offer]) -> None:
        """Keep `offers`, replacing the file in one step.

        Raises:
            OSError: the disk does not take it.
        """
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        record = {"key": _key(server), "offers": [offer_to_json(offer) for offer in offers]}
        fresh = self._folder / f"{uuid4().hex}.tmp"
        try:
            with os.fdopen(
                os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w"
            ) as file:
                json.dump(record, file)
            fresh.replace(self._path(name))
        finally:
            fresh.unlink(missing_ok=True)

    def _path(self, name: str) -> Path:
        return self._folder / f"{hashlib.sha256(name.encode()).hexdigest()[:16]}.json"


def _key(server: ServerSettings) -> str:
    text = json.dumps([_FORMAT, fingerprint(server)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()
