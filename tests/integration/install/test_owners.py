"""Environments of uv, of pipx and of an operating system; indexes; a running gateway."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.integration.install.packages import LIMIT_S, Bench, Package
from tests.integration.install.test_add import refused

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)
UV = shutil.which("uv")


@pytest.mark.promise(18)
def test_uv_installs_upgrades_locks_and_removes(uv_bench: Bench) -> None:
    uv_bench.offer(Package(name="acme-library", code="", requires=()))
    uv_bench.offer(Package(name="nanobot-acme", requires=("nanobot-core>=0.1", "acme-library")))
    before = uv_bench.digests()

    added = uv_bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    uv_bench.nanobot("plugins", "lock")
    locked = uv_bench.digests()
    uv_bench.offer(Package(name="nanobot-acme", version="2.0"))
    upgraded = uv_bench.nanobot("plugins", "upgrade", "--yes")
    uv_bench.nanobot("plugins", "sync", "--locked", "--yes")
    restored = uv_bench.digests()
    uv_bench.nanobot("plugins", "remove", "acme", "--with-dependencies", "--yes")

    assert "with uv" in added.stdout
    assert "nanobot-acme\t1.0\t2.0" in upgraded.stdout
    inside = str(uv_bench.prefix)
    assert {k for k in restored if k.startswith(inside)} == {
        k for k in locked if k.startswith(inside)
    }
    assert {k: v for k, v in uv_bench.digests().items() if k.startswith(inside)} == before


def test_with_uv_a_failure_is_undone(uv_bench: Bench, tmp_path: Path) -> None:
    broken = Package(name="nanobot-acme", code="raise SystemExit('no')\n")
    uv_bench.offer(broken)

    assert "plugin 'acme'" in refused(uv_bench, "plugins", "add", "nanobot-acme", "--yes")
    wheel = Package(name="nanobot-acme", version="3").build(tmp_path / "local" / "out")
    uv_bench.nanobot("plugins", "add", str(wheel), "--yes")
    assert "acme\tenabled\t3" in uv_bench.nanobot("plugins", "list").stdout


def test_an_environment_of_uv_tool_or_pipx_is_recognised(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme"))
    (bench.prefix / "pipx_metadata.json").write_text("{}")

    done = bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    assert f"environment of pipx {bench.prefix}, with pip" in done.stdout
    assert "nanobot plugins sync installs it again" in done.stdout


@pytest.mark.skipif(os.geteuid() == 0, reason="nothing is read-only for root")
def test_a_read_only_environment_is_refused_with_the_line_for_an_image(bench: Bench) -> None:
    bench.site.chmod(0o555)
    try:
        error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")
    finally:
        bench.site.chmod(0o755)

    assert f"add to its Dockerfile: RUN {bench.python} -m pip install nanobot-acme" in error


def write_index(file: Path, **content: object) -> None:
    file.write_text(json.dumps({"schema_version": 1, "plugins": [], "blocked": [], **content}))


@pytest.mark.promise(39)
@pytest.mark.long
def test_an_index_is_searched_and_what_it_blocks_neither_runs_nor_is_installed(
    bench: Bench,
) -> None:
    index = bench.home / "index.json"
    entry = {"name": "nanobot-acme", "ids": ["acme"], "summary": "Rings a bell"}
    write_index(index, plugins=[entry])
    bench.config.write_text("plugins: {indexes: [index.json]}\n")
    bench.offer(Package(name="nanobot-acme"))

    found = bench.nanobot("plugins", "search", "bell", "rings").stdout
    bench.nanobot("plugins", "add", "acme", "--yes")
    listed = bench.nanobot("plugins", "list").stdout
    block = {"name": "nanobot-acme", "versions": "<2", "reason": "it rings at night"}
    write_index(index, plugins=[entry], blocked=[block])
    bench.nanobot("plugins", "search")
    index.unlink()
    blocked = bench.nanobot("plugins", "list").stdout
    bench.nanobot("plugins", "remove", "acme", "--yes")
    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "nanobot-acme\t-\tRings a bell" in found
    assert "acme\tenabled" in listed
    assert "acme\tincompatible" in blocked
    assert "this version is blocked: it rings at night" in error
    assert "its last copy is used" in error


def test_other_files_than_those_that_an_index_names_are_refused(bench: Bench) -> None:
    entry = {"name": "nanobot-acme", "ids": ["acme"], "hashes": {"1.0": "0" * 64}}
    write_index(bench.home / "index.json", plugins=[entry])
    bench.config.write_text("plugins: {indexes: [index.json]}\n")
    bench.offer(Package(name="nanobot-acme"))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "its files are not those that the index names" in error


@pytest.mark.long
def test_a_running_gateway_uses_and_stops_what_is_added_and_removed(bench: Bench) -> None:
    bench.config.write_text("gateway: {port: 0, grace_s: 1}\n")
    bench.config.chmod(0o600)
    bench.offer(Package(name="nanobot-acme"))
    gateway = subprocess.Popen(
        [str(bench.python), "-P", "-m", "nanobot_core", "gateway"],
        env=bench.variables,
        cwd=bench.home,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        for _ in range(LIMIT_S * 10):
            if (bench.home / "gateway" / "control.sock").exists():
                break
            until_next_look()
        added = bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
        running = json.loads(bench.nanobot("plugins", "status", "--json").stdout)
        removed = bench.nanobot("plugins", "remove", "acme", "--yes")
        left = json.loads(bench.nanobot("plugins", "status", "--json").stdout)
    finally:
        gateway.terminate()
        gateway.wait(LIMIT_S)

    assert "gateway: " in added.stdout
    assert {"tools": ["ask_acme"]} in [each["gives"] for each in running]
    assert removed.returncode == 0
    assert not [each for each in left if each["id"] == "acme"]


def until_next_look() -> None:
    """Give another process some time."""
    subprocess.run(["sleep", "0.1"], check=True)
