"""Creates the agent's workspace and its templates."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import TYPE_CHECKING

from loguru import logger

from nanobot_core.disk import make_folder

if TYPE_CHECKING:
    from nanobot_core.folder import Folder

TEMPLATES = Path(__file__).parent / "templates"
RECORDS = (".nanobot", "memory", "sessions")
"""Folders of the agent's own records. They are created before the first command runs, because a
sandbox protects existing folders only."""


def prepare_workspace(workspace: Folder) -> None:
    """Create the workspace and the folders of `RECORDS`. Blocks.

    Anything else with one of these names, such as a link that leads out of the workspace, is
    renamed and reported; nothing is deleted.
    """
    try:
        make_folder(workspace.path)
    except OSError as error:
        logger.warning("cannot create the workspace {}: {}", workspace.path, error)
        return
    for name in RECORDS:
        try:
            workspace.make(name)
        except OSError as error:
            _replace(workspace, name, error)


def sync_templates(workspace: Folder) -> list[str]:
    """Prepare the workspace and copy missing templates; return their names. Blocks."""
    prepare_workspace(workspace)
    try:
        found = {entry.name for entry in workspace.scan()}
        missing = [path for path in sorted(TEMPLATES.glob("*.md")) if path.name not in found]
        for path in missing:
            workspace.replace(path.name, path.read_bytes(), mode=0o600)
    except OSError as error:
        logger.warning("cannot copy templates to {}: {}", workspace.path, error)
        return []
    return [path.name for path in missing]


def _replace(workspace: Folder, name: str, error: OSError) -> None:
    taken = {entry.name for entry in workspace.scan()}
    if name not in taken:
        logger.warning("cannot create {} in {}: {}", name, workspace.path, error)
        return
    aside = next(
        candidate
        for number in itertools.count(1)
        if (candidate := f"{name}.moved-{number}") not in taken
    )
    try:
        workspace.rename(name, aside)
        workspace.make(name)
    except OSError as second:
        logger.error("{} in {} is not a folder: {}", name, workspace.path, second)
        return
    logger.error(
        "{} in {} was not a folder and was renamed to {}; check it before you delete it",
        name,
        workspace.path,
        aside,
    )
