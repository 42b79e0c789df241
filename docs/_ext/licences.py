"""Prints the licence of each distribution: ``python docs/_ext/licences.py``.

It describes the environment that runs it. Metadata names a licence in one of four places, so
the first that is there counts.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

UNKNOWN = "unknown"


def licence(found: Distribution) -> str:
    """Return the licence of a distribution, on one line."""
    # An absent field of the metadata is `None`, or an error in later versions of Python.
    fields = dict(found.metadata.items())
    if expression := fields.get("License-Expression"):
        return expression
    classifiers = [
        value.rpartition(" :: ")[2]
        for name, value in found.metadata.items()
        if name == "Classifier" and value.startswith("License :: OSI Approved :: ")
    ]
    texts = (fields.get("License", ""), *_files(found))
    title = next((line.strip() for text in texts for line in text.splitlines() if line.strip()), "")
    return "; ".join(classifiers) or title or UNKNOWN


def _files(found: Distribution) -> Iterator[str]:
    for file in found.files or ():
        if file.name.upper().startswith(("LICENSE", "LICENCE", "COPYING")):
            yield file.read_text("utf-8")


def render() -> Iterator[str]:
    """Yield the lines of a table."""
    yield "| distribution | version | licence |"
    yield "| --- | --- | --- |"
    for found in sorted(distributions(), key=lambda each: each.name.lower()):
        yield f"| {found.name} | {found.version} | {licence(found)} |"


if __name__ == "__main__":
    sys.stdout.write("\n".join(render()) + "\n")
