"""The check of nanobot doctor."""

from __future__ import annotations

import asyncio
import sqlite3
from contextlib import closing
from importlib.util import find_spec
from typing import TYPE_CHECKING

from nanobot_core import CheckResult
from nanobot_matrix.settings import MatrixSettings

if TYPE_CHECKING:
    from pathlib import Path

    from nanobot_core import PluginContext


async def check_encryption(ctx: PluginContext) -> CheckResult:
    """Report messages of encrypted rooms that could not be read."""
    settings = ctx.settings(MatrixSettings)
    if not settings.e2ee_enabled or find_spec("vodozemac") is None:
        message = "encrypted rooms are not read"
        if settings.encrypted_only:
            remedy = "run python3 -m pip install 'nanobot-matrix[e2e]', or remove encrypted_only"
            return CheckResult(status="error", message=message, remedy=remedy)
        return CheckResult(status="ok", message=message)
    try:
        waiting, total = await asyncio.to_thread(_numbers, ctx.data_dir)
    except sqlite3.Error as error:
        return CheckResult(status="error", message=f"the keys cannot be read: {error}")
    message = f"messages that could not be read: {total} so far, {waiting} waiting for a key"
    if not waiting:
        return CheckResult(status="ok", message=message)
    remedy = "the log names them and why; 'Encryption' in the README of nanobot-matrix explains it"
    return CheckResult(status="warning", message=message, remedy=remedy)


def _numbers(folder: Path) -> tuple[int, int]:
    """Return how many messages wait for a key, and how many ever could not be read."""
    waiting = total = 0
    for file in folder.glob("keys-*.db"):
        with closing(sqlite3.connect(f"{file.as_uri()}?mode=ro", uri=True, timeout=1)) as database:
            waiting += database.execute("SELECT count(*) FROM unread").fetchone()[0]
            total += database.execute("SELECT total(number) FROM counts").fetchone()[0]
    return waiting, int(total)
