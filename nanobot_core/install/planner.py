"""Plans an installation: resolved, downloaded and checked, with nothing changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path

from nanobot_core.errors import InstallError
from nanobot_core.install.candidate import Candidate, installed_hashes, read_wheel
from nanobot_core.install.indexes import IndexEntry, refuse_other_build
from nanobot_core.install.installer import Installer, Pin, Request
from nanobot_core.install.lock import Lock, refuse_unlocked
from nanobot_core.install.place import Place
from nanobot_core.install.plan import (
    Plan,
    changes_of,
    installed_distributions,
    pins_of,
    planned_plugins,
    refuse_blocked,
    refuse_conflicts,
    refuse_lookalike,
    refuse_overwriting,
    refuse_unusable,
)
from nanobot_core.install.publisher import Publisher, find_publisher, load_publishers
from nanobot_core.install.source import Source
from nanobot_core.plugins import metadata
from nanobot_core.plugins.consent import Consents
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.published import Published


class Planner:
    """Plans an installation; it changes nothing.

    Args:
        place: where it would take place.
        installer: resolves and downloads.
        published: the indexes of plugins.
    """

    def __init__(self, place: Place, installer: Installer, published: Published) -> None:
        self._place = place
        self._installer = installer
        self._published = published
        self._installed = installed_distributions()

    @cached_property
    def _here(self) -> tuple[InstalledPlugin, ...]:
        return self._place.plugins()

    def check_names(self, names: Iterable[str]) -> None:
        """Refuse a name that resembles that of a published plugin.

        Raises:
            InstallError: as `refuse_lookalike`.
        """
        for name in names:
            refuse_lookalike(name, self._published.plugins, self._installed)

    def local_wheels(self, sources: Sequence[Source]) -> dict[str, Path]:
        """Return copies of the local wheels, those of folders built here, by name.

        Raises:
            InstallError: one cannot be built, is damaged, or is not what the owner named.
        """
        found = {}
        for source in sources:
            if source.kind not in {"wheel", "folder"} or source.path is None:
                continue
            built = source.path if source.kind == "wheel" else self._installer.build(source.path)
            copy = self._installer.take_wheel(built)
            candidate = read_wheel(copy)
            if source.name and source.name != candidate.name:
                reason = f"it is {candidate.name}, and '{source.name}' was named"
                raise InstallError(str(source.path), reason, "correct the name or the path")
            refuse_unusable([candidate], [candidate.name], self._here)
            found[candidate.name] = copy
        return found

    def plan(
        self,
        sources: Sequence[Source],
        wheels: dict[str, Path],
        *,
        upgrade: bool = False,
        lock: Lock | None = None,
    ) -> Plan:
        """Return what installing `sources` would change.

        Args:
            sources: names, wheels and folders.
            wheels: what `local_wheels` returned for them.
            upgrade: take the newest versions of the named ones.
            lock: allows only what it contains.

        Raises:
            InstallError: it cannot be resolved or downloaded, or must not be installed.
        """
        named = {*wheels, *(each.name for each in sources if each.kind == "name")}
        request = Request(
            requirements=[each.requirement for each in sources if each.kind == "name"],
            wheels=list(wheels.values()),
            upgrade=upgrade,
        )
        pins = self._resolve(request, named, lock)
        missing = [name for name in wheels if name not in {pin.name for pin in pins}]
        again = [name for name in missing if not self._is_same_build(read_wheel(wheels[name]))]
        pins += tuple(Pin(name=name, version=read_wheel(wheels[name]).version) for name in again)
        candidates = self._installer.fetch(pins)
        if lock is not None:  # it names libraries, too
            named = {candidate.name for candidate in candidates if candidate.plugins}
        refuse_unusable(candidates, named, self._here)
        refuse_blocked(candidates, self._published)
        refuse_conflicts(candidates, self._installed)
        refuse_overwriting(candidates, self._installed, self._place.environment)
        for candidate in candidates:
            self._refuse_other_build(candidate)
        if lock is not None:
            refuse_unlocked(lock, candidates)
        publishers = self._publishers_of([each for each in candidates if each.plugins], wheels)
        remembered = load_publishers(self._place.home)
        consents = Consents.load(self._place.home)
        return Plan(
            environment=self._place.environment,
            pins=pins,
            candidates=candidates,
            named=tuple(sorted(named)),
            changes=changes_of(candidates, self._installed),
            plugins=tuple(
                planned_plugins(candidates, named, self._here, consents, publishers, remembered)
            ),
            wheels=tuple(wheels),
            replaced=tuple(again),
            publishers=publishers,
        )

    def _publishers_of(
        self, candidates: Sequence[Candidate], local: Collection[str]
    ) -> dict[str, Publisher]:
        """Return who published `candidates`, by name; local wheels were not published."""
        pins = [
            Pin(name=each.name, version=each.version)
            for each in candidates
            if each.name not in local
        ]
        if not pins:
            return {}
        try:
            releases = self._installer.releases(pins)
        except InstallError as error:
            unknown = Publisher(reason=error.reason)
            return {pin.name: unknown for pin in pins}
        return {each.name: find_publisher(each) for each in releases}

    def _resolve(self, request: Request, named: set[str], lock: Lock | None) -> tuple[Pin, ...]:
        """Return what to install, with as few changes of what is installed as possible."""
        core = [pin for pin in pins_of(self._installed) if pin.name == metadata.CORE]
        if lock is not None:
            pins = [Pin(name=key, version=e.version) for key, e in lock.distributions.items()]
            return self._installer.resolve(replace(request, constraints=[*core, *pins]))
        others = [pin for pin in pins_of(self._installed) if pin.name not in named]
        try:
            return self._installer.resolve(replace(request, constraints=others))
        except InstallError:
            pass  # the next attempt may change what is installed, and explains its failure
        try:
            return self._installer.resolve(replace(request, constraints=()))
        except InstallError as error:
            self._explain(request)
            raise InstallError(", ".join(sorted(named)), error.reason, error.remedy) from error

    def _explain(self, request: Request) -> None:
        """Raise a better error than the installer's, if what is installed is the obstacle."""
        try:
            pins = self._installer.resolve(replace(request, alone=True))
            candidates = self._installer.fetch(pins)
        except InstallError:
            return
        refuse_unusable(candidates, (), self._here)
        refuse_conflicts(candidates, self._installed, complete=False)

    def _is_same_build(self, candidate: Candidate) -> bool:
        installed = self._installed.get(candidate.name)
        return installed is not None and candidate.hashes == installed_hashes(installed)

    def _refuse_other_build(self, candidate: Candidate) -> None:
        entry = self._published.plugins.get(candidate.name)
        known = IndexEntry.model_validate(entry) if entry else None
        refuse_other_build(candidate.name, candidate.version, candidate.digest, known)
