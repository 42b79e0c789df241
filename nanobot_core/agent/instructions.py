"""The beginning of the system prompt: who the agent is, and the files of its workspace."""

from __future__ import annotations

import asyncio
import os
import platform
import sys
from pathlib import Path

from nanobot_core.folder import Folder
from nanobot_core.prompts import CORE, fill_prompt, read_prompt
from nanobot_core.text import truncate_middle

BOOTSTRAP_FILES = ("AGENTS.md", "SOUL.md", "IDENTITY.md", "USER.md", "TOOLS.md")
OWNERS_FILES = frozenset({"USER.md"})
"""Files about the owner, which guests must not see."""
MAX_BOOTSTRAP_CHARS = 40_000
MAX_BOOTSTRAP_BYTES = 1_000_000
"""Read of one file at most; above `MAX_BOOTSTRAP_CHARS` its middle is left out."""
BOOTSTRAP_LIMIT_S = 5.0
"""Seconds for reading the files; a folder may be on a disk that hangs."""

TERMINAL_HINT = (
    "You are answering in a terminal that renders Markdown; prefer short paragraphs and lists."
)
GUESTS_WORKSPACE = "each guest has a folder, which is named with their message"
"""Without the folder itself, guests of a chat share the beginning of requests."""


class Instructions:
    """The prompt texts of the core, and the files in the workspace that instruct the agent.

    Blocks while it is created, to read the prompt texts. The files are read again when they
    change; a model may have written them, so links are not followed.

    Attributes:
        workspace: the agent's folder.

    Args:
        workspace: see above.
        replacements: folder of the owner's prompt texts, which may not exist.
    """

    def __init__(self, workspace: Folder, replacements: Path) -> None:
        self._folder = workspace
        self.workspace: Path = workspace.path
        self._texts = {
            path.stem: read_prompt(CORE, replacements, path.stem)
            for path in sorted(CORE.glob("*.md"))
        }
        self._files: dict[str, tuple[tuple[int, int, int], str]] = {}
        self._found: dict[str, str] = {}
        self._readings = 0
        self._reading = asyncio.Lock()

    def text(self, name: str) -> str:
        """Return a prompt text without placeholders."""
        return self._texts[name]

    async def parts(
        self, channel: str, format_hint: str, workspace: Path, *, is_owner: bool
    ) -> list[str]:
        """Return the first parts of the system prompt.

        Args:
            channel: name of the channel.
            format_hint: how the channel shows text, or an empty string.
            workspace: folder of the turn's tools.
            is_owner: whether the files about the owner are included.
        """
        version = f"{sys.version_info.major}.{sys.version_info.minor}"
        values = {
            "platform": f"{platform.system()} {platform.machine()}, Python {version}",
            "workspace": str(workspace) if workspace == self.workspace else GUESTS_WORKSPACE,
            "format": TERMINAL_HINT if channel == "cli" else format_hint,
        }
        identity = (
            fill_prompt(self._texts["identity"], values),
            self._texts["execution"],
            self._texts["search"],
        )
        left_out = frozenset[str]() if is_owner else OWNERS_FILES
        found = await self._read_files()
        files = [f"## {name}\n\n{text}" for name, text in found.items() if name not in left_out]
        return ["\n\n".join(identity), *files]

    async def _read_files(self) -> dict[str, str]:
        """Return the present bootstrap files; turns that wait for them share one reading."""
        readings = self._readings
        async with self._reading:
            if self._readings == readings:  # otherwise another turn has read them since
                self._readings += 1
                try:
                    async with asyncio.timeout(BOOTSTRAP_LIMIT_S):
                        self._found = await asyncio.to_thread(self._bootstrap)
                except TimeoutError:
                    from loguru import logger

                    logger.warning(
                        "{} does not respond, so its last known content is used",
                        self.workspace,
                    )
            return self._found

    def _bootstrap(self) -> dict[str, str]:
        """Return the bootstrap files that exist, read again only when they have changed."""
        try:
            found = self._folder.stat_all(BOOTSTRAP_FILES)
        except OSError:
            return {}
        return {name: text for name, facts in found.items() if (text := self._read(name, facts))}

    def _read(self, name: str, facts: os.stat_result) -> str:
        """Return the text of a file; empty if it is unreadable."""
        version = (facts.st_ino, facts.st_mtime_ns, facts.st_size)
        former, text = self._files.get(name, ((0, 0, 0), ""))
        if former == version:
            return text
        from loguru import logger

        try:
            data = self._folder.read(name, MAX_BOOTSTRAP_BYTES)
            text = data.decode(errors="replace").strip()
        except OSError as error:
            logger.warning(
                "cannot read {} in {}, so it is left out: {}", name, self.workspace, error
            )
            text = ""
        if len(text) > MAX_BOOTSTRAP_CHARS:
            logger.warning(
                "{} in {} is longer than {:,} characters, so its middle is left out",
                name,
                self.workspace,
                MAX_BOOTSTRAP_CHARS,
            )
            text = truncate_middle(text, MAX_BOOTSTRAP_CHARS)
        self._files[name] = (version, text)
        return text
