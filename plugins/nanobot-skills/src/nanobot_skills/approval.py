"""Which skills of the workspace the owner has approved, by their content."""

from __future__ import annotations

import json
from pathlib import Path

from nanobot_core import Folder

FILE_NAME = "approved.json"
_MAX_BYTES = 1_000_000


def load_approvals(data_dir: Path) -> tuple[dict[str, str], str]:
    """Return folder to digest of the approved skills, and what is wrong with the record. Blocks.

    A damaged record approves nothing.
    """
    try:
        data = Folder(data_dir).read(FILE_NAME, _MAX_BYTES)
        found = json.loads(data)
        return {str(key): str(value) for key, value in found["approved"].items()}, ""
    except FileNotFoundError:
        return {}, ""
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        file = data_dir / FILE_NAME
        return {}, f"{file} is damaged ({type(error).__name__}); approve the skills again"


def approve_skill(data_dir: Path, folder: str, digest: str) -> None:
    """Record that the owner has approved this content of a skill. Blocks."""
    approved = {**load_approvals(data_dir)[0], folder: digest}
    text = json.dumps({"schema_version": 1, "approved": approved}, indent=2)
    Folder(data_dir).replace(FILE_NAME, text.encode(), mode=0o600)
