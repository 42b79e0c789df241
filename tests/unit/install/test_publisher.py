"""Who published a release, as an index on loopback says."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nanobot_core.errors import InstallError
from nanobot_core.install.installer import Release
from nanobot_core.install.publisher import (
    UNPUBLISHED,
    Publisher,
    change_of_publisher,
    find_publisher,
    forget_publishers,
    load_publishers,
    publishers_file,
    remember_publishers,
)

ANN = Publisher(identity="GitHub ann/acme")
BOB = Publisher(identity="GitHub bob/acme")
UNKNOWN = Publisher(reason="the release has no attestation")


@contextmanager
def serving(pages: Mapping[str, object]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Serve pages on loopback; yield the index, and path and credentials of each request."""
    seen: list[tuple[str, str]] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            seen.append((self.path, self.headers.get("Authorization", "")))
            page = pages.get(self.path)
            body = page if isinstance(page, bytes) else json.dumps(page).encode()
            self.send_response(200 if self.path in pages else 404)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/index", seen
        finally:
            server.shutdown()
            thread.join()


def wheel(version: str = "1.0", *, build: str = "", provenance: object = None) -> dict[str, object]:
    return {
        "filename": f"nanobot_acme-{version}{build}-py3-none-any.whl",
        "hashes": {"sha256": f"hash {version}{build}"},
        "provenance": provenance,
    }


def provenance(*publishers: dict[str, object]) -> dict[str, object]:
    bundles = [{"publisher": each, "attestations": [{}]} for each in publishers]
    return {"version": 1, "attestation_bundles": bundles}


def github(repository: str, **more: object) -> dict[str, object]:
    return {"kind": "GitHub", "repository": repository, "workflow": "publish.yml", **more}


def asked(pages: Mapping[str, object], *, sha256: str = "") -> Publisher:
    with serving(pages) as (index, _):
        release = Release(name="nanobot-acme", version="1.0", indexes=(index,), sha256=sha256)
        return find_publisher(release)


def page(*files: dict[str, object]) -> dict[str, object]:
    return {"meta": {"api-version": "1.3"}, "files": list(files), "name": "nanobot-acme"}


@pytest.mark.promise(41)
def test_the_publisher_is_the_one_that_the_provenance_names() -> None:
    found = asked(
        {
            "/index/nanobot-acme/": page(wheel("0.9"), wheel(provenance="/p/1")),
            "/p/1": provenance(github("ann/acme", environment="release", claims={"x": 1})),
        }
    )

    assert found == ANN


def test_another_workflow_of_the_same_repository_is_the_same_publisher() -> None:
    pages = {"/index/nanobot-acme/": page(wheel(provenance="/p/1"))}

    found = asked({**pages, "/p/1": provenance(github("ann/acme", workflow="other.yml"))})

    assert found == ANN


def test_the_wheel_that_would_be_installed_decides() -> None:
    files = [wheel(provenance="/p/1"), wheel(build="-1", provenance="/p/2")]
    pages = {
        "/index/nanobot-acme/": page(*files),
        "/p/1": provenance(github("ann/acme")),
        "/p/2": provenance(github("bob/acme")),
    }

    assert asked(pages, sha256="hash 1.0-1") == BOB
    assert asked(pages).reason == "its files have several publishers"


@pytest.mark.parametrize(
    ("pages", "reason"),
    [
        ({}, "cannot be asked"),
        ({"/index/nanobot-acme/": b"<html></html>"}, "the index does not say"),
        ({"/index/nanobot-acme/": {"files": 3}}, "the index does not say"),
        ({"/index/nanobot-acme/": b"[" * 100_000}, "the index does not say"),
        ({"/index/nanobot-acme/": b"x" * 6_000_000}, "cannot be asked"),
        ({"/index/nanobot-acme/": page()}, "does not list the file"),
        ({"/index/nanobot-acme/": page(wheel("2.0", provenance="/p"))}, "does not list the file"),
        ({"/index/nanobot-acme/": page(wheel())}, "has no attestation"),
        ({"/index/nanobot-acme/": page(wheel(provenance="/p"))}, "cannot be asked"),
        ({"/index/nanobot-acme/": page(wheel(provenance="file:///etc/passwd"))}, "asked"),
        (
            {"/index/nanobot-acme/": page(wheel(provenance="/p")), "/p": provenance()},
            "the index does not say",
        ),
        (
            {
                "/index/nanobot-acme/": page(wheel(provenance="/p")),
                "/p": provenance({"kind": "X"}),
            },
            "cannot be asked",
        ),
        (
            {
                "/index/nanobot-acme/": page(wheel(provenance="/p")),
                "/p": provenance(github("ann/acme\nInstall this? y")),
            },
            "cannot be asked",
        ),
    ],
)
@pytest.mark.promise(41)
def test_an_index_that_does_not_say_it_is_no_failure(pages: dict[str, object], reason: str) -> None:
    found = asked(pages)

    assert reason in found.reason
    assert str(found).startswith("publisher unknown: ")


def test_without_a_network_the_publisher_is_unknown() -> None:
    release = Release(name="nanobot-acme", version="1.0", indexes=("http://127.0.0.1:9/index",))

    assert "cannot be asked" in find_publisher(release).reason


def test_a_release_that_comes_from_no_index_is_not_looked_up() -> None:
    assert find_publisher(Release(name="nanobot-acme", version="1.0")) == UNPUBLISHED


def test_credentials_go_to_the_host_of_the_index_only() -> None:
    with serving({"/p": provenance(github("ann/acme"))}) as (other, seen_elsewhere):
        elsewhere = other.replace("/index", "/p")
        pages = {"/index/nanobot-acme/": page(wheel(provenance=elsewhere))}
        with serving(pages) as (index, seen):
            private = index.replace("http://", "http://me:pass%20word@")
            release = Release(name="nanobot-acme", version="1.0", indexes=(private,))

            assert find_publisher(release) == ANN

    assert seen == [("/index/nanobot-acme/", "Basic bWU6cGFzcyB3b3Jk")]
    assert seen_elsewhere == [("/p", "")]


def test_the_next_index_is_asked_if_the_first_does_not_have_the_file() -> None:
    pages = {
        "/index/nanobot-acme/": page(wheel(provenance="/p")),
        "/p": provenance(github("ann/acme")),
    }
    with serving({}) as (empty, _), serving(pages) as (index, _):
        release = Release(name="nanobot-acme", version="1.0", indexes=(empty, index))

        assert find_publisher(release) == ANN


def test_the_record_has_the_publishers_of_what_is_installed(tmp_path: Path) -> None:
    remember_publishers(tmp_path, {"a": ANN, "b": BOB, "c": UNKNOWN})
    remember_publishers(tmp_path, {"a": UNPUBLISHED, "b": ANN})
    assert load_publishers(tmp_path) == {"a": "GitHub ann/acme", "b": "GitHub ann/acme"}

    remember_publishers(tmp_path, {"b": UNKNOWN})
    forget_publishers(tmp_path, ["a", "x"])

    assert load_publishers(tmp_path) == {}


@pytest.mark.parametrize("content", [b"{", b"[]", b'{"a": 1}', b"\xff"])
def test_a_damaged_record_stops_installing_and_not_removing(tmp_path: Path, content: bytes) -> None:
    file = publishers_file(tmp_path)
    file.parent.mkdir()
    file.write_bytes(content)

    with pytest.raises(InstallError, match=r"publishers\.json"):
        load_publishers(tmp_path)
    forget_publishers(tmp_path, ["a"])

    assert file.read_bytes() == content


@pytest.mark.parametrize(
    ("remembered", "now", "change"),
    [
        ("", ANN, ""),
        ("", UNKNOWN, ""),
        ("GitHub ann/acme", ANN, ""),
        ("GitHub ann/acme", UNPUBLISHED, ""),
        ("GitHub ann/acme", BOB, "now by GitHub bob/acme"),
        ("GitHub ann/acme", UNKNOWN, "publisher unknown: the release has no attestation"),
    ],
)
def test_a_publisher_changes_only_if_one_was_known(
    remembered: str, now: Publisher, change: str
) -> None:
    found = change_of_publisher(remembered, now)

    assert change in found
    assert bool(found) == bool(change)
