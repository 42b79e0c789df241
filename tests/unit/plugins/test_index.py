"""What is installed is found from metadata alone, quickly, and told truthfully."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import __version__
from nanobot_core.plugins.index import (
    MANIFEST_FILE,
    InstalledPlugin,
    load_installed,
    local_plugins,
    scan_installed,
    search_path,
)
from tests.distributions import manifest_of, tool_declaration, write_distribution, write_plugin

Found = Callable[[str], InstalledPlugin]
RAISES = "raise RuntimeError('imported')\n"


def in_child(site: Path, code: str, *, cwd: Path | None = None) -> str:
    """Run `code` in a fresh Python whose search path begins with `site`."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), *sys.path[1:]])}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        env=environment,
        cwd=cwd or site,
    )
    return done.stdout


@pytest.mark.promise(1)
def test_a_plugin_is_described_without_being_imported(site: Path, cache: Path) -> None:
    declaration = tool_declaration("weigh")
    write_plugin(
        site, "scales", code=RAISES, manifest=manifest_of("scales", declarations=[declaration])
    )

    told = in_child(
        site,
        "import json, sys\nfrom pathlib import Path\n"
        "from nanobot_core.plugins.index import local_plugins, load_installed\n"
        f"found = {{p.id: p for p in load_installed(Path({str(cache)!r}))}}['scales']\n"
        "print(json.dumps([found.version, found.summary, found.target,\n"
        "    [d.name for d in found.manifest.of_kind('tools')],\n"
        "    [name for name in sys.modules if name.startswith('acme_')]]))",
    )

    assert json.loads(told) == ["1.0", "A stranger", "acme_scales.plugin", ["weigh"], []]


def test_a_plugin_without_a_manifest_is_undescribed(site: Path, found: Found) -> None:
    write_plugin(site, "bare", code=RAISES)

    assert found("bare").manifest is None
    assert found("bare").problem == ""


def test_the_index_is_used_while_the_environment_stays_the_same(
    site: Path, cache: Path, found: Found
) -> None:
    write_plugin(site, "old", manifest=manifest_of("old"))
    load_installed(cache)
    index = cache / "plugins.json"
    index.write_text(index.read_text().replace("A stranger", "From the index"))

    assert found("old").summary == "From the index"


def test_an_installation_is_noticed(site: Path, cache: Path, found: Found) -> None:
    load_installed(cache)
    write_plugin(site, "late", manifest=manifest_of("late"))

    assert found("late").id == "late"


@pytest.mark.parametrize(
    "damage",
    [
        "",
        "{",
        "[]",
        "null",
        '{"key": 1}',
        "\x00\xff",
        "[" * 100_000,
        pytest.param("plugins", id="odd-plugins"),
        pytest.param("manifest", id="odd-manifest"),
    ],
)
def test_a_damaged_index_is_built_anew(site: Path, cache: Path, found: Found, damage: str) -> None:
    write_plugin(site, "sound", manifest=manifest_of("sound"))
    load_installed(cache)
    index = cache / "plugins.json"
    if damage in {"plugins", "manifest"}:
        data = json.loads(index.read_text())
        data["plugins"] = [1] if damage == "plugins" else [{"id": "x", "manifest": {"facts": 1}}]
        damage = json.dumps(data)
    index.write_text(damage)

    assert found("sound").manifest is not None
    assert json.loads(index.read_text())["plugins"]


def test_a_folder_that_cannot_be_written_costs_only_time(
    site: Path, tmp_path: Path, found: Found, cache: Path
) -> None:
    write_plugin(site, "sound", manifest=manifest_of("sound"))
    cache.parent.mkdir(parents=True)
    cache.write_text("a file where the folder should be")

    assert found("sound").manifest is not None


def test_a_failed_write_leaves_nothing_behind(
    site: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)

    load_installed(cache)

    assert list(cache.iterdir()) == []


def edit(info: Path) -> None:
    """Mark a distribution as a working copy, as installers do."""
    (info / "direct_url.json").write_text('{"dir_info": {"editable": true}, "url": "file:///x"}')


def test_the_manifest_of_a_working_copy_is_read_each_time(site: Path, found: Found) -> None:
    package = write_plugin(site, "copy", manifest=manifest_of("copy"))
    edit(site / "acme_copy-1.0.dist-info")
    first = found("copy").manifest

    declared = manifest_of("copy", declarations=[tool_declaration("new")])
    (package / MANIFEST_FILE).write_text(json.dumps(declared))
    second = found("copy").manifest
    (package / MANIFEST_FILE).write_text("{")
    broken = found("copy")
    (package / MANIFEST_FILE).unlink()
    gone = found("copy")
    (package / MANIFEST_FILE).write_text(json.dumps(manifest_of("copy")))

    assert first is not None
    assert first.declarations == ()
    assert second is not None
    assert [item.name for item in second.declarations] == ["new"]
    assert broken.manifest is None
    assert "run nanobot plugins build" in broken.problem
    assert (gone.manifest, gone.problem) == (None, "")
    assert found("copy").manifest == first


def test_a_working_copy_in_another_folder_is_found_through_the_path(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, found: Found
) -> None:
    source = tmp_path / "source"
    write_plugin(source, "away", manifest=manifest_of("away"))
    (source / "acme_away-1.0.dist-info").rename(site / "acme_away-1.0.dist-info")
    edit(site / "acme_away-1.0.dist-info")
    monkeypatch.setattr(sys, "path", [*sys.path, str(source)])

    assert found("away").manifest is not None
    assert found("away").manifest_file == str(source / "acme_away" / MANIFEST_FILE)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("{", "cannot be used"),
        ("[]", "schema_version must be 1, found None"),
        ('{"schema_version": 99}', "schema_version must be 1, found 99"),
        ('{"id": "other", "schema_version": 1}', "it is that of 'other'"),
        ('{"id": "odd", "schema_version": 1, "surprise": 1}', "surprise"),
        ("[" * 100_000, "cannot be used"),
    ],
)
def test_a_bad_manifest_is_a_problem_of_its_plugin_alone(
    site: Path, found: Found, text: str, reason: str
) -> None:
    write_plugin(site, "odd", manifest=text)
    write_plugin(site, "even", manifest=manifest_of("even"))

    expected = reason.replace("it is that", "its manifest is that")
    assert expected in found("odd").problem
    assert "run nanobot plugins build" in found("odd").problem
    assert found("even").problem == ""


@pytest.mark.promise(27)
def test_one_id_of_two_distributions_is_refused_and_both_are_named(
    site: Path, found: Found
) -> None:
    write_plugin(site, "twin", manifest=manifest_of("twin"))
    entry_points = "[nanobot]\ntwin = other.plugin\n"
    write_distribution(site, "acme-other", entry_points=entry_points)

    assert found("twin").problem == "id 'twin' is claimed by acme-other and acme-twin"


@pytest.mark.parametrize("plugin_id", ["../escape", "Upper", "with space", "-dash", "x" * 65])
def test_an_id_that_could_name_other_folders_is_refused(
    site: Path, found: Found, plugin_id: str
) -> None:
    entry_points = f"[nanobot]\n{plugin_id} = other.plugin\n"
    write_distribution(site, "acme-other", entry_points=entry_points)

    assert "is not usable" in found(plugin_id).problem


@pytest.mark.promise(22)
@pytest.mark.parametrize(
    ("requires", "python", "problem"),
    [
        (["nanobot-core>=99"], "", f"it needs nanobot-core>=99, installed is {__version__}"),
        ([], ">=3.99", "it needs Python >=3.99, this is"),
        (["no-such-thing>=1"], "", "it needs no-such-thing, which is not installed"),
        (["pluggy<1"], "", "it needs pluggy<1, installed is"),
        (["no-such-thing; extra == 'more'"], "", ""),
        (["no-such-thing; sys_platform == 'vms'"], "", ""),
        (["not a requirement !"], "not a version", ""),
        (["nanobot-core>=0.1,<99", "pluggy"], ">=3.11", ""),
    ],
)
def test_what_does_not_fit_this_environment_is_told_before_import(
    site: Path, found: Found, requires: list[str], python: str, problem: str
) -> None:
    write_plugin(
        site, "fit", code=RAISES, manifest=manifest_of("fit"), requires=requires, python=python
    )

    assert found("fit").problem.startswith(problem)
    assert bool(found("fit").problem) == bool(problem)


@pytest.mark.promise(22)
def test_all_that_does_not_fit_stands_in_one_message(site: Path, found: Found) -> None:
    write_plugin(site, "fit", requires=["nanobot-core>=99", "no-such-thing"], python=">=3.99")

    assert found("fit").problem.count(";") == 2


@pytest.mark.promise(17)
def test_only_dependencies_of_others_are_indirect(site: Path, found: Found) -> None:
    write_plugin(site, "wanted")
    write_plugin(site, "carried")
    write_plugin(site, "optional")
    write_plugin(site, "ours")
    needs = ["acme-carried", "Acme.Ours>=1", "acme-optional; extra == 'all'"]
    write_distribution(site, "someones-application", requires=needs)
    extras = ["acme-ours; extra == 'standard'", "pluggy>=1"]
    write_distribution(site, "nanobot-core", requires=extras)

    direct = {name: found(name).direct for name in ("wanted", "carried", "optional", "ours")}

    assert direct == {"wanted": True, "carried": False, "optional": True, "ours": True}
    assert found("ours").bundled
    assert not found("wanted").bundled


def test_a_damaged_distribution_is_no_concern_of_the_others(site: Path, found: Found) -> None:
    write_plugin(site, "sound")
    (site / "leftover-1.0.dist-info").mkdir()
    write_distribution(site, "acme-garbage", entry_points="[nanobot\nno = sense = here\x00\n\x01")

    assert found("sound").problem == ""


@pytest.mark.parametrize("start", ["-c", "-m"])
def test_nothing_is_found_in_the_current_directory(tmp_path: Path, cache: Path, start: str) -> None:
    workspace = tmp_path / "workspace"
    write_plugin(workspace, "lurking", code=RAISES, manifest=manifest_of("lurking"))
    (workspace / "look.py").write_text(
        "from nanobot_core.plugins.index import local_plugins, scan_installed\n"
        "print([plugin.id for plugin in scan_installed()])\n"
    )
    what = "look" if start == "-m" else (workspace / "look.py").read_text()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path[1:])}

    done = subprocess.run(
        [sys.executable, start, what],
        capture_output=True,
        text=True,
        check=True,
        timeout=50,
        cwd=workspace,
        env=environment,
    )

    assert "lurking" not in done.stdout
    assert done.stdout.startswith("[")


def test_the_search_path_leaves_out_the_current_directory_only_in_front(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), "", "/somewhere", str(tmp_path)])

    assert search_path() == ["/somewhere", str(tmp_path)]


def test_a_scan_and_the_index_agree(site: Path, cache: Path) -> None:
    write_plugin(site, "sound", manifest=manifest_of("sound", when={"before_turn": "channel:x"}))

    assert load_installed(cache) == load_installed(cache) == scan_installed()


@pytest.mark.promise(17)
def test_a_requested_plugin_stays_direct_when_another_package_requires_it(
    site: Path, found: Found
) -> None:
    write_plugin(site, "base")
    (site / "acme_base-1.0.dist-info" / "REQUESTED").write_text("")

    write_plugin(site, "extension", requires=["acme-base"])

    assert found("base").direct


def test_a_local_file_of_an_unknown_user_is_a_problem_of_that_plugin(tmp_path: Path) -> None:
    (plugin,) = local_plugins(["~no-such-user/dice.py"], tmp_path)

    assert "does not exist" in plugin.problem
