"""The publisher that an index names is shown, remembered, and asked about when it changes."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.integration.cli.terminal import Terminal
from tests.integration.install.packages import Bench, Package, tool_manifest
from tests.integration.install.test_add import refused

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)


class Index:
    """An index of one distribution. `publishers` names the repository that uploaded a version."""

    def __init__(self, wheels: Path) -> None:
        self.wheels = wheels
        self.publishers: dict[str, str] = {}
        self.url = ""

    def page(self) -> bytes:
        files = []
        for wheel in sorted(self.wheels.glob("*.whl")):
            version = wheel.name.split("-")[1]
            name = self.publishers.get(version)
            files.append(
                {
                    "filename": wheel.name,
                    "url": f"/files/{wheel.name}",
                    "hashes": {"sha256": hashlib.sha256(wheel.read_bytes()).hexdigest()},
                    "provenance": f"{self.url}/provenance/{version}" if name else None,
                }
            )
        content = {"meta": {"api-version": "1.3"}, "name": "nanobot-acme", "files": files}
        return json.dumps(content).encode()

    def answer(self, path: str) -> bytes | None:
        if path == "/index/nanobot-acme/":
            return self.page()
        if path.startswith("/files/"):
            return (self.wheels / path.removeprefix("/files/")).read_bytes()
        if name := self.publishers.get(path.removeprefix("/provenance/")):
            publisher = {"kind": "GitHub", "repository": name, "workflow": "publish.yml"}
            bundle = {"publisher": publisher, "attestations": []}
            return json.dumps({"version": 1, "attestation_bundles": [bundle]}).encode()
        return None


@contextmanager
def serving(index: Index) -> Iterator[None]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = index.answer(self.path)
            self.send_response(404 if body is None else 200)
            is_page = self.path.startswith("/index/")
            media_type = "application/vnd.pypi.simple.v1+json" if is_page else "application/binary"
            self.send_header("Content-Type", media_type)
            self.send_header("Content-Length", str(len(body or b"")))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body or b"")

        do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        index.url = f"http://127.0.0.1:{server.server_port}"
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def index(bench: Bench, tmp_path: Path) -> Iterator[Index]:
    """The index that pip and uv of the bench are configured with, also those of `uv_bench`."""
    made = Index(tmp_path / "published")
    with serving(made):
        for name in (
            "PIP_NO_INDEX",
            "PIP_FIND_LINKS",
            "UV_OFFLINE",
            "UV_NO_INDEX",
            "UV_FIND_LINKS",
        ):
            del bench.variables[name]
        simple = f"{made.url}/index"
        own = {"PIP_INDEX_URL": simple, "UV_DEFAULT_INDEX": simple, "NO_PROXY": "*"}
        bench.variables.update(own)
        yield made


def offer(index: Index, version: str, publisher: str = "") -> None:
    package = Package(name="nanobot-acme", version=version, manifest=tool_manifest(), requires=())
    package.build(index.wheels)
    if publisher:
        index.publishers[version] = publisher


def remembered(bench: Bench) -> object:
    file = bench.home / "plugins" / "publishers.json"
    return json.loads(file.read_text("utf-8")) if file.exists() else {}


@pytest.mark.promise(28)
@pytest.mark.promise(41)
def test_a_publisher_is_shown_and_remembered_and_a_change_is_not_agreed_to_by_yes(
    bench: Bench, index: Index
) -> None:
    offer(index, "1.0", "ann/acme")
    done = bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    assert "acme (nanobot-acme 1.0) published by: GitHub ann/acme" in done.stdout
    assert remembered(bench) == {"nanobot-acme": "GitHub ann/acme"}

    offer(index, "1.1", "ann/acme")
    bench.nanobot("plugins", "upgrade", "acme", "--yes")
    bench.nanobot("plugins", "lock")
    found = json.loads((bench.home / "nanobot.lock").read_text("utf-8"))
    digest = found["distributions"]["nanobot-acme"]["digest"]
    shown = bench.nanobot("plugins", "inspect", "acme").stdout
    assert f"digest: {digest}, as in nanobot.lock" in shown
    assert "publisher: GitHub ann/acme, as its index said" in shown
    offer(index, "2.0", "mallory/acme")
    error = refused(bench, "plugins", "upgrade", "acme", "--yes")

    assert "it was published by GitHub ann/acme before, and now by GitHub mallory/acme" in error
    assert "acme\tenabled\t1.1" in bench.nanobot("plugins", "list").stdout
    bench.nanobot("plugins", "remove", "acme", "--yes")
    assert remembered(bench) == {}


@pytest.mark.long
@pytest.mark.promise(41)
def test_a_release_without_a_publisher_is_asked_about_at_a_terminal(
    bench: Bench, index: Index
) -> None:
    offer(index, "1.0", "ann/acme")
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    offer(index, "2.0")
    command = [str(bench.python), "-P", "-m", "nanobot_core", "plugins", "upgrade", "acme"]

    with Terminal(command, bench.variables) as terminal:
        terminal.expect("publisher unknown: the release has no attestation. Agree?")
        terminal.send("y\r")
        terminal.expect("Install this?")
        terminal.send("y\r")
        terminal.expect("nanobot-acme 2.0 is installed")
        assert terminal.wait() == 0

    assert remembered(bench) == {}


def test_an_index_without_attestations_installs_as_before(bench: Bench, index: Index) -> None:
    offer(index, "1.0")

    done = bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    assert "published by: publisher unknown: the release has no attestation" in done.stdout
    assert remembered(bench) == {}


@pytest.mark.promise(41)
def test_uv_names_the_index_that_says_who_published_it(uv_bench: Bench, index: Index) -> None:
    offer(index, "1.0", "ann/acme")
    done = uv_bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    offer(index, "2.0", "mallory/acme")

    error = refused(uv_bench, "plugins", "upgrade", "acme", "--yes")

    assert "published by: GitHub ann/acme" in done.stdout
    assert "now by GitHub mallory/acme" in error
