"""``nanobot plugins add`` in an environment of its own, with real wheels."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from nanobot_core import __version__
from nanobot_core.plugins.index import MANIFEST_FILE
from tests.integration.install.packages import GATE, TOOL, Bench, Package, tool_manifest

MARKED = "from pathlib import Path\nPath(__file__).with_name('imported').touch()\n"

# Each test runs several installers.
pytestmark = pytest.mark.timeout(240)


def refused(bench: Bench, *arguments: str) -> str:
    """Run a command that must fail and change nothing; return its error."""
    before = bench.digests()

    done = bench.nanobot(*arguments, code=1)

    assert bench.digests() == before
    assert not (bench.home / "installing").exists()
    assert "Traceback" not in done.stderr
    return done.stderr


@pytest.mark.promise(18, 25)
def test_a_name_is_resolved_shown_installed_and_enabled(bench: Bench) -> None:
    bench.config.write_text("# mine\nplugins: {policy: listed}\n")
    bench.offer(Package(name="acme-library", code="", requires=()))
    bench.offer(
        Package(
            name="nanobot-acme",
            requires=("nanobot-core>=0.1", "acme-library>=1"),
            manifest=tool_manifest(capabilities=("rings a bell",)),
        )
    )

    done = bench.nanobot("plugins", "add", "nanobot-acme>=0.5", "--yes")

    assert f"interpreter: {bench.python}" in done.stdout
    assert "acme-library\t-\t1.0\nnanobot-acme\t-\t1.0" in done.stdout
    assert "acme (nanobot-acme 1.0) reaches: rings a bell, gives the model tools" in done.stdout
    assert "acme\tenabled\t1.0\ttools ask_acme" in bench.nanobot("plugins", "list").stdout
    text = bench.config.read_text()
    assert text.startswith("# mine")
    assert "nanobot-acme>=0.5" in text
    assert json.loads((bench.home / "plugins" / "consent.json").read_text())["acme"]
    assert not list(bench.site.rglob("*.pyc"))


def test_without_a_terminal_and_without_yes_nothing_is_installed(bench: Bench) -> None:
    wheel = bench.offer(Package(name="nanobot-acme", code=MARKED + TOOL.format(name="ask_acme")))

    error = refused(bench, "plugins", "add", str(wheel))

    assert "add --yes if you have read what is shown" in error


@pytest.mark.long
def test_what_is_installed_already_is_not_installed_again(bench: Bench) -> None:
    wheel = bench.offer(Package(name="nanobot-acme"))
    bench.nanobot("install", str(wheel), "--yes")
    before = bench.digests()

    done = bench.nanobot("install", str(wheel), "--yes")

    assert "nanobot-acme is up to date here" in done.stdout
    assert bench.digests() == before


@pytest.mark.long
def test_a_wheel_of_the_same_version_with_other_files_replaces_the_installed_one(
    bench: Bench, tmp_path: Path
) -> None:
    first = Package(name="nanobot-acme").build(tmp_path / "first" / "out")
    other = Package(name="nanobot-acme", code=TOOL.format(name="ask_other"))
    second = other.build(tmp_path / "second" / "out")
    bench.nanobot("plugins", "add", str(first), "--yes")

    bench.nanobot("plugins", "add", str(second), "--yes")

    assert "ask_other" in bench.nanobot("plugins", "list").stdout
    assert not list(bench.site.glob("*/direct_url.json"))


@pytest.mark.long
def test_a_folder_is_built_and_the_result_is_json(bench: Bench, tmp_path: Path) -> None:
    folder = Package(name="nanobot-acme").write(tmp_path)

    done = bench.nanobot("plugins", "add", str(folder), "--yes", "--json")

    data = json.loads(done.stdout)
    assert data["changes"] == [{"name": "nanobot-acme", "before": "", "after": "1.0"}]
    assert data["plugins"][0]["id"] == "acme"
    assert data["todo"] == []
    assert f"nanobot-acme @ file:{folder}" in bench.config.read_text()


@pytest.mark.long
def test_a_file_is_named_in_the_configuration_and_stays_where_it_is(
    bench: Bench, tmp_path: Path
) -> None:
    file = tmp_path / "dice.py"
    file.write_text(TOOL.format(name="roll_dice"))

    done = bench.nanobot("plugins", "add", "./dice.py", "--yes")

    assert "dice" in done.stdout
    assert "roll_dice" in bench.nanobot("plugins", "list").stdout
    assert bench.nanobot("plugins", "remove", "dice", "--yes").returncode == 0
    assert file.exists()
    assert "roll_dice" not in bench.nanobot("plugins", "list").stdout


def test_a_file_that_does_not_import_is_not_added(bench: Bench, tmp_path: Path) -> None:
    (tmp_path / "dice.py").write_text("import no_such_module\n")

    assert "no_such_module" in refused(bench, "plugins", "add", "./dice.py", "--yes")


def test_the_manifest_of_a_wheel_is_read_without_importing_it(bench: Bench) -> None:
    wheel = bench.offer(
        Package(
            name="nanobot-acme",
            code=f"from pathlib import Path\nPath({str(bench.home / 'imported')!r}).touch()\n",
            manifest=tool_manifest(capabilities=("rings a bell",)),
        )
    )

    done = bench.nanobot("plugins", "add", str(wheel), code=1)

    assert "rings a bell" in done.stdout
    assert not (bench.home / "imported").exists()


def test_a_truncated_wheel_is_refused(bench: Bench) -> None:
    wheel = bench.offer(Package(name="nanobot-acme"))
    wheel.write_bytes(wheel.read_bytes()[:-200])

    assert "it cannot be read" in refused(bench, "plugins", "add", str(wheel), "--yes")


def test_a_wheel_with_changed_code_is_refused(bench: Bench, tmp_path: Path) -> None:
    wheel = bench.offer(Package(name="nanobot-acme"))
    changed = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for info in old.infolist():
            content = old.read(info)
            is_code = info.filename.endswith("plugin.py")
            new.writestr(info, content + b"# more\n" if is_code else content)

    error = refused(bench, "plugins", "add", str(changed), "--yes")

    assert "'nanobot_acme/plugin.py' differs from its RECORD" in error


def test_a_wheel_with_the_name_of_another_one_is_refused(bench: Bench, tmp_path: Path) -> None:
    wheel = bench.offer(Package(name="nanobot-acme"))
    renamed = wheel.rename(tmp_path / wheel.name.replace("acme", "files"))

    error = refused(bench, "plugins", "add", str(renamed), "--yes")

    assert "its metadata is that of nanobot-acme 1.0, its file name says nanobot-files 1.0" in error


def test_a_distribution_without_a_plugin_is_refused(bench: Bench) -> None:
    bench.offer(Package(name="acme-library", code="", requires=()))

    error = refused(bench, "plugins", "add", "acme-library", "--yes")

    assert "acme-library 1.0: it has no plugin" in error


@pytest.mark.parametrize("path", ["acme.pth", "sitecustomize.py"])
def test_what_runs_at_each_start_of_python_is_refused(bench: Bench, path: str) -> None:
    bench.offer(Package(name="acme-library", code="", requires=(), files={path: "import os\n"}))
    bench.offer(Package(name="nanobot-acme", requires=("acme-library",)))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert f"it contains '{path}', which runs at each start of Python" in error


def test_a_name_one_letter_away_from_a_published_one_is_refused(bench: Bench) -> None:
    wheel = bench.offer(Package(name="nanobot-telegran"))

    for named in ("nanobot-telegran", str(wheel)):
        error = refused(bench, "plugins", "add", named, "--yes")
        assert "did you mean 'nanobot-telegram'?" in error


def test_an_unavailable_dependency_is_named(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", requires=("acme-absent>=2",)))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "acme-absent>=2" in error


@pytest.mark.promise(19, 22)
@pytest.mark.long
def test_a_plugin_for_another_core_is_refused_with_both_versions(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", requires=("nanobot-core>=9",)))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert (
        f"nanobot-acme requires nanobot-core>=9, and nanobot-core {__version__} is installed"
        in error
    )


@pytest.mark.long
def test_an_older_version_that_fits_is_chosen(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", version="1.0"))
    bench.offer(Package(name="nanobot-acme", version="2.0", requires=("nanobot-core>=9",)))

    done = bench.nanobot("plugins", "add", "nanobot-acme", "--yes")

    assert "nanobot-acme 1.0 is installed" in done.stdout


@pytest.mark.promise(19)
def test_what_would_break_another_plugin_is_refused_with_both_requirements(bench: Bench) -> None:
    for version in ("1.0", "2.0"):
        library = Package(name="acme-library", version=version, code="", requires=())
        bench.offer(library)
    bench.offer(Package(name="nanobot-acme", requires=("acme-library<2",)))
    bench.nanobot("plugins", "add", "nanobot-acme", "--yes")
    other = Package(
        name="nanobot-other",
        plugin_id="other",
        requires=("acme-library>=2",),
        code=TOOL.format(name="ask_other"),
    )
    bench.offer(other)

    error = refused(bench, "plugins", "add", "nanobot-other", "--yes")

    assert "nanobot-acme requires acme-library<2" in error
    assert "nanobot-other 1.0 requires acme-library>=2" in error


@pytest.mark.long
def test_the_id_of_an_installed_plugin_is_refused_for_another_distribution(bench: Bench) -> None:
    bench.nanobot("plugins", "add", str(bench.offer(Package(name="nanobot-acme"))), "--yes")
    bench.offer(Package(name="copy-of-acme"))

    error = refused(bench, "plugins", "add", "copy-of-acme", "--yes")

    assert "its plugin id 'acme' is that of nanobot-acme, which is installed" in error


@pytest.mark.long
def test_files_of_another_distribution_are_not_overwritten(bench: Bench) -> None:
    bench.nanobot("plugins", "add", str(bench.offer(Package(name="nanobot-acme"))), "--yes")
    bench.offer(
        Package(
            name="nanobot-other",
            plugin_id="other",
            code=TOOL.format(name="ask_other"),
            files={"nanobot_acme/plugin.py": "# taken over\n"},
        )
    )

    error = refused(bench, "plugins", "add", "nanobot-other", "--yes")

    assert "it would overwrite" in error
    assert "a file of nanobot-acme" in error


def test_a_crash_at_the_first_import_is_undone(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", code="raise SystemExit('no')\n"))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "plugin 'acme'" in error


def test_a_plugin_that_does_not_start_is_undone(bench: Bench) -> None:
    bench.config.write_text("# mine\nplugins: {policy: listed}\n")
    start = "@on.start\nasync def start(ctx):\n    raise RuntimeError('no bell')\n"
    bench.offer(Package(name="nanobot-acme", code=TOOL.format(name="ask_acme") + start))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "no bell" in error


@pytest.mark.long
def test_a_plugin_that_is_not_healthy_is_undone(bench: Bench) -> None:
    health = (
        "from nanobot_core import Health\n"
        "@on.check_health\nasync def check_health(ctx):\n"
        "    return Health(ok=False, message='the bell is broken')\n"
    )
    bench.offer(Package(name="nanobot-acme", code=TOOL.format(name="ask_acme") + health))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "the bell is broken" in error


def test_code_that_reaches_more_than_the_manifest_says_is_undone(bench: Bench) -> None:
    code = TOOL.format(name="ask_acme") + GATE
    bench.offer(Package(name="nanobot-acme", code=code, manifest=tool_manifest()))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "its code reaches more than its manifest says" in error


def test_a_damaged_manifest_is_refused(bench: Bench) -> None:
    bench.offer(Package(name="nanobot-acme", manifest='{"schema_version": 7}'))

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "its manifest cannot be used" in error
    assert MANIFEST_FILE not in error


def test_without_a_network_the_index_is_named_without_its_password(bench: Bench) -> None:
    del bench.variables["PIP_NO_INDEX"]
    bench.variables["PIP_INDEX_URL"] = "http://me:hidden@127.0.0.1:9/index"
    bench.variables["PIP_RETRIES"] = "0"

    error = refused(bench, "plugins", "add", "nanobot-acme", "--yes")

    assert "nanobot-acme" in error
    assert "hidden" not in error


def test_a_full_disk_changes_nothing(bench: Bench) -> None:
    big = {"nanobot_acme/table.txt": "x" * 3_000_000}
    wheel = bench.offer(Package(name="nanobot-acme", files=big))
    limited = (
        "import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (2**20, 2**20));"
        f"sys.argv[1:] = ['plugins', 'add', {str(wheel)!r}, '--yes'];"
        "runpy.run_module('nanobot_core', run_name='__main__')"
    )
    before = bench.digests()

    done = bench.run("-c", limited, code=1)

    assert "File too large" in done.stderr
    assert bench.digests() == before


def test_an_address_is_refused_and_its_password_is_not_shown(bench: Bench) -> None:
    address = "nanobot-acme @ https://me:hidden@example.invalid/x.whl"

    error = refused(bench, "plugins", "add", address, "--yes")

    assert "addresses are not supported" in error
    assert "hidden" not in error
