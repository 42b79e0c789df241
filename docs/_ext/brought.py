"""Prints what a package brings: ``python docs/_ext/brought.py 'nanobot-core[standard]'``.

It describes the environment that runs it, in which the package is installed.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

CORE = "nanobot-core"
Node = tuple[str, frozenset[str]]
"""A distribution and the extras of it that are asked for."""


def required(node: Node) -> Iterator[Node]:
    """Yield what a distribution requires here."""
    name, extras = node
    for line in distribution(name).requires or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield canonicalize_name(requirement.name), frozenset(requirement.extras)


def closure(start: Iterable[Node], without: str = "") -> set[str]:
    """Return all distributions that these bring, if one of our packages did not exist."""
    waiting, seen = list(start), set[Node]()
    while waiting:
        node = waiting.pop()
        if node not in seen and node[0] != without:
            seen.add(node)
            waiting += required(node)
    return {name for name, _ in seen}


def megabytes(found: Distribution) -> float:
    """Return the size of the files of a distribution, compiled ones left out."""
    files = (file for file in found.files or () if file.suffix != ".pyc")
    paths = (Path(str(found.locate_file(file))) for file in files)
    return sum(path.stat().st_size for path in paths if path.is_file()) / 1e6


def render(requirement: Requirement) -> Iterator[str]:
    """Yield the lines of the table for a package with its extras."""
    start = [(canonicalize_name(requirement.name), frozenset(requirement.extras))]
    everything = closure(start)
    sizes = {name: megabytes(distribution(name)) for name in everything}
    ours = {name for name in everything if name.startswith("nanobot-")}
    if CORE in ours:
        rows = [(CORE, closure([(CORE, frozenset())]) - ours)]
        rows += [(name, everything - closure(start, name) - ours) for name in sorted(ours - {CORE})]
        shared = everything - ours - set().union(*(brought for _, brought in rows))
        yield "| package | distributions that only it brings | MB |"
        yield "| --- | --- | ---: |"
        for name, brought in rows:
            if brought:
                yield _row(f"`{name}`", brought, sizes)
        yield _row("several of them", shared, sizes)
        yield ""
    size = sum(sizes.values())
    yield f"{requirement}: {len(everything)} distributions, {len(ours)} of them ours, {size:.0f} MB"


def _row(title: str, brought: set[str], sizes: dict[str, float]) -> str:
    size = sum(sizes[name] for name in brought)
    return f"| {title} | {', '.join(sorted(brought))} | {size:.1f} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(render(Requirement(sys.argv[1]))) + "\n")
