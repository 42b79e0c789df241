"""Indexes of plugins: fetched within bounds, checked, and used from their copies."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from nanobot_core.config.models import PluginsSettings
from nanobot_core.install import indexes
from nanobot_core.install.indexes import parse_index, refresh_indexes
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.published import Published, index_folder
from tests.distributions import manifest_of, write_plugin

ENTRY = {"name": "nanobot-acme", "ids": ["acme"], "summary": "Rings a bell"}
BLOCK = {"name": "Nanobot_Acme", "versions": "<2", "reason": "it rings at night"}


def index(**content: object) -> bytes:
    return json.dumps({"schema_version": 1, "plugins": [ENTRY], **content}).encode()


@contextmanager
def serving(content: bytes, redirect: str = "") -> Iterator[str]:
    """Serve one file on loopback, or a redirect."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(302 if redirect else 200)
            if redirect:
                self.send_header("Location", redirect)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - inherited
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}/index.json?token=hidden"
        finally:
            server.shutdown()
            thread.join()


def test_an_index_comes_by_http_from_this_machine_and_stays_without_it(tmp_path: Path) -> None:
    with serving(index(blocked=[BLOCK])) as url:
        assert refresh_indexes([url], tmp_path, tmp_path) == []
    (problem,) = refresh_indexes([url], tmp_path, tmp_path)

    published = Published.load(tmp_path)
    assert "its last copy is used" in problem
    assert "hidden" not in problem
    assert published.distribution_of("acme") == "nanobot-acme"
    assert published.block_of("nanobot-acme", "1.9") == "it rings at night"
    assert published.block_of("nanobot-acme", "2.0") == ""


def test_an_index_that_is_no_longer_configured_is_forgotten(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_bytes(index())
    refresh_indexes(["index.json"], tmp_path, tmp_path)
    assert Published.load(tmp_path).distribution_of("acme")

    refresh_indexes([], tmp_path, tmp_path)

    assert not Published.load(tmp_path).distribution_of("acme")


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{", "invalid JSON"),
        (index(schema_version=2), "schema_version: input should be 1"),
        (index(blocked=[{"name": "a"}]), "blocked.0.reason: field required"),
        (index(blocked=[{**BLOCK, "versions": "new"}]), "expected version specifiers"),
        (index(plugins=[{"name": "a b", "ids": ["a"]}]), "plugins.0.name"),
        (index(plugins=[{"name": "a", "ids": []}]), "plugins.0.ids"),
    ],
)
def test_an_index_in_another_format_is_left_out(
    tmp_path: Path, content: bytes, reason: str
) -> None:
    (tmp_path / "index.json").write_bytes(content)

    (problem,) = refresh_indexes(["index.json"], tmp_path, tmp_path)

    assert reason in problem
    assert "it is left out" in problem


def test_the_size_of_an_index_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexes, "MAX_BYTES", 1_000)
    (tmp_path / "index.json").write_bytes(index() + b" " * 1_000)
    with serving(index() + b" " * 1_000) as url:
        problems = refresh_indexes([url, "index.json"], tmp_path, tmp_path)

    assert ["it is larger than 1,000 bytes" in each for each in problems] == [True, True]


def test_an_index_comes_only_by_https_from_other_machines(tmp_path: Path) -> None:
    (problem,) = refresh_indexes(["http://plugins.example/index.json"], tmp_path, tmp_path)
    with serving(b"", redirect="http://plugins.example/index.json") as url:
        (redirected,) = refresh_indexes([url], tmp_path, tmp_path)

    assert "expected https" in problem
    assert "an address that is not https" in redirected


def test_a_damaged_copy_is_left_out(tmp_path: Path) -> None:
    index_folder(tmp_path).mkdir()
    (index_folder(tmp_path) / "x.json").write_text("{")

    assert Published.load(tmp_path).plugins == Published.load().plugins


def test_our_index_has_the_format(tmp_path: Path) -> None:
    ours = Published.load()

    assert parse_index(json.dumps(ours._indexes[0]).encode()).plugins
    assert ours.sections["channels.telegram"] == "nanobot-telegram"
    assert ours.of_kind("isolators") == ["nanobot-mcp"]


def test_a_blocked_version_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(tmp_path / "site", "bell", manifest=manifest_of("bell"))
    monkeypatch.setattr(sys, "path", [sys.path[0], str(tmp_path / "site"), *sys.path[1:]])
    block = {"name": "acme-bell", "reason": "it rings at night"}
    (tmp_path / "index.json").write_bytes(index(blocked=[block]))
    refresh_indexes(["index.json"], tmp_path, tmp_path / "cache")

    catalogue = Catalogue.load(tmp_path / "cache", PluginsSettings(enabled=["bell"]))

    condition = catalogue.selections["bell"].condition
    assert condition.state == "incompatible"
    assert condition.reason == "its version is blocked: it rings at night"
