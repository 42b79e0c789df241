"""What the documentation says holds: its commands run, its programs run, its reference is whole."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.integration.page import Command, Program, Step, WrittenFile, steps_of

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LIMIT_S = 120.0
NEEDED = (
    "nanobot_devkit",
    "nanobot_files",
    "nanobot_http",
    "nanobot_offline",
    "nanobot_openai",
    "nanobot_telegram",
)
"""What the pages use; everything else they show works with the core alone."""

TABLE_OF_CONTENTS = re.compile(r"^```\{toctree\}\n(.*?)^```$", re.MULTILINE | re.DOTALL)
HOOK_SECTION = re.compile(r"^### `(\w+)`\n\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)

PAGES = sorted(page for page in [ROOT / "README.md", *DOCS.rglob("*.md")] if any(steps_of(page)))


@dataclass(frozen=True, slots=True)
class Reader:
    """Someone who follows a page in an empty folder, with an environment of their own."""

    folder: Path
    home: Path
    python: Path
    environ: Mapping[str, str]

    def follow(self, step: Step) -> None:
        """Do one step, and fail unless it does what the page says."""
        match step:
            case Command():
                run = self._run(["bash", "-c", step.line])
                told = f"$ {step.line}\n{run.stdout}{run.stderr}"
                failed = run.returncode != 0
                assert not failed or step.expected is not None, told
                assert step.is_met_by(run.stderr if failed else run.stdout), told
            case WrittenFile():
                path = self._place(step.path)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(step.text, "utf-8")
                if path.suffix == ".py":
                    compile(step.text, step.path, "exec")
            case Program():
                run = self._run([str(self.python), "-W", "error", "-c", step.text])
                assert run.returncode == 0, f"{step.text}\n{run.stderr}"

    def _run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command,
            cwd=self.folder,
            env=self.environ,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )

    def _place(self, path: str) -> Path:
        home = "~/.nanobot/"
        return self.home / path.removeprefix(home) if path.startswith(home) else self.folder / path


@pytest.fixture(scope="session")
def environment_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A virtual environment of its own that sees everything installed in that of the tests.

    What a page installs stays there. Its ``nanobot`` is written here, because console scripts
    belong to the interpreter they were installed for.
    """
    for module in NEEDED:
        if find_spec(module) is None:
            pytest.skip(f"{module} is not installed")
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    (own,) = folder.glob("lib/python*/site-packages")
    outer = sysconfig.get_path("purelib")
    # `addsitedir` also reads the .pth files of editable installs, PYTHONPATH would not.
    (own / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n", "utf-8")
    script = folder / "bin" / "nanobot"
    script.write_text(f"#!{python}\nfrom nanobot_core.cli import main\n\nmain()\n", "utf-8")
    script.chmod(0o755)
    return folder


@pytest.fixture
def reader(environment_folder: Path, tmp_path: Path) -> Iterator[Reader]:
    folder, home = tmp_path / "reader", tmp_path / "home"
    folder.mkdir()
    kept = {name: os.environ[name] for name in ("LANG", "TMPDIR", "HOME") if name in os.environ}
    binaries = environment_folder / "bin"
    environ = {
        **kept,
        "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}",
        "NANOBOT_HOME": str(home),
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    if find_spec("hatchling") and find_spec("editables"):
        # pip takes the value for that of `build_isolation`: zero turns the isolation off.
        environ["PIP_NO_BUILD_ISOLATION"] = "0"
    found = Reader(folder, home, binaries / "python", environ)
    yield found
    if (home / "gateway" / "pid").exists():
        # The page failed between starting a gateway and stopping it.
        found.follow(Command("nanobot gateway stop", None))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_reader_who_follows_the_page_gets_what_it_shows(page: Path, reader: Reader) -> None:
    for step in steps_of(page):
        reader.follow(step)


@pytest.mark.parametrize("name", ["hooks", "settings", "testing", "tutorial"])
def test_the_code_of_a_page_for_authors_is_clean_for_ruff(name: str, tmp_path: Path) -> None:
    pytest.importorskip("ruff")
    pytest.importorskip("nanobot_devkit")
    from nanobot_devkit.naming import PluginNames
    from nanobot_devkit.scaffold import render_files

    package = tmp_path / "nanobot-weather"
    scaffold = render_files(PluginNames("weather"), "tool")
    written = {str(path): text for path, text in scaffold}
    for number, step in enumerate(steps_of(DOCS / "plugins" / f"{name}.md")):
        match step:
            case WrittenFile():
                written[step.path.removeprefix("nanobot-weather/")] = step.text
            case Program():
                written[f"{number}.py"] = step.text
    for place, text in written.items():
        (package / place).parent.mkdir(parents=True, exist_ok=True)
        (package / place).write_text(text, "utf-8")

    command = [sys.executable, "-m", "ruff", "check", "--no-cache", str(package)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout


@pytest.mark.timeout(600)
def test_the_first_command_of_the_readme_prints_what_the_readme_shows(reader: Reader) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = re.search(r"^```sh\npython3 -m pip [^&]*&& (nanobot .*)\n```$", text, re.MULTILINE)
    printed = re.search(r"^````text\n(.*?)^````$", text, re.MULTILINE | re.DOTALL)
    assert shown, "the README has lost its first command"
    assert printed, "the README does not show what its first command prints"

    in_clone = replace(reader, folder=ROOT)

    in_clone.follow(Command(shown[1], printed[1].strip()))


def test_the_configuration_of_the_readme_is_understood(reader: Reader) -> None:
    text = (ROOT / "README.md").read_text("utf-8")
    shown = re.search(r"^```yaml\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert shown, "the README does not show the configuration of a bot"

    reader.follow(Command("nanobot onboard --yes", None))
    with (reader.home / "config.yaml").open("a", encoding="utf-8") as file:
        file.write(shown[1])

    reader.follow(Command("nanobot config check", "...: valid..."))
    reader.follow(Command("nanobot channels status", "...telegram...enabled..."))


def test_each_page_is_listed_in_a_table_of_contents() -> None:
    pages = {page.relative_to(DOCS).with_suffix("").as_posix() for page in DOCS.rglob("*.md")}
    listed = {"index"}
    for page in DOCS.rglob("*.md"):
        for body in TABLE_OF_CONTENTS.findall(page.read_text("utf-8")):
            for entry in (line for line in body.splitlines() if line and line[0] != ":"):
                found = page.parent.glob(f"{entry}.md")
                listed |= {hit.relative_to(DOCS).with_suffix("").as_posix() for hit in found}

    assert sorted(pages - listed) == []


def generated(marker: str) -> str:
    """Return what pages say at a marker."""
    pages = (page.read_text("utf-8") for page in sorted(DOCS.rglob("*.md")))
    found = (page.partition(f"<!-- generate: {marker} -->\n") for page in pages)
    return next(rest.partition("\n<!-- end -->\n")[0] for _, place, rest in found if place)


def test_pages_say_what_the_code_says() -> None:
    program = "import generated, json; print(json.dumps(generated.stale()))"
    run = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(DOCS / "_ext"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr

    assert json.loads(run.stdout) == {}, "run python docs/_ext/generated.py"


def test_each_hook_stands_in_the_reference_with_its_kind_and_its_signature() -> None:
    from nanobot_core import on
    from nanobot_core.hooks.caller import declared_hooks

    reference = generated("hooks")

    sections = dict(
        re.findall(r"^### `(\w+)`\n\n(.*?)(?=^##|\Z)", reference, re.MULTILINE | re.DOTALL)
    )
    assert set(sections) == set(declared_hooks())
    for name, point in declared_hooks().items():
        assert sections[name].startswith(f"*{point.kind.value}*")
        assert f"def {name}(" in sections[name]
        assert getattr(on, name) is point


def test_each_event_of_a_hook_stands_in_the_reference_with_its_fields() -> None:
    reference = generated("events")

    assert "### `ToolCallProposed`" in reference
    assert "| `origin` | `str` | required | `plugin@version` that the tool" in reference
    assert "### `TurnInfo`" in reference, "the types of fields are documented too"


def test_each_core_setting_stands_in_the_configuration_page() -> None:
    from nanobot_core import Settings

    page = generated("core-settings")

    for section in Settings.model_fields:
        assert f"| `{section}` |" in page
    assert "| `json` | true or false | `false` |" in page, "keys are those of the file"
    assert "### `channels.<name>`" in page, "what every channel has"


def test_sections_of_plugins_stand_in_the_configuration_page_with_what_is_inside_them() -> None:
    page = generated("plugin-settings")

    telegram = page.partition("#### `channels.telegram`")[2].partition("### nanobot-")[0]
    assert "| `token` | secret text |" in telegram
    assert "#### `channels.telegram.webhook`" in telegram
    assert "`allow_from`" not in telegram, "the fields of every channel are documented once"


def test_each_setting_has_a_meaning() -> None:
    rows = (generated("core-settings") + generated("plugin-settings")).splitlines()

    unclear = [row for row in rows if row.startswith("| `") and row.endswith("|  |")]
    assert [row for row in unclear if "| section |" not in row] == []


@pytest.mark.parametrize(
    ("expected", "output", "met"),
    [
        (None, "anything", True),
        ("one", "one\n", True),
        ("one", "one two", False),
        ("one...three", "one two\nthree", True),
        ("...two", "one two", True),
        ("...two", "one two three", False),
    ],
)
def test_dots_stand_for_any_output(expected: str | None, output: str, met: bool) -> None:
    assert Command("true", expected).is_met_by(output) is met


def test_blocks_are_read_by_their_language(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        "```console\n$ one\nsaid\n$ two\n```\n\n```sh\nthree\n```\n\n"
        "```python\n# a/b.py\nx = 1\n```\n\n```python\nx = 2\n```\n\n```yaml\nx: 3\n```\n",
        "utf-8",
    )

    assert list(steps_of(page)) == [
        Command("one", "said"),
        Command("two", None),
        WrittenFile("a/b.py", "# a/b.py\nx = 1\n"),
        Program("x = 2\n"),
    ]
