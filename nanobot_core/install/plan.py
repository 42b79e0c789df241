"""What an installation would change, and why it is refused."""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement

from nanobot_core.contracts.operation import PlannedPlugin, VersionChange
from nanobot_core.errors import InstallError
from nanobot_core.install.candidate import Candidate
from nanobot_core.install.installer import Pin
from nanobot_core.install.publisher import UNPUBLISHED, Publisher, change_of_publisher
from nanobot_core.plugins import metadata
from nanobot_core.plugins.index import ENTRY_POINT_GROUP, InstalledPlugin, search_path
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from nanobot_core.install.environment import Environment
    from nanobot_core.plugins.consent import Consents
    from nanobot_core.plugins.published import Published


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """An installation that was resolved, downloaded and checked, and has changed nothing.

    Attributes:
        environment: where it would take place.
        pins: what would be installed.
        candidates: the same, read from the files that would be installed.
        named: names of the distributions that the owner asked for.
        changes: distributions that would be different.
        plugins: plugins among them.
        wheels: names of the local wheels among them, in the order in which they were named.
        replaced: names whose installed build has the same version and must be removed first.
        publishers: who published the distributions with plugins, by name.
    """

    environment: Environment
    pins: tuple[Pin, ...]
    candidates: tuple[Candidate, ...]
    named: tuple[str, ...]
    changes: tuple[VersionChange, ...]
    plugins: tuple[PlannedPlugin, ...]
    wheels: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    publishers: Mapping[str, Publisher] = field(default_factory=dict)

    @property
    def digest(self) -> str:
        """Digest of the files that would be installed, and of what is said about the plugins."""
        known = {
            "python": self.environment.interpreter.python,
            "changes": [asdict(each) for each in self.changes],
            "plugins": [asdict(each) for each in self.plugins],
            "files": {each.name: each.digest for each in self.candidates},
        }
        return hashlib.sha256(json.dumps(known, sort_keys=True).encode()).hexdigest()


def installed_distributions() -> dict[str, Distribution]:
    """Return what is installed now, by normalised name."""
    found: dict[str, Distribution] = {}
    for distribution in distributions(path=search_path()):
        if name := metadata.header(distribution, "Name"):
            found.setdefault(metadata.normalise(name), distribution)
    return found


def pins_of(installed: Mapping[str, Distribution]) -> list[Pin]:
    """Return the installed versions."""
    return [Pin(name=name, version=each.version) for name, each in sorted(installed.items())]


def changes_of(
    candidates: Sequence[Candidate], installed: Mapping[str, Distribution]
) -> tuple[VersionChange, ...]:
    """Return what installing `candidates` changes."""
    return tuple(
        VersionChange(
            name=each.name,
            before=installed[each.name].version if each.name in installed else "",
            after=each.version,
        )
        for each in sorted(candidates, key=lambda each: each.name)
    )


def planned_plugins(
    candidates: Sequence[Candidate],
    named: Collection[str],
    here: Sequence[InstalledPlugin],
    consents: Consents,
    publishers: Mapping[str, Publisher],
    remembered: Mapping[str, str],
) -> Iterator[PlannedPlugin]:
    """Yield the plugins of `candidates` with what they reach.

    Args:
        candidates: what would be installed.
        named: names that the owner asked for.
        here: the plugins that are installed.
        consents: what the owner has agreed to.
        publishers: who published the candidates, by name.
        remembered: who published what is installed, by name.
    """
    known = {plugin.id: plugin for plugin in here}
    for candidate in candidates:
        publisher = publishers.get(candidate.name, UNPUBLISHED)
        change = change_of_publisher(remembered.get(candidate.name, ""), publisher)
        for plugin in candidate.plugins:
            bundled = plugin.id in known and known[plugin.id].bundled
            after = InstalledPlugin(id=plugin.id, manifest=plugin.manifest, bundled=bundled)
            yield PlannedPlugin(
                id=plugin.id,
                label=candidate.label,
                reaches=plugin.manifest.capabilities if plugin.manifest else None,
                news=consents.news_of(after),
                is_new=plugin.id not in known,
                is_asked_for=candidate.name in named,
                publisher=str(publisher) if publisher.is_from_index else "",
                new_publisher=change,
            )


def refuse_unusable(
    candidates: Sequence[Candidate], named: Collection[str], here: Sequence[InstalledPlugin]
) -> None:
    """Refuse a plugin that could not run.

    Raises:
        InstallError: a distribution that the owner asked for has no plugin, one does not fit this
            Python, or an id is taken.
    """
    owners = {plugin.id: plugin.distribution for plugin in here}
    version = sys.version.split()[0]
    for candidate in candidates:
        if candidate.name in named and not candidate.plugins:
            reason = f"it has no plugin: no entry point in the group '{ENTRY_POINT_GROUP}'"
            remedy = "if you need it as a library, install it with the environment's own installer"
            raise InstallError(candidate.label, reason, remedy)
        if not metadata.fits(version, candidate.python, unreadable=True):
            reason = f"it requires Python {candidate.python}, and this is {version}"
            raise InstallError(candidate.label, reason, "look for a version for this Python")
        for plugin in candidate.plugins:
            owner = owners.setdefault(plugin.id, candidate.name)
            if owner != candidate.name:
                reason = f"its plugin id '{plugin.id}' is that of {owner}, which is installed"
                remedy = f"run nanobot plugins remove {plugin.id} first if this one replaces it"
                raise InstallError(candidate.label, reason, remedy)


def refuse_blocked(candidates: Sequence[Candidate], published: Published) -> None:
    """Refuse versions that an index blocks.

    Raises:
        InstallError: one is blocked; the message has the reason of the index.
    """
    for candidate in candidates:
        if reason := published.block_of(candidate.name, candidate.version):
            remedy = "choose another version"
            raise InstallError(candidate.label, f"this version is blocked: {reason}", remedy)


def refuse_overwriting(
    candidates: Sequence[Candidate], installed: Mapping[str, Distribution], environment: Environment
) -> None:
    """Refuse a distribution whose files are those of another one, or of the environment itself.

    Raises:
        InstallError: naming the file and its owner.
    """
    replaced = {candidate.name for candidate in candidates}
    own = {path for name in replaced & installed.keys() for path in paths_of(installed[name])}
    for candidate in candidates:
        for path in candidate.paths(environment.interpreter):
            if path.is_file() and path not in own:
                owner = next(
                    (name for name, each in installed.items() if path in set(paths_of(each))),
                    "another program",
                )
                reason = f"it would overwrite {path}, a file of {owner}"
                raise InstallError(candidate.label, reason, "do not install it; ask its author")


def paths_of(distribution: Distribution) -> Iterator[Path]:
    """Yield the absolute paths in the RECORD of an installed distribution."""
    for file in distribution.files or ():
        # Not resolved: links are files of their own.
        yield _without_dots(Path(str(distribution.locate_file(file))))


def _without_dots(path: Path) -> Path:
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and len(parts) > 1:
            parts.pop()
        else:
            parts.append(part)
    return Path(*parts)


def refuse_conflicts(
    candidates: Sequence[Candidate],
    installed: Mapping[str, Distribution],
    *,
    complete: bool = True,
) -> None:
    """Refuse what would break the core or something else that is installed.

    Only what the change itself breaks counts: other problems of the environment existed before.

    Args:
        candidates: what would be installed.
        installed: what is installed.
        complete: nothing else would be installed, so that what is missing then is an error.

    Raises:
        InstallError: with both requirements.
    """
    new = {candidate.name: candidate for candidate in candidates}
    before = {name: each.version for name, each in installed.items()}
    after = before | {name: candidate.version for name, candidate in new.items()}
    requires = {name: tuple(each.requires or ()) for name, each in installed.items()}
    requires |= {name: candidate.requires for name, candidate in new.items()}
    if metadata.CORE in new and after[metadata.CORE] != before.get(metadata.CORE):
        causes = _requirers(metadata.CORE, before.get(metadata.CORE, ""), new)
        reason = f"{causes}, and {metadata.CORE} {before.get(metadata.CORE, 'none')} is installed"
        raise InstallError("it does not fit", reason, f"upgrade {metadata.CORE} first")
    for name, lines in requires.items():
        for requirement in applicable(lines):
            other = metadata.normalise(requirement.name)
            version = after.get(other, "")
            if (name not in new and other not in new) or _meets(requirement, version):
                continue
            if name in new and not version and not complete:
                continue
            if name in new:
                found = f"{other} {version} is installed" if version else f"{other} is missing"
                others = _holders(other, version, requires, {name, *new})
                reason = f"{name} requires {requirement}, and {found}{others}"
            elif _meets(requirement, before.get(other, "")):
                causes = _requirers(other, before.get(other, ""), new)
                reason = f"{name} requires {requirement}, and {causes}"
            else:
                continue
            raise InstallError("it does not fit", reason, "look for versions that fit together")


def applicable(lines: Sequence[str], extras: Collection[str] = ()) -> Iterator[Requirement]:
    """Yield the requirements that apply here; invalid ones are left out.

    Args:
        lines: lines of ``Requires-Dist``.
        extras: the extras that are used.
    """
    for line in lines:
        try:
            requirement = Requirement(line)
        except InvalidRequirement:
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement


def needed_by(installed: Mapping[str, Distribution], roots: Collection[str]) -> set[str]:
    """Return the installed distributions that `roots` require, with extras, and `roots`."""
    pending = [(name, frozenset[str]()) for name in roots]
    seen: set[tuple[str, frozenset[str]]] = set()
    while pending:
        name, extras = pair = pending.pop()
        if pair in seen or name not in installed:
            continue
        seen.add(pair)
        pending += [
            (metadata.normalise(each.name), frozenset(each.extras))
            for each in applicable(tuple(installed[name].requires or ()), extras)
        ]
    return {name for name, _ in seen}


def _meets(requirement: Requirement, version: str) -> bool:
    return bool(version) and requirement.specifier.contains(version, prereleases=True)


def _requirers(name: str, old: str, new: Mapping[str, Candidate]) -> str:
    """Return who among the new ones requires another version of `name` than the installed one."""
    for candidate in new.values():
        for requirement in applicable(candidate.requires):
            if metadata.normalise(requirement.name) == name and not _meets(requirement, old):
                return f"{candidate.label} requires {requirement}"
    return f"{name} {new[name].version} would replace {old or 'nothing'}"


def _holders(
    name: str, version: str, requires: Mapping[str, Sequence[str]], apart: Collection[str]
) -> str:
    """Return in words who requires the installed version of `name`."""
    for owner, lines in requires.items():
        for requirement in applicable(lines):
            is_meant = metadata.normalise(requirement.name) == name and owner not in apart
            if is_meant and requirement.specifier and _meets(requirement, version):
                return f", because {owner} requires {requirement}"
    return ""


def refuse_lookalike(name: str, known: Collection[str], installed: Collection[str] = ()) -> None:
    """Refuse a name that is one letter away from that of a known plugin.

    Raises:
        InstallError: it may be a typing mistake, or a trap for one.
    """
    if name in known or name in installed:
        return
    for other in sorted(known):
        if is_one_letter_away(name, other):
            reason = f"did you mean '{other}'? Its name differs from this one by one letter"
            remedy = (
                f"run the command with '{other}', or at a terminal, where you can confirm this name"
            )
            raise InstallError(f"'{name}' is not a known plugin", reason, remedy)


def is_one_letter_away(one: str, other: str) -> bool:
    """Whether one letter is added, left out, replaced or exchanged with its neighbour.

    Separators do not count: ``nanobottelegram`` resembles ``nanobot-telegram``.
    """
    first, second = sorted((one.replace("-", ""), other.replace("-", "")), key=len)
    if first == second:
        return one != other
    start = next(
        (i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b), len(first)
    )
    rest, longer = first[start:], second[start:]
    if len(rest) < len(longer):
        return rest == longer[1:]
    exchanged = rest[1::-1] + rest[2:] == longer
    return rest[1:] == longer[1:] or (len(rest) > 1 and exchanged)
