"""The move of a home of nanobot-ai: what it will do, and doing it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from nanobot_core.app.checks import find_problems, section_models
from nanobot_core.app.workspace import sync_templates
from nanobot_core.channels.pairing import PairingStore
from nanobot_core.config.environment import CONFIG_NAMES
from nanobot_core.config.tree import fold
from nanobot_core.disk import replace_file
from nanobot_core.folder import Folder
from nanobot_core.moving.original import ASIDE, Finding, OriginalHome, Part
from nanobot_core.moving.place import MovingError, former_name, is_blank, new_home
from nanobot_core.moving.settings import Converted, admitted, convert, only_person
from nanobot_core.moving.tree import Extent
from nanobot_core.plugins.published import Published
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.clock import Clock
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.plugins.catalogue import Catalogue

REPORT: Final = "moved-in.json"
"""In the new home: what was moved, and what was not."""
_UNKNOWN: Final = "this release does not know it"


@dataclass(frozen=True, slots=True)
class Move:
    """What a move will do.

    Attributes:
        original: the home of nanobot-ai.
        home: where the new home will be.
        former: where the home that is there now will be; ``None`` if there is none.
        converted: the configuration.
        parts: what is copied, with its extent.
        findings: what is not moved, or in part.
        owners: sender ids that may control the agent.
        approved: senders whom the owner has approved, by channel.
        packages: distributions that read what is moved and are not installed.
    """

    original: OriginalHome
    home: Path
    former: Path | None
    converted: Converted = field(repr=False)
    parts: tuple[tuple[Part, Extent], ...]
    findings: tuple[Finding, ...]
    owners: tuple[str, ...]
    approved: Mapping[str, Sequence[str]]
    packages: tuple[str, ...]

    @property
    def size(self) -> int:
        """Bytes to copy."""
        return sum(extent.size for _, extent in self.parts)


def plan_move(
    original: OriginalHome, home: Path, *, owners: Sequence[str], catalogue: Catalogue
) -> Move:
    """Return what a move of `original` to `home` will do. Nothing is written. Blocks.

    Args:
        original: the home of nanobot-ai.
        home: nanobot's folder.
        owners: sender ids that may control the agent. Without one it is the only person whom the
            channels admit, if there is only one.
        catalogue: the installed plugins.
    """
    selections = catalogue.selections.values()
    enabled = [selection.plugin.id for selection in selections if selection.enabled]
    findings: list[Finding] = []
    source = None if original.config_problem else original.config
    if original.config_problem:
        remedy = "correct it and run this command again, or begin with an empty configuration"
        kept = f"{ASIDE}/config.json"
        findings.append(Finding("config.json", original.config_problem, remedy, kept))
    elif original.config is None:
        findings.append(Finding("config.json", "there is no such file"))
    check = partial(find_problems, catalogue=catalogue)
    converted = convert(source, home, owners, enabled, check)
    people = admitted(converted.loaded)
    if not owners and (person := only_person(people)):
        owners = [person]
        converted = convert(source, home, owners, enabled, check)
    findings += _of_settings(converted, people, owners)
    findings += [
        Finding(problem.path, problem.expected, problem.remedy) for problem in converted.problems
    ]
    findings += original.findings()
    try:
        approved = original.approved()
    except ValueError as error:
        approved = {}
        findings.append(Finding("pairing.json", f"it cannot be read: {error}", "approve again"))
    parts = [(part, part.measure()) for part in original.parts()]
    for part in original.asides():
        extent = part.measure()
        if extent.files or extent.left_out:
            parts.append((part, extent))
            findings.append(Finding(str(part.at), _UNKNOWN, kept=str(part.target)))
    for part, extent in parts:
        findings += [
            Finding(_shown(part.root / each.path, original.path), each.reason)
            for each in extent.left_out
        ]
    former = None if is_blank(home) else former_name(home)
    return Move(
        *(original, home, former, converted, tuple(parts), tuple(findings)),
        *(tuple(owners), approved, _missing(converted.loaded, parts, catalogue)),
    )


def move(plan: Move, clock: Clock, *, replace: bool) -> list[Finding]:
    """Carry out `plan`; return what could not be copied although it was there before. Blocks.

    The original is only read. The new home gets its place in one step at the end.

    Args:
        plan: what to do.
        clock: source of time.
        replace: whether a home in use may be replaced.

    Raises:
        MovingError: the home may not be replaced, or there is no room; nothing has changed.
        OSError: the new home cannot be written; nothing has changed.
    """
    _require_apart(plan)
    failed: list[Finding] = []
    with new_home(plan.home, replace=replace) as staging:
        free = shutil.disk_usage(staging).free
        if free < plan.size:
            msg = (
                f"'{plan.home.parent}' has room for {free // 1_000_000:,} MB, and "
                f"{plan.size // 1_000_000:,} MB are needed; make room"
            )
            raise MovingError(msg)
        replace_file(staging / CONFIG_NAMES[0], plan.converted.text)
        expected = {finding.where for finding in plan.findings}
        for part, _ in plan.parts:
            for each in part.copy(staging):
                finding = Finding(_shown(part.root / each.path, plan.original.path), each.reason)
                failed += [finding] if finding.where not in expected else []
        if plan.original.config_problem and plan.original.config is not None:
            (staging / ASIDE).mkdir(mode=0o700, exist_ok=True)
            shutil.copyfile(plan.original.config, staging / ASIDE / "config.json")
        sync_templates(Folder(staging / "workspace"))
        _write_people(plan, staging, clock)
        now = clock.now().isoformat(timespec="seconds")
        record = {"moved_at": now, **report(plan), "failed": [asdict(each) for each in failed]}
        replace_file(staging / REPORT, json.dumps(record, indent=2) + "\n")
    return failed


def moved_from(home: Path) -> tuple[Path, str] | None:
    """Return the home of nanobot-ai that was moved to `home`, and when; ``None`` if none was."""
    try:
        record = json.loads((home / REPORT).read_text("utf-8"))
        return Path(str(record["from"])), str(record["moved_at"])
    except (OSError, ValueError, TypeError, KeyError, RecursionError):
        return None


def report(plan: Move) -> dict[str, object]:
    """Return `plan` as plain data without secrets, for programs."""
    findings = [asdict(each) for each in plan.findings]
    return {
        "from": str(plan.original.path),
        "home": str(plan.home),
        "former_home_becomes": str(plan.former) if plan.former else None,
        "owner": list(plan.owners),
        "parts": [
            {
                "what": part.what,
                "from": _text(part.source),
                "to": str(part.target),
                "files": extent.files,
                "bytes": extent.size,
            }
            for part, extent in plan.parts
        ],
        "findings": findings,
        "packages": list(plan.packages),
        "unused_sections": list(plan.converted.unused),
    }


def _missing(
    loaded: LoadedConfig, parts: Sequence[tuple[Part, Extent]], catalogue: Catalogue
) -> tuple[str, ...]:
    """Return the distributions that read what is moved and are not installed."""
    installed = {
        fold(path)
        for selection in catalogue.selections.values()
        if selection.plugin.manifest is not None
        for path in section_models(selection.plugin.manifest)
    }
    used = {part.section for part, extent in parts if extent.files}
    found = set()
    for section, package in Published.load(loaded.home / "cache").sections.items():
        value = loaded.value_at(section)
        is_set = isinstance(value, dict) and bool(value) and value.get("enabled") is not False
        if (is_set or section in used) and fold(section) not in installed:
            found.add(package)
    return tuple(sorted(found))


def _of_settings(
    converted: Converted, people: Mapping[str, Sequence[str]], owners: Sequence[str]
) -> Iterator[Finding]:
    for problem in converted.without_counterpart:
        yield Finding(problem.path, problem.expected, problem.remedy)
    for channel, ids in people.items():
        if not ids:
            yield Finding(
                f"channels.{channel}.allow_from",
                "it admits nobody; nanobot-ai before 0.1.5 admitted everyone",
                "people who write get a code, see nanobot pairing",
            )
    if people and not owners:
        yield Finding(
            "owner",
            "nanobot-ai has none, and the channels admit several people or none",
            "repeat the command with --owner CHANNEL:ID, or set the key owner",
        )


def _require_apart(plan: Move) -> None:
    """Refuse a home inside the original, and the reverse; they may be the same folder."""
    inner, outer = plan.home.resolve(), plan.original.path
    if inner != outer and (inner.is_relative_to(outer) or outer.is_relative_to(inner)):
        msg = f"'{inner}' and '{outer}' contain each other; name another folder with NANOBOT_HOME"
        raise MovingError(msg)


def _write_people(plan: Move, staging: Path, clock: Clock) -> None:
    """Write approved senders, and the private chat of the owner if a session tells it."""
    gateway = staging / "gateway"
    gateway.mkdir(mode=0o700, exist_ok=True)
    pairing = PairingStore(gateway / "pairing.json", clock)
    for channel, ids in plan.approved.items():
        for sender_id in ids:
            pairing.admit(channel, sender_id)
    if len(plan.owners) == 1:
        channel, _, chat_id = plan.owners[0].partition(":")
        if chat_id and f"{channel}:{chat_id}" in _session_keys(staging):
            replace_file(gateway / "owner.json", json.dumps([channel, chat_id]))


def _session_keys(home: Path) -> set[str]:
    from nanobot_core.sessions.folder import SessionFolder

    folders = [home / "workspace" / "sessions", home / "sessions"]
    folders += [path for path in (home / "sessions").glob("*") if path.is_dir()]
    return {item.key for folder in folders for item in SessionFolder(folder).summaries()}


def _shown(path: Path, home: Path) -> str:
    return _text(path.relative_to(home) if path.is_relative_to(home) else path)


def _text(path: Path | object) -> str:
    """Return a path as text that can be written anywhere."""
    return os.fsencode(str(path)).decode("utf-8", "replace")
