"""Where the words of a command line point to, as far as that can be told beforehand."""

from __future__ import annotations

import fnmatch
import glob
import re
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from nanobot_shell.syntax import Word
from nanobot_shell.unwrap import Step

_MEMORY_FILES = ("history.jsonl", ".dream_cursor", ".cursor")
_HARMLESS = frozenset(
    f"/dev/{name}" for name in ("null", "stdin", "stdout", "stderr", "tty", "zero", "urandom")
)


_OWN_FILE = re.compile(r"/dev/fd/\d+$")
_MAX_MATCHES = 10_000


class Places:
    """Resolves words against every folder that the command line may be in when it uses them.

    Touches the file system: symbolic links count with what they point to now.

    Args:
        workspace: the agent's working folder, absolute.
        working_dir: folder in which the command line starts.
        steps: all programs of the line; what they say of changing the folder is considered.
    """

    def __init__(self, workspace: Path, working_dir: Path, steps: Iterable[Step]) -> None:
        self._workspace = workspace.resolve()
        self._folders = {_resolve(working_dir)}
        self.is_certain = True
        self._makes_links = False
        for step in steps:
            self._makes_links |= step.name in {"ln", "link", "mount"}
            if step.name in {"cd", "pushd", "popd"}:
                self._change(step)

    def is_inside(self, word: Word) -> bool:
        """Whether `word` is literal and points into the workspace or at it, links followed."""
        return all(
            path.is_relative_to(self._workspace) for path in self._resolved(word)
        ) and self._is_plain(word)

    def is_harmless(self, word: Word) -> bool:
        """Whether `word` is inside, or one of the devices that hold nothing."""
        if word.has_glob:
            return self._matches_inside(word)
        return word.text in _HARMLESS or bool(_OWN_FILE.match(word.text)) or self.is_inside(word)

    def _matches_inside(self, word: Word) -> bool:
        """Whether all that a pattern stands for now lies inside; ``..`` may not be meant by it."""
        if any(
            part != ".." and fnmatch.fnmatch("..", part) and "." in part
            for part in word.text.split("/")
        ) or not self._is_plain(word):
            return False
        for folder in self._folders:
            found = glob.iglob(  # noqa: PTH207  # as the shell does, links and hidden files included
                word.text, root_dir=folder, include_hidden=True
            )
            names = [word.text, *islice(found, _MAX_MATCHES)]
            if len(names) > _MAX_MATCHES:
                return False
            if not all(_resolve(folder / name).is_relative_to(self._workspace) for name in names):
                return False
        return True

    def may_delete(self, word: Word) -> bool:
        """Whether `word` names something below the workspace that may go with all its contents."""
        if (
            self._makes_links
            or not self._is_plain(word)
            or ".." in Path(word.text).parts
            or "{}" in word.text
        ):
            return False
        target = Word(str(Path(word.text).parent)) if word.has_glob else word
        return not any(character in target.text for character in "*?[") and all(
            self._is_below(path) for path in self._resolved(target)
        )

    def _is_below(self, path: Path) -> bool:
        if path == self._workspace or not path.is_relative_to(self._workspace):
            return False
        memory = self._workspace / "memory"
        return path not in self._folders and not any(
            (memory / name).is_relative_to(path) for name in _MEMORY_FILES
        )

    def _is_plain(self, word: Word) -> bool:
        relative = not word.text.startswith("/")
        return (
            word.is_literal and not word.text.startswith("~") and (self.is_certain or not relative)
        )

    def _resolved(self, word: Word) -> list[Path]:
        return [_resolve(folder / word.text) for folder in self._folders]

    def _change(self, step: Step) -> None:
        operands = [word for word in step.arguments if not word.text.startswith("-")]
        plain = len(operands) == 1 and operands[0].is_literal and not operands[0].has_glob
        if step.name == "popd" or not plain or ".." in Path(operands[0].text).parts:
            self.is_certain = False
            return
        if self.is_inside(operands[0]):
            self._folders.update(self._resolved(operands[0]))
        else:
            self.is_certain = False


def _resolve(path: Path) -> Path:
    """Return `path` with links followed; the root, which is never inside, where that fails."""
    try:
        return path.resolve()
    except (OSError, ValueError, RuntimeError):
        return Path("/")
