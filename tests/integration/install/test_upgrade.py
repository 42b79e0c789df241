"""``nanobot plugins upgrade`` and ``remove``."""

from __future__ import annotations

import pytest

from tests.integration.cli.terminal import Terminal
from tests.integration.install.packages import GATE, TOOL, Bench, Package, tool_manifest
from tests.integration.install.test_add import refused

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)


def tool(version: str, *, gate: bool = False) -> Package:
    """Return a version of the plugin; one with a gate reaches more."""
    code = TOOL.format(name="ask_acme") + (GATE if gate else "")
    return Package(name="nanobot-acme", version=version, code=code)


def described(version: str, *capabilities: str) -> Package:
    manifest = tool_manifest(capabilities=capabilities)
    return Package(name="nanobot-acme", version=version, manifest=manifest)


def test_an_upgrade_shows_both_versions_and_replaces_the_plugin(bench: Bench) -> None:
    bench.offer(tool("1.0"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.offer(tool("2.0"))

    done = bench.nanobot("plugins", "upgrade", "--yes")

    assert "nanobot-acme\t1.0\t2.0" in done.stdout
    assert "acme\tenabled\t2.0" in bench.nanobot("plugins", "list").stdout
    assert "up to date" in bench.nanobot("plugins", "upgrade", "acme", "--yes").stdout


@pytest.mark.promise(25)
def test_an_upgrade_that_reaches_more_needs_an_answer_that_yes_does_not_give(
    bench: Bench,
) -> None:
    bench.offer(described("1.0"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.offer(described("2.0", "rings a bell"))

    error = refused(bench, "plugins", "upgrade", "acme", "--yes")

    assert "it reaches more than you have agreed to: rings a bell" in error


@pytest.mark.long
def test_at_a_terminal_the_owner_agrees_to_more(bench: Bench) -> None:
    bench.offer(described("1.0"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.offer(described("2.0", "rings a bell"))
    command = [str(bench.python), "-P", "-m", "nanobot_core", "plugins", "upgrade", "acme"]

    with Terminal(command, bench.variables) as terminal:
        terminal.expect("Agree?")
        terminal.send("y\r")
        terminal.expect("Install this?")
        terminal.send("y\r")
        terminal.expect("nanobot-acme 2.0 is installed")
        assert terminal.wait() == 0

    assert "acme\tenabled\t2.0" in bench.nanobot("plugins", "list").stdout


@pytest.mark.long
def test_an_undescribed_upgrade_that_reaches_more_is_asked_about_after_its_examination(
    bench: Bench,
) -> None:
    bench.offer(tool("1.0"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    bench.offer(tool("2.0", gate=True))

    error = refused(bench, "plugins", "upgrade", "acme", "--yes")

    assert "it reaches more than you have agreed to: reads and changes messages" in error


def test_a_plugin_is_removed_with_all_that_names_it(bench: Bench) -> None:
    bench.config.write_text("# mine\nplugins: {policy: listed}\n")
    before = bench.digests()
    bench.offer(Package(name="acme-library", code="", requires=()))
    bench.offer(Package(name="nanobot-acme", requires=("acme-library",)))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    kept = bench.nanobot("plugins", "remove", "acme", code=1)
    done = bench.nanobot("plugins", "remove", "acme", "--with-dependencies", "--yes")

    assert "no longer required, and kept without --with-dependencies: acme-library" in kept.stdout
    assert "acme is removed" in done.stdout
    left = bench.digests()
    own = (str(bench.config), str(bench.home / "plugins"))
    assert {k: v for k, v in left.items() if not k.startswith(own)} == {
        k: v for k, v in before.items() if not k.startswith(own)
    }
    assert "acme" not in bench.config.read_text()
    assert "acme" not in (bench.home / "plugins" / "consent.json").read_text()


@pytest.mark.promise(13)
@pytest.mark.parametrize(
    "damage",
    [
        pytest.param("nanobot_acme/plugin.py", marks=pytest.mark.long),
        pytest.param("nanobot_acme-1.0.dist-info/entry_points.txt", marks=pytest.mark.long),
        "nanobot_acme-1.0.dist-info/METADATA",
    ],
)
def test_a_broken_plugin_can_be_removed(bench: Bench, damage: str) -> None:
    bench.offer(Package(name="nanobot-acme"))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    text = "Name: nanobot-acme\nVersion: 1.0\n" if damage.endswith("METADATA") else "[[ not (valid"
    (bench.site / damage).write_text(text)

    bench.nanobot("plugins", "remove", "nanobot-acme", "--yes")

    assert not (bench.site / "nanobot_acme").exists()


@pytest.mark.long
def test_what_another_plugin_requires_is_not_removed(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme"))
    other = Package(
        name="nanobot-other",
        plugin_id="other",
        requires=("nanobot-acme",),
        code=TOOL.format(name="ask_other"),
    )
    bench.offer(other)
    bench.nanobot("plugins", "add", "nanobot-other", "--yes")

    error = refused(bench, "plugins", "remove", "acme", "--yes")

    assert "nanobot-other requires it; remove nanobot-other first" in error


def test_the_core_and_a_library_are_not_plugins(bench: Bench) -> None:
    assert "not installed" in refused(bench, "plugins", "remove", "nanobot-core", "--yes")
    assert "not installed" in refused(bench, "plugins", "remove", "pydantic", "--yes")
