"""``nanobot plugins sync`` and ``lock``, and what differs from the lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.integration.install.packages import TOOL, Bench, Package
from tests.integration.install.test_add import refused

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)


@pytest.mark.long
def test_sync_installs_what_the_configuration_names_and_is_missing(
    bench: Bench, tmp_path: Path
) -> None:
    bench.offer(Package(name="nanobot-acme"))
    other = Package(name="nanobot-other", plugin_id="other", code=TOOL.format(name="ask_other"))
    folder = other.write(tmp_path)
    text = (
        "# mine\nplugins:\n  policy: direct\n"
        f"  install: ['nanobot-acme>=1', 'nanobot-other @ file:../{folder.name}']\n"
    )
    bench.config.write_text(text)

    done = bench.nanobot("plugins", "sync", "--yes")

    listed = bench.nanobot("plugins", "list").stdout
    assert "nanobot-other 1.0 is installed" in done.stdout
    assert "acme\tenabled\t1.0" in listed
    assert "other\tenabled\t1.0" in listed
    assert bench.config.read_text() == text
    assert "nothing to install" in bench.nanobot("plugins", "sync").stdout


def test_sync_names_a_folder_that_does_not_exist(bench: Bench) -> None:
    bench.config.write_text("plugins: {install: ['nanobot-other @ file:absent']}\n")

    assert "no such file" in refused(bench, "plugins", "sync", "--yes")


@pytest.mark.promise(40)
def test_the_lock_has_names_versions_and_digests_and_differences_are_reported(
    bench: Bench,
) -> None:
    bench.offer(Package(name="acme-library", code="", requires=()))
    bench.offer(Package(name="nanobot-acme", requires=("acme-library",)))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    bench.nanobot("plugins", "lock")
    unchanged = bench.nanobot("plugins", "status").stderr
    lock = json.loads((bench.home / "nanobot.lock").read_text())
    bench.offer(Package(name="nanobot-acme", version="2.0", requires=()))
    bench.nanobot("plugins", "upgrade", "--yes")
    status = bench.nanobot("plugins", "status").stderr
    doctor = bench.nanobot("doctor", code=1).stdout

    assert set(lock["distributions"]) == {"acme-library", "nanobot-acme"}
    assert len(lock["distributions"]["nanobot-acme"]["digest"]) == 64
    assert str(bench.wheels) not in (bench.home / "nanobot.lock").read_text()
    assert "nanobot.lock" not in unchanged
    expected = "changed since nanobot.lock: acme-library 1.0 is missing"
    for text in (status, doctor):
        assert expected in text
        assert "nanobot-acme 1.0 is now 2.0" in text


@pytest.mark.promise(40)
@pytest.mark.long
def test_sync_locked_restores_exactly_what_was_locked(bench: Bench) -> None:
    bench.offer(Package(name="acme-library", code="", requires=()))
    bench.offer(Package(name="nanobot-acme", requires=("acme-library",)))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.nanobot("plugins", "lock")
    locked = bench.digests()
    bench.nanobot("plugins", "remove", "acme", "--with-dependencies", "--yes")
    bench.offer(Package(name="acme-library", version="2.0", code="", requires=()))
    bench.offer(Package(name="nanobot-acme", version="2.0"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    done = bench.nanobot("plugins", "sync", "--locked", "--yes")

    assert "nanobot-acme\t2.0\t1.0" in done.stdout
    assert "acme-library\t-\t1.0" in done.stdout
    assert {k: v for k, v in bench.digests().items() if k.startswith(str(bench.prefix))} == {
        k: v for k, v in locked.items() if k.startswith(str(bench.prefix))
    }


@pytest.mark.long
def test_sync_locked_refuses_other_files_of_the_same_version(bench: Bench, tmp_path: Path) -> None:
    bench.offer(Package(name="nanobot-acme"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.nanobot("plugins", "lock")
    bench.nanobot("plugins", "remove", "acme", "--yes")
    other = Package(name="nanobot-acme", code=TOOL.format(name="ask_other"))
    bench.variables["PIP_FIND_LINKS"] = str(other.build(tmp_path / "others" / "out").parent)

    error = refused(bench, "plugins", "sync", "--locked", "--yes")

    assert "nanobot-acme 1.0: its files are not those in nanobot.lock" in error


def test_sync_locked_without_a_lock_names_the_command_that_writes_it(bench: Bench) -> None:
    assert "nanobot plugins lock" in refused(bench, "plugins", "sync", "--locked", "--yes")


def test_a_damaged_lock_is_reported(bench: Bench) -> None:
    (bench.home / "nanobot.lock").write_text("{")

    error = refused(bench, "plugins", "sync", "--locked", "--yes")

    assert "it cannot be read, or has another format" in error
