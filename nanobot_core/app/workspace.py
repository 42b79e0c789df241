"""The agent's workspace as a start needs it."""

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
"""Folders of the agent's own records. They exist before the first command runs, because a sandbox
can protect a folder that is there, and not a name that a command may take."""


def prepare_workspace(workspace: Folder) -> None:
    """Make the workspace and the folders of `RECORDS`. Blocks.

    Something else under one of these names, such as a link that leads out of the workspace, is
    moved aside and reported; nothing is deleted.
    """
    try:
        make_folder(workspace.path)
    except OSError as error:
        logger.warning("the workspace {} cannot be made: {}", workspace.path, error)
        return
    for name in RECORDS:
        try:
            workspace.make(name)
        except OSError as error:
            _replace(workspace, name, error)


def sync_templates(workspace: Folder) -> list[str]:
    """Prepare the workspace and copy the templates that it lacks; return their names. Blocks."""
    prepare_workspace(workspace)
    try:
        found = {entry.name for entry in workspace.scan()}
        missing = [path for path in sorted(TEMPLATES.glob("*.md")) if path.name not in found]
        for path in missing:
            workspace.replace(path.name, path.read_bytes(), mode=0o600)
    except OSError as error:
        logger.warning("templates cannot be copied to {}: {}", workspace.path, error)
        return []
    return [path.name for path in missing]


def _replace(workspace: Folder, name: str, error: OSError) -> None:
    taken = {entry.name for entry in workspace.scan()}
    if name not in taken:
        logger.warning("{} cannot be made in {}: {}", name, workspace.path, error)
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
        "{} in {} was not a folder and is now called {}; look at it before you remove it",
        name,
        workspace.path,
        aside,
    )
