"""Installs, upgrades and removes plugins in the environment of the running interpreter.

Only the command line uses this package: a chat or a model can never install anything.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

LOCK_FILE: Final = "nanobot.lock"
"""Beside the configuration."""
JOURNAL: Final = Path("installing", "journal.json")
"""In nanobot's folder, while a change is in progress or after it was interrupted."""
