"""Whether a command may run, judged on the parsed command line.

The guard is a seat belt: it keeps a model from harm done by mistake and says what to do instead.
The wall is the sandbox, to which everything goes that cannot be read here.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nanobot_shell.places import Places
from nanobot_shell.programs import FOLLOWS_LINKS
from nanobot_shell.rules import has_option, refusal_of
from nanobot_shell.syntax import Word
from nanobot_shell.targets import FETCHERS, refusal_of_target
from nanobot_shell.unwrap import Reading, Step, read_command_line

if TYPE_CHECKING:
    from nanobot_core.net import NetworkPolicy
    from nanobot_shell.settings import ExecSettings

MAX_COMMAND_CHARS = 100_000
_OPTION_VALUE = re.compile(r"-{0,2}[\w-]+=(.*)", re.DOTALL)
_MAX_LETTERS = 12
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")


@dataclass(frozen=True, slots=True)
class Guard:
    """Judges command lines; blocking, because links are followed on the disk.

    Attributes:
        settings: the owner's decisions.
        workspace: the agent's working folder, absolute.
        is_restricted: commands are confined to the workspace.
        is_sandboxed: commands run in a sandbox.
        network: which addresses commands may name.
    """

    settings: ExecSettings
    workspace: Path
    is_restricted: bool
    is_sandboxed: bool
    network: NetworkPolicy

    def refusal(self, command: str, working_dir: str | None = None) -> str:
        """Return why `command` must not run and what to do instead; empty when it may.

        Args:
            command: the command line as the shell would get it.
            working_dir: folder it starts in, relative to the workspace; ``None`` is the workspace.
        """
        if len(command) > MAX_COMMAND_CHARS:
            return (
                f"the command has {len(command):,} characters and {MAX_COMMAND_CHARS:,} are "
                "accepted; write a script with write_file and run that"
            )
        if self.is_restricted and (reason := refusal_of_folder(self.workspace, working_dir)):
            return reason
        reading = read_command_line(command)
        folder = self.workspace / (working_dir or "")
        places = Places(self.workspace, folder, reading.steps)
        return (
            self._built_in(reading, places)
            or self._by_pattern(command, reading)
            or (self._restricted(reading, places) if self.is_restricted else "")
            or self._unreadable(reading)
        )

    def _built_in(self, reading: Reading, places: Places) -> str:
        if reading.has_fork_bomb:
            return "a function that starts itself without end is refused; use a loop with a bound"
        return next((why for step in reading.steps if (why := refusal_of(step, places))), "")

    def _by_pattern(self, command: str, reading: Reading) -> str:
        texts = [command, *(_plain_text(step) for step in reading.steps)]
        for pattern in self.settings.deny_patterns:
            if any(re.search(pattern, text, re.IGNORECASE) for text in texts):
                return f"the owner refuses commands matching {pattern!r}; do it another way"
        if not self.settings.allow_patterns:
            return ""
        sources = [step.command.source for step in reading.steps if step.name] or [command]
        for source in sources:
            if not any(re.search(p, source, re.IGNORECASE) for p in self.settings.allow_patterns):
                return (
                    f"{source[:80]!r} matches none of the owner's allow_patterns; "
                    "use an allowed command"
                )
        return ""

    def _restricted(self, reading: Reading, places: Places) -> str:
        if not places.is_certain:
            return "changing to a folder outside the workspace or a computed one is refused"
        for step in reading.steps:
            if reason := refusal_of_target(step, self.network) or self._refusal_of_words(
                step, places
            ):
                return reason
        return ""

    def _refusal_of_words(self, step: Step, places: Places) -> str:
        targets = [redirect.target for redirect in step.command.redirects]
        for target in targets:
            if target.is_literal and not places.is_harmless(target) and not target.text.isdigit():
                return f"{target.text[:80]!r} lies outside the workspace; use a file inside it"
        if reason := _refusal_of_links(step):
            return reason
        for word in (*step.arguments, *step.command.assigned, *targets):
            text = match[1] if (match := _OPTION_VALUE.match(word.text)) else word.text
            if not word.is_literal:
                if self.is_sandboxed and ".." not in text:
                    continue
                return (
                    f"{word.text[:80]!r} is decided only while the command runs, and commands are "
                    "restricted to the workspace; write it out"
                )
            for path in _possible_paths(word.text, step):
                if not places.is_harmless(Word(path, has_glob=word.has_glob)):
                    return (
                        f"{text[:80]!r} lies outside the workspace, and commands are restricted "
                        "to it; use a path inside the workspace"
                    )
        return ""

    def _unreadable(self, reading: Reading) -> str:
        if not reading.unreadable or self.is_sandboxed:
            return ""
        return (
            f"the command is refused because {reading.unreadable}, and there is no sandbox to run "
            "it in; write plain commands, or a script file with write_file and run that"
        )


def refusal_of_folder(workspace: Path, working_dir: str | None) -> str:
    """Return why `working_dir` is no place inside `workspace`, or an empty string.

    A folder that is reached through a symbolic link below the workspace is refused even when it
    leads back inside, because the link may be changed before the command starts.
    """
    root = workspace.resolve()
    folder = Path(working_dir or "")
    lexical = folder if folder.is_absolute() else root / folder
    try:
        resolved = lexical.resolve()
    except (OSError, ValueError, RuntimeError):
        return f"working_dir {working_dir!r} cannot be resolved; name a folder of the workspace"
    if not resolved.is_relative_to(root):
        return f"working_dir {working_dir!r} lies outside the workspace; name a folder inside it"
    inner = lexical.relative_to(workspace) if lexical.is_relative_to(workspace) else None
    inner = lexical.relative_to(root) if inner is None and lexical.is_relative_to(root) else inner
    if ".." in folder.parts or inner is None or root / inner != resolved:
        return f"working_dir {working_dir!r} leads through a link or '..'; name the folder itself"
    return ""


def _refusal_of_links(step: Step) -> str:
    """Return why a program that follows every link is refused, or an empty string."""
    letters, long = FOLLOWS_LINKS.get(step.name, ("", ""))
    # tar takes its letters without a dash too.
    bundle = step.arguments[0].text if step.name == "tar" and step.arguments else ""
    is_bundled = bundle.isalpha() and any(letter in bundle for letter in letters)
    if not long or not (is_bundled or has_option(step, letters, long)):
        return ""
    return (
        f"{step.name} would follow links out of the workspace, and commands are restricted to it; "
        "leave out the option that follows links"
    )


def _possible_paths(text: str, step: Step) -> Iterator[str]:
    """Yield what in a word may be taken for a path: itself, and values behind options."""
    if _URL.match(text) and not text.startswith("file:"):
        return
    candidates = {text, *_OPTION_VALUE.findall(text)}
    if step.name in FETCHERS:
        candidates |= {each.rpartition("@")[2] for each in candidates if "@" in each}
    if re.match(r"-[a-zA-Z]", text):
        # Which letters take a value is not known: -czf../x, -Clink.
        candidates |= {text[start:] for start in range(2, min(len(text), _MAX_LETTERS))}
    for candidate in candidates:
        path = candidate.removeprefix("file:").removeprefix("//")
        path = f"/{path.lstrip('/')}" if candidate.startswith("file:///") else path
        if _looks_like_path(path, step):
            yield path


def _looks_like_path(text: str, step: Step) -> bool:
    """Whether `text` may be taken for a path; switches in Windows style are paths here."""
    if text.startswith("-") and "/" not in text:
        return False
    if step.name in FETCHERS and "/" not in text:
        return False
    if step.name in {"echo", "printf"}:
        return text.startswith(("/", "~")) or ".." in Path(text).parts
    return bool(text) and "\n" not in text


def _plain_text(step: Step) -> str:
    return " ".join((step.name, *(word.text for word in step.arguments)))
