"""What distributions say of themselves: names, requirements, and whether they fit here."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from nanobot_core._version import __version__

if TYPE_CHECKING:
    # A listing of commands, which is read at each start, needs none of these classes.
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

CORE = "nanobot-core"
_NAME = re.compile(r"[\w.-]+")


def normalise(name: str) -> str:
    """Return a distribution name in its canonical spelling (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def compatibility_problem(distribution: Distribution) -> str:
    """Return everything that does not fit this environment in one line, or an empty string."""
    problems: list[str] = []
    python = header(distribution, "Requires-Python")
    if not fits(sys.version.split()[0], python, unreadable=True):
        problems.append(f"it needs Python {python}, this is {sys.version.split()[0]}")
    for requirement in _requirements(distribution):
        if not _applies(requirement):
            continue
        name = normalise(requirement.name)
        found = installed_distribution(requirement.name)
        installed = __version__ if name == CORE else header(found, "Version") if found else ""
        if not installed:
            problems.append(f"it needs {requirement.name}, which is not installed")
        elif not requirement.specifier.contains(installed, prereleases=True):
            problems.append(
                f"it needs {requirement.name}{requirement.specifier}, installed is {installed}"
            )
    return "; ".join(problems)


def plugins_of_extras(core: Distribution | None) -> frozenset[str]:
    """Return the distributions that nanobot-core names in its extras."""
    return frozenset(
        normalise(requirement.name)
        for requirement in (() if core is None else _requirements(core))
        if requirement.marker is not None and "extra" in str(requirement.marker)
    )


def needed_by(
    distributions: Mapping[str, Distribution], *, among: Collection[str], apart_from: str
) -> frozenset[str]:
    """Return the names that some distribution requires, without optional requirements.

    Args:
        distributions: by normalised name.
        among: the names in question. Parsing all requirements would take most of a scan.
        apart_from: name of a distribution whose requirements do not count.
    """
    return frozenset(
        normalise(requirement.name)
        for name, distribution in distributions.items()
        if name != apart_from
        for requirement in _parsed(
            text for text in _requires(distribution) if _required_name(text) in among
        )
        if _applies(requirement)
    )


def header(distribution: Distribution, name: str) -> str:
    """Return one header of a distribution's metadata, or an empty string."""
    return next(iter(_headers(distribution).get(name.lower(), ())), "")


_read: WeakKeyDictionary[Distribution, Mapping[str, Sequence[str]]] = WeakKeyDictionary()
"""Headers of the distributions of a scan, for as long as the scan has them."""


def _headers(distribution: Distribution) -> Mapping[str, Sequence[str]]:
    """Return the headers of a distribution's metadata by their names in lower case.

    The module for mail takes several times as long, which is a large part of a scan.
    """
    found = _read.get(distribution)
    if found is None:
        found = _read[distribution] = _parse_headers(distribution)
    return found


def _parse_headers(distribution: Distribution) -> Mapping[str, Sequence[str]]:
    text = distribution.read_text("METADATA") or distribution.read_text("PKG-INFO") or ""
    found: dict[str, list[str]] = {}
    values: list[str] = []
    for line in text.partition("\n\n")[0].split("\n"):
        if line[:1] in {" ", "\t"} and values:
            values[-1] += f"\n{line}"
            continue
        name, colon, value = line.partition(":")
        if colon:
            values = found.setdefault(name.lower(), [])
            values.append(value.strip())
    return found


def _requires(distribution: Distribution) -> Sequence[str]:
    found = _headers(distribution).get("requires-dist", ())
    if not found and distribution.read_text("METADATA") is None:
        return distribution.requires or ()  # an egg has them in another file
    return found


def _required_name(text: str) -> str:
    """Return the name at the beginning of a requirement."""
    found = _NAME.match(text)
    return normalise(found[0]) if found else ""


def _requirements(distribution: Distribution) -> Iterator[Requirement]:
    return _parsed(_requires(distribution))


def _parsed(texts: Iterable[str]) -> Iterator[Requirement]:
    from packaging.requirements import InvalidRequirement, Requirement

    for text in texts:
        try:
            yield Requirement(text)
        except InvalidRequirement:
            continue


def _applies(requirement: Requirement) -> bool:
    """Whether a requirement applies in this environment without any extra."""
    from packaging.markers import UndefinedComparison, UndefinedEnvironmentName

    try:
        return requirement.marker is None or requirement.marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True


def fits(version: str, specifiers: str, *, unreadable: bool) -> bool:
    """Whether a version fits.

    Args:
        version: the version.
        specifiers: such as ``>=2,<3``.
        unreadable: the answer if `specifiers` cannot be parsed.
    """
    if not specifiers:
        return True
    # Most plugins require any version of another one, and need not wait for this import.
    from packaging.specifiers import InvalidSpecifier, SpecifierSet

    try:
        return SpecifierSet(specifiers).contains(version, prereleases=True)
    except InvalidSpecifier:
        return unreadable


def installed_distribution(name: str) -> Distribution | None:
    """Return an installed distribution, or ``None``."""
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution(name)
    except PackageNotFoundError:
        return None
