"""Whether a distribution fits this environment, told from metadata before anything is imported."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping
from importlib.metadata import Distribution, PackageNotFoundError, version

from packaging.markers import UndefinedComparison, UndefinedEnvironmentName
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from nanobot_core._version import __version__

CORE = "nanobot-core"


def normalise(name: str) -> str:
    """Return a distribution name in its canonical spelling (PEP 503)."""
    return canonicalize_name(name)


def compatibility_problem(distribution: Distribution) -> str:
    """Return one sentence on all that does not fit, or an empty string."""
    problems: list[str] = []
    python = distribution.metadata["Requires-Python"]
    if python and not _python_fits(python):
        problems.append(f"it needs Python {python}, this is {sys.version.split()[0]}")
    for requirement in _requirements(distribution):
        if not _applies(requirement):
            continue
        name = normalise(requirement.name)
        installed = __version__ if name == CORE else _installed_version(requirement.name)
        if installed is None:
            problems.append(f"it needs {requirement.name}, which is not installed")
        elif not requirement.specifier.contains(installed, prereleases=True):
            problems.append(
                f"it needs {requirement.name}{requirement.specifier}, installed is {installed}"
            )
    return "; ".join(problems)


def plugins_of_extras(core: Distribution | None) -> frozenset[str]:
    """Return the distributions that nanobot-core names in its extras."""
    if core is None:
        return frozenset()
    return frozenset(
        normalise(requirement.name)
        for requirement in _requirements(core)
        if requirement.marker is not None and "extra" in str(requirement.marker)
    )


def needed_by(
    distributions: Mapping[str, Distribution], *, apart_from: Collection[str]
) -> frozenset[str]:
    """Return the names that some distribution requires, leaving out optional ones."""
    return frozenset(
        normalise(requirement.name)
        for name, distribution in distributions.items()
        if name not in apart_from
        for requirement in _requirements(distribution)
        if _applies(requirement)
    )


def _requirements(distribution: Distribution) -> list[Requirement]:
    found = []
    for text in distribution.requires or ():
        try:
            found.append(Requirement(text))
        except InvalidRequirement:
            continue
    return found


def _applies(requirement: Requirement) -> bool:
    """Whether a requirement holds in this environment without any extra."""
    if requirement.marker is None:
        return True
    try:
        return requirement.marker.evaluate({"extra": ""})
    except (UndefinedComparison, UndefinedEnvironmentName, ValueError):
        return True


def _python_fits(specifier: str) -> bool:
    try:
        return SpecifierSet(specifier).contains(sys.version.split()[0], prereleases=True)
    except InvalidSpecifier:
        return True


def _installed_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
