"""Reads which methods prove the sender of a mail: `Authentication-Results`, RFC 8601.

Anyone can write such a header into a mail. Only those of the receiving server count: they carry its
name, and it puts them above the header of the mail itself.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase

_HEADER = "authentication-results"
_WRITTEN_BY_SENDERS = frozenset({"from", "to", "cc", "subject", "date", "message-id"})
"""The receiving server adds its headers above the first of these."""
_HEADER_CHARS = 20_000
_RESULT = re.compile(r"([a-z0-9-]+)\s*(?:/\s*[0-9]+\s*)?=\s*([a-z]+)", re.ASCII)
_PROPERTY = re.compile(r"([a-z0-9-]+)\s*\.\s*([a-z0-9_-]+)\s*=\s*(\"[^\"]*\"|[^\s\";]+)", re.ASCII)
_DOMAINS = {
    "dkim": ("header.d", "header.i"),
    "spf": ("smtp.mailfrom",),
    "dmarc": ("header.from",),
}
"""Method to the properties with the domain that it proves, the first of them first."""


@dataclass(frozen=True, slots=True)
class _Result:
    method: str
    outcome: str
    domain: str


def proven_methods(
    headers: Iterable[tuple[str, str]], servers: Collection[str], domain: str
) -> frozenset[str]:
    """Return those of ``dkim`` and ``spf`` that prove that a mail comes from `domain`.

    The proven domain must be `domain` or one above it: ``eu.example.com`` is proven by
    ``example.com``, but not the reverse, because some domains give names to strangers.

    Args:
        headers: name and text of all headers of the mail, the topmost first.
        servers: names of the receiving server in its results, in lower case; ``*`` in a name
            stands for any characters.
        domain: of the address in ``From``, in lower case.
    """
    first: dict[str, list[_Result]] = {}
    for results in _trusted(headers, servers):
        found: dict[str, list[_Result]] = {}
        for result in results:
            found.setdefault(result.method, []).append(result)
        # A server reports each method once, perhaps in several headers. What a sender adds is
        # below, and so comes too late.
        for method, group in found.items():
            first.setdefault(method, group)
    if any(result.outcome == "fail" for result in first.get("dmarc", ())):
        return frozenset()
    return frozenset(
        method
        for method in ("dkim", "spf")
        if any(
            result.outcome == "pass" and _is_aligned(result.domain, domain)
            for result in first.get(method, ())
        )
    )


def _is_aligned(proven: str, domain: str) -> bool:
    return "." in proven and (proven == domain or domain.endswith(f".{proven}"))


def _trusted(
    headers: Iterable[tuple[str, str]], servers: Collection[str]
) -> Iterator[list[_Result]]:
    """Yield the results of each header of the receiving server."""
    for name, text in headers:
        if name.lower() in _WRITTEN_BY_SENDERS:
            return
        if name.lower() != _HEADER or len(text) > _HEADER_CHARS:
            continue
        writer, *results = _clauses(text)
        if any(fnmatchcase(name, server) for server in servers for name in writer.split()[:1]):
            yield [result for clause in results if (result := _read_result(clause))]


def _clauses(text: str) -> list[str]:
    """Return the parts of a header between semicolons, in lower case and without comments.

    A header with an open comment or quotation, or with an escape, counts as empty.
    """
    parts, depth, is_quoted = [""], 0, False
    if "\\" in text:
        return parts
    for character in text.lower():
        if character == '"' and not depth:
            is_quoted = not is_quoted
        if is_quoted:
            parts[-1] += character
        elif character == "(":
            depth += 1
            parts[-1] += " "
        elif character == ")" and depth:
            depth -= 1
        elif character == ";" and not depth:
            parts.append("")
        elif not depth:
            parts[-1] += character
    return [""] if depth or is_quoted else [" ".join(part.split()) for part in parts]


def _read_result(clause: str) -> _Result | None:
    head = _RESULT.match(clause)
    if head is None:
        return None
    method, outcome = head.groups()
    properties = {
        f"{kind}.{name}": value.strip('"')
        for kind, name, value in _PROPERTY.findall(clause[head.end() :])
    }
    names = _DOMAINS.get(method, ())
    proven = next((properties[name] for name in names if name in properties), "")
    return _Result(method, outcome, proven.rpartition("@")[2].rstrip("."))
