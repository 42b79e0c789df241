"""What a server writes to its standard error, kept in a file of bounded size."""

from __future__ import annotations

import os
import threading
from pathlib import Path


class ServerLog:
    """Two files, the present one and the one before it, each of at most `max_bytes`.

    Args:
        path: the present file; the former one has ``.1`` behind its name.
        max_bytes: size at which a new file is begun.
    """

    def __init__(self, path: Path, max_bytes: int) -> None:
        self.path = path
        self._max_bytes = max_bytes
        # Two connections of one server follow each other closely, each with a thread that writes.
        self._writing = threading.Lock()

    def write(self, data: bytes) -> None:
        """Append `data`. Blocks; a disk that takes nothing costs the text and nothing else."""
        with self._writing:
            try:
                self._append(data[-self._max_bytes :])
            except OSError:
                return

    def _append(self, data: bytes) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        size = self.path.stat().st_size if self.path.exists() else 0
        if size and size + len(data) > self._max_bytes:
            self.path.replace(self.path.with_name(f"{self.path.name}.1"))
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "ab") as file:
            file.write(data)
