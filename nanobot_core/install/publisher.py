"""Who published a release, as the index says, and who published the one before it.

An index that accepts attestations (PEP 740) names for each file the account that uploaded it, such
as a repository. nanobot takes the word of the index: it does not verify the signatures, which the
index does at the upload. Who controls the index, or the connection to it, can name anyone.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import unquote, urljoin, urlsplit, urlunsplit
from urllib.request import Request

from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from nanobot_core.disk import replace_file
from nanobot_core.errors import InstallError
from nanobot_core.install.indexes import download
from nanobot_core.install.installer import Release
from nanobot_core.plugins.metadata import normalise
from nanobot_core.record import dataclass

_JSON: Final = "application/vnd.pypi.simple.v1+json"
"""The media type of an index's page (PEP 691)."""
_PROVENANCE: Final = "application/vnd.pypi.integrity.v1+json"
"""The media type of a provenance object (PEP 740)."""
_FILE: Final = Path("plugins", "publishers.json")
_IDENTITY: Final = ("repository", "email", "project", "organization", "owner", "name")
"""What identifies a publisher, besides its kind; workflows and their environments may change."""
_MAX_CHARS: Final = 200
_MAX_FILES: Final = 50


@dataclass(frozen=True, slots=True, kw_only=True)
class Publisher:
    """Who published a release.

    Attributes:
        identity: such as ``GitHub acme/nanobot-weather``, or an empty string if it is unknown.
        reason: why it is unknown.
        is_from_index: the release comes from an index; else the owner named or keeps the file.
    """

    identity: str = ""
    reason: str = ""
    is_from_index: bool = True

    def __str__(self) -> str:
        return self.identity or f"publisher unknown: {self.reason}"


UNPUBLISHED: Final = Publisher(
    reason="the release does not come from an index", is_from_index=False
)


class _Model(BaseModel):
    model_config: ClassVar[ConfigDict] = ConfigDict(extra="ignore", frozen=True)


class _File(_Model):
    filename: str
    hashes: dict[str, str] = {}
    provenance: str | None = None


class _Page(_Model):
    files: list[_File]


class _Bundle(_Model):
    publisher: dict[str, Any]


class _Provenance(_Model):
    attestation_bundles: Annotated[list[_Bundle], Field(min_length=1, max_length=20)]


def find_publisher(release: Release) -> Publisher:
    """Ask the indexes who published a release; what they do not say is no error. Blocks."""
    reason = "the release does not come from an index"
    for index in release.indexes:
        page = f"{index.rstrip('/')}/{release.name}/"
        try:
            found = _Page.model_validate_json(_get(page, _JSON))
            files = list(_files_of(release, found.files))
            if not files:
                reason = "the index does not list the file"
                continue
            return _publisher_of(page, files)
        except ValidationError:
            reason = "the index does not say"
        except (OSError, HTTPException, ValueError) as error:
            reason = f"the index cannot be asked: {type(error).__name__}"
    return Publisher(reason=reason, is_from_index=bool(release.indexes))


def _files_of(release: Release, files: Sequence[_File]) -> Iterator[_File]:
    """Yield the file that would be installed, or each wheel of the release if that is unknown."""
    for file in files:
        try:
            name, version, *_ = parse_wheel_filename(file.filename)
        except InvalidWheelFilename:
            continue
        is_other = release.sha256 and file.hashes.get("sha256") != release.sha256
        is_release = normalise(name) == release.name and version == Version(release.version)
        if is_release and not is_other:
            yield file


def _publisher_of(page: str, files: Sequence[_File]) -> Publisher:
    """Return the publisher of `files`, if it is the same for all of them."""
    missing = Publisher(reason="the release has no attestation")
    if any(not file.provenance for file in files):
        return missing
    if len(files) > _MAX_FILES:
        return Publisher(reason=f"the release has more than {_MAX_FILES} wheels")
    found = set[str]()
    for file in files:
        content = _get(urljoin(page, file.provenance or ""), _PROVENANCE, page)
        bundles = _Provenance.model_validate_json(content).attestation_bundles
        found |= {_identity_of(bundle.publisher) for bundle in bundles}
    [identity, *others] = sorted(found)
    return (
        Publisher(reason="its files have several publishers")
        if others
        else Publisher(identity=identity)
    )


def _identity_of(publisher: Mapping[str, object]) -> str:
    """Return kind and account in one line.

    Raises:
        ValueError: they are missing, or could deceive a reader.
    """
    words = [str(publisher[key]) for key in ("kind", *_IDENTITY) if publisher.get(key)]
    text = " ".join(words)
    if len(words) < 2 or "kind" not in publisher or not text.isprintable() or not text.isascii():
        msg = "the provenance has no publisher"
        raise ValueError(msg)
    return text[:_MAX_CHARS]


def _get(url: str, media_type: str, page: str = "") -> bytes:
    """Return what an index answers. Credentials go to the host whose address has them.

    Args:
        url: the address.
        media_type: what the answer must be.
        page: address of the page that named `url`, or an empty string.

    Raises:
        OSError: there is no answer.
        ValueError: the address is not one of http, leaves https, or the answer is too long.
    """
    parts, origin = urlsplit(url), urlsplit(page or url)
    if parts.scheme not in {"http", "https"} or (origin.scheme, parts.scheme) == ("https", "http"):
        msg = "the index names an address that is not https"
        raise ValueError(msg)
    address = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    request = Request(address)  # noqa: S310 - the scheme is checked above
    request.add_header("Accept", media_type)
    holder = parts if "@" in parts.netloc else origin
    if holder.username and (holder.hostname, holder.port) == (parts.hostname, parts.port):
        pair = f"{unquote(holder.username)}:{unquote(holder.password or '')}"
        request.add_unredirected_header(
            "Authorization", f"Basic {base64.b64encode(pair.encode()).decode()}"
        )
    return download(request)


# --- what is remembered ----------------------------------------------------------------------


def publishers_file(home: Path) -> Path:
    """Return the path of the record in nanobot's folder."""
    return home / _FILE


def load_publishers(home: Path) -> dict[str, str]:
    """Return the publishers of installed distributions, by name.

    Raises:
        InstallError: the record is damaged, so that a change would not be noticed.
    """
    file = publishers_file(home)
    try:
        data: object = json.loads(file.read_bytes())
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise InstallError(str(file), f"it cannot be read: {error}", _RESTORE) from error
    if not isinstance(data, dict) or not all(isinstance(each, str) for each in data.values()):
        raise InstallError(str(file), "it has another format", _RESTORE)
    return data


_RESTORE: Final = (
    "restore it, or remove it; without it, nanobot does not notice that a publisher changes"
)


def remember_publishers(home: Path, found: Mapping[str, Publisher]) -> None:
    """Keep the known publishers of releases that are installed. Blocks.

    A release that does not come from an index changes nothing. One whose publisher is unknown
    drops what was remembered: its owner has agreed to that.

    Raises:
        OSError: the record cannot be written.
        InstallError: as `load_publishers`.
    """
    kept = load_publishers(home)
    new = dict(kept)
    for name, publisher in found.items():
        if publisher.identity:
            new[name] = publisher.identity
        elif publisher.is_from_index:
            new.pop(name, None)
    _write(home, kept, new)


def forget_publishers(home: Path, names: Sequence[str]) -> None:
    """Drop the publishers of distributions that are removed.

    A damaged record stays: removing works however broken something is, and installing reports it.

    Raises:
        OSError: the record cannot be written.
    """
    try:
        kept = load_publishers(home)
    except InstallError:
        return
    _write(home, kept, {name: each for name, each in kept.items() if name not in names})


def change_of_publisher(remembered: str, publisher: Publisher) -> str:
    """Return in one clause how the publisher changes; empty if it does not."""
    if not remembered or not publisher.is_from_index or publisher.identity == remembered:
        return ""
    if publisher.identity:
        return f"it was published by {remembered} before, and now by {publisher.identity}"
    return f"it was published by {remembered} before, and now {publisher}"


def _write(home: Path, kept: Mapping[str, str], new: Mapping[str, str]) -> None:
    if new != kept:
        text = json.dumps(dict(sorted(new.items())), indent=1)
        replace_file(publishers_file(home), f"{text}\n")
