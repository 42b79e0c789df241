from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from shutil import copytree

import pytest

from nanobot_core import CliGroup, Declaration, Manifest, manifest_to_json
from tests.integration.cli.prepared import Starter
from tests.integration.cli.terminal import LIMIT_S, Terminal

REPOSITORY = Path(__file__).parents[3]
SITE = Path(__file__).parent / "site"
COMMAND = (sys.executable, "-m", "nanobot_core")
CONFIG = """\
agents: {defaults: {model: scripted-1}}
providers: {scripted: {api_key: key-of-the-test-7}}
plugins: {policy: listed, enabled: [scripted, extras]}
"""


@dataclass(frozen=True)
class CommandLine:
    """``nanobot`` with a home of its own.

    Attributes:
        home: nanobot's folder.
        environ: environment variables.
        command: what starts it.
        changes: more environment variables.
        folder: where it is started; ``None`` is here.
        starter: starts `COMMAND` with its modules loaded; ``None`` starts Python.
    """

    home: Path
    environ: Mapping[str, str]
    command: tuple[str, ...] = COMMAND
    changes: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None
    starter: Starter | None = None

    def __call__(
        self, *args: str, stdin: str | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, which must end with `code`; without `stdin` it gets no input at all."""
        environ = {**self.environ, **self.changes}
        if self.starter and self.command == COMMAND and self.starter.can_start(environ, stdin):
            done = self.starter.run(args, environ, self.folder, stdin, LIMIT_S)
        else:
            done = subprocess.run(
                [*self.command, *args],
                env=environ,
                input=stdin,
                stdin=subprocess.DEVNULL if stdin is None else None,
                cwd=self.folder,
                capture_output=True,
                text=True,
                timeout=LIMIT_S,
                check=False,
            )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done

    def on_terminal(self, *args: str) -> Terminal:
        return Terminal([*self.command, *args], {**self.environ, **self.changes})

    def own_site(self) -> Path:
        """Return a folder for packages that this command line has besides the others."""
        folder = self.home.parent / "installed"
        folder.mkdir(exist_ok=True)
        self.changes["PYTHONPATH"] = f"{self.environ['PYTHONPATH']}{os.pathsep}{folder}"
        return folder

    def configure(self, text: str) -> Path:
        file = self.home / "config.yaml"
        file.write_text(text)
        file.chmod(0o600)
        return file


@pytest.fixture(scope="session")
def starter() -> Iterator[Starter]:
    with Starter({"PATH": os.environ["PATH"], "PYTHONWARNINGS": "error"}) as started:
        yield started


@pytest.fixture
def bare(tmp_path: Path, starter: Starter) -> CommandLine:
    """The command line with an empty home and no plugins but those of the environment."""
    home = tmp_path / "home"
    home.mkdir()
    return CommandLine(home, _environment(home), starter=starter)


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The packages of `SITE` as an installer leaves them, and one that is only described."""
    groups = [
        CliGroup(name="extras", summary="Works.", app="scripted_plugin.commands:app"),
        CliGroup(name="ruin", summary="Is broken.", app="scripted_plugin.absent:app"),
        CliGroup(name="agent", summary="Wants a core name.", app="scripted_plugin.commands:app"),
    ]
    declarations = tuple(
        Declaration(
            "cli",
            group.name,
            group.summary,
            {"name": group.name, "summary": group.summary, "app": group.app, "parent": ""},
        )
        for group in groups
    )
    folder = tmp_path_factory.mktemp("installed")
    package = folder / "extras_data"
    package.mkdir()
    manifest = manifest_to_json(Manifest(id="extras", declarations=declarations))
    (package / "nanobot-plugin.json").write_text(json.dumps(manifest))
    _install(folder, "nanobot-scripted", "[nanobot]\nscripted = scripted_plugin.plugin\n")
    _install(
        folder,
        "nanobot-extras",
        "[nanobot]\nextras = scripted_plugin.extras\n[nanobot.manifest]\nextras = extras_data\n",
    )
    return folder


@pytest.fixture(scope="session")
def cache(installed: Path, starter: Starter, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first commands leave in nanobot's folder: what is known of the plugins."""
    home = tmp_path_factory.mktemp("indexed") / "home"
    home.mkdir()
    with_plugins = CommandLine(home, _environment(home, SITE, installed), starter=starter)
    with_plugins.configure(CONFIG)
    with_plugins("status")
    return home / "cache"


@pytest.fixture
def nanobot(bare: CommandLine, installed: Path, cache: Path) -> CommandLine:
    """The command line with the plugins of `SITE` installed, and only those enabled."""
    bare.configure(CONFIG)
    copytree(cache, bare.home / "cache")
    return replace(bare, environ=_environment(bare.home, SITE, installed))


def _environment(home: Path, *sites: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name.startswith("COV")}
    return {
        **kept,
        "HOME": str(home.parent),
        "NANOBOT_HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": os.pathsep.join(map(str, (REPOSITORY, *sites))),
        "PYTHONWARNINGS": "error",
    }


def _install(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    # Without one, each command would examine the plugin again.
    (info / "RECORD").write_text(f"{name}/nanobot-plugin.json,,\n")
