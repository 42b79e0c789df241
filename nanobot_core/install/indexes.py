"""Fetches the indexes of plugins that the owner has configured, and checks their format."""

from __future__ import annotations

import hashlib
import time
import urllib.request
from collections.abc import Iterator, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, ClassVar, Final, Literal
from urllib.parse import urlsplit

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from nanobot_core.config.environment import expand_home
from nanobot_core.disk import replace_file
from nanobot_core.errors import InstallError
from nanobot_core.install.installer import mask
from nanobot_core.plugins.published import index_folder

MAX_BYTES: Final = 5_000_000
FETCH_LIMIT_S: Final = 20.0
"""Seconds that one index may take as a whole."""
_SILENCE_S: Final = 5.0
_CHUNK_BYTES: Final = 65_536
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "::1"})


def _specifiers(text: str) -> str:
    try:
        SpecifierSet(text)
    except InvalidSpecifier:
        msg = "expected version specifiers, such as '>=1.2,<2'"
        raise ValueError(msg) from None
    return text


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9]([A-Za-z0-9._-]{0,98}[A-Za-z0-9])?$")]
Text = Annotated[str, Field(max_length=500)]
Specifiers = Annotated[str, Field(max_length=200), AfterValidator(_specifiers)]


class _Model(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)


class Conformance(_Model):
    """The result of the conformance suite.

    Attributes:
        passed: whether all its tests passed.
        core: version of nanobot-core that they ran with.
    """

    passed: bool
    core: Text = ""


class IndexEntry(_Model):
    """A published plugin.

    Attributes:
        name: its distribution.
        ids: the ids of the plugins in it.
        summary: one line for people.
        kinds: the kinds of its contributions, and ``hooks``.
        capabilities: what it reaches, in words.
        core: versions of nanobot-core that it works with.
        sections: sections of the configuration that it reads.
        conformance: result of the conformance suite, if it is known.
        hashes: version to the digest of the release, as in ``nanobot.lock``.
    """

    name: Name
    ids: Annotated[list[Name], Field(min_length=1, max_length=50)]
    summary: Text = ""
    kinds: Annotated[list[Text], Field(max_length=50)] = []
    capabilities: Annotated[list[Text], Field(max_length=200)] = []
    core: Specifiers = ""
    sections: Annotated[list[Text], Field(max_length=200)] = []
    conformance: Conformance | None = None
    hashes: dict[str, Annotated[str, Field(pattern="^[0-9a-f]{64}$")]] = {}


class Block(_Model):
    """Versions that must not run.

    Attributes:
        name: the distribution.
        versions: version specifiers; empty means all versions.
        reason: why, in one clause.
    """

    name: Name
    versions: Specifiers = ""
    reason: Annotated[str, Field(min_length=1, max_length=500)]


class Index(_Model):
    """The content of an index file."""

    schema_version: Literal[1]
    plugins: Annotated[list[IndexEntry], Field(max_length=20_000)] = []
    blocked: Annotated[list[Block], Field(max_length=20_000)] = []


def refresh_indexes(sources: Sequence[str], base: Path, cache_dir: Path) -> list[str]:
    """Copy each index to the disk; return a sentence for each that failed. Blocks.

    The previous copy of an index that fails stays in force. Copies of indexes that are no longer
    configured are removed.

    Args:
        sources: URLs and paths, from ``plugins.indexes``.
        base: folder that relative paths start from.
        cache_dir: folder for the copies.
    """
    folder = index_folder(cache_dir)
    problems = []
    copies = {
        folder / f"{hashlib.sha256(each.encode()).hexdigest()[:16]}.json": each for each in sources
    }
    for file in set(folder.glob("*.json")) - copies.keys():
        file.unlink(missing_ok=True)
    for file, source in copies.items():
        try:
            index = parse_index(_read(source, base))
            replace_file(file, index.model_dump_json())
        except (OSError, HTTPException, ValueError) as error:
            kept = "its last copy is used" if file.exists() else "it is left out"
            reason = _first_problem(error) if isinstance(error, ValidationError) else str(error)
            problems.append(f"index {mask(source)}: {mask(reason)}; {kept}")
    return problems


def parse_index(content: bytes) -> Index:
    """Return an index from the content of its file.

    Raises:
        ValueError: it does not have the format.
    """
    return Index.model_validate_json(content)


def _first_problem(error: ValidationError) -> str:
    first = error.errors()[0]
    place = ".".join(map(str, first["loc"])) or "the file"
    return f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"


def _read(source: str, base: Path) -> bytes:
    address = urlsplit(source)
    if address.scheme not in {"http", "https"}:
        with (base / expand_home(source.removeprefix("file:"))).open("rb") as file:
            return _bounded([file.read(MAX_BYTES + 1)])
    if address.scheme == "http" and address.hostname not in _LOOPBACK:
        msg = "expected https, because others could change an index on its way"
        raise ValueError(msg)
    return download(source)


def download(address: str | urllib.request.Request) -> bytes:
    """Return what an address has, within limits of size and time. Blocks.

    Raises:
        OSError: there is no answer, or it redirects to an address that is not https.
        ValueError: it is too long.
    """
    return _bounded(_download(address))


def _download(address: str | urllib.request.Request) -> Iterator[bytes]:
    deadline_s = time.monotonic() + FETCH_LIMIT_S
    opener = urllib.request.build_opener(_SecureRedirects())
    with opener.open(address, timeout=_SILENCE_S) as answer:
        # `read` would wait for a whole chunk, however slowly it comes.
        while chunk := answer.read1(_CHUNK_BYTES):
            yield chunk
            if time.monotonic() > deadline_s:
                msg = f"it did not arrive within {FETCH_LIMIT_S:g} s"
                raise TimeoutError(msg)


class _SecureRedirects(urllib.request.HTTPRedirectHandler):
    """Follows redirects only to https."""

    def redirect_request(self, *args: object, **named: object) -> urllib.request.Request | None:
        """Return the next request.

        Raises:
            OSError: it would not be encrypted.
        """
        found = super().redirect_request(*args, **named)  # type: ignore[arg-type]  # passed on unchanged
        if found is not None and urlsplit(found.full_url).scheme != "https":
            msg = "it redirects to an address that is not https"
            raise OSError(msg)
        return found


def _bounded(chunks: Iterator[bytes] | list[bytes]) -> bytes:
    content = bytearray()
    for chunk in chunks:
        content += chunk
        if len(content) > MAX_BYTES:
            msg = f"it is larger than {MAX_BYTES:,} bytes"
            raise ValueError(msg)
    return bytes(content)


def refuse_other_build(name: str, version: str, digest: str, entry: IndexEntry | None) -> None:
    """Refuse a release whose files are not those that the index names.

    Raises:
        InstallError: the digests differ.
    """
    expected = entry.hashes.get(version) if entry else None
    if expected and expected != digest:
        reason = "its files are not those that the index names"
        raise InstallError(f"{name} {version}", reason, "do not install it; ask its author")
