from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from nanobot_core import CliGroup, Declaration, Manifest, manifest_to_json
from tests.integration.cli.terminal import LIMIT_S, Terminal

REPOSITORY = Path(__file__).parents[3]
SITE = Path(__file__).parent / "site"
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
    """

    home: Path
    environ: Mapping[str, str]
    command: tuple[str, ...] = (sys.executable, "-m", "nanobot_core")
    changes: dict[str, str] = field(default_factory=dict)
    folder: Path | None = None

    def __call__(
        self, *args: str, stdin: str | None = None, code: int = 0
    ) -> subprocess.CompletedProcess[str]:
        """Run a command, which must end with `code`; without `stdin` it gets no input at all."""
        done = subprocess.run(
            [*self.command, *args],
            env={**self.environ, **self.changes},
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

    def configure(self, text: str) -> Path:
        file = self.home / "config.yaml"
        file.write_text(text)
        file.chmod(0o600)
        return file


@pytest.fixture
def bare(tmp_path: Path) -> CommandLine:
    """The command line with an empty home and no plugins but those of the environment."""
    home = tmp_path / "home"
    home.mkdir()
    kept = {name: value for name, value in os.environ.items() if name.startswith("COV")}
    environ = {
        **kept,
        "HOME": str(tmp_path),
        "NANOBOT_HOME": str(home),
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(REPOSITORY),
        "PYTHONWARNINGS": "error",
    }
    return CommandLine(home, environ)


@pytest.fixture
def nanobot(bare: CommandLine, tmp_path: Path) -> CommandLine:
    """The command line with the plugins of `SITE` installed, and only those enabled."""
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
    installed = tmp_path / "installed"
    package = installed / "extras_data"
    package.mkdir(parents=True)
    manifest = manifest_to_json(Manifest(id="extras", declarations=declarations))
    (package / "nanobot-plugin.json").write_text(json.dumps(manifest))
    _install(installed, "nanobot-scripted", "[nanobot]\nscripted = scripted_plugin.plugin\n")
    _install(
        installed,
        "nanobot-extras",
        "[nanobot]\nextras = scripted_plugin.extras\n"
        "[nanobot.manifest]\nextras = extras_data:nanobot-plugin.json\n",
    )
    bare.configure(CONFIG)
    path = os.pathsep.join([bare.environ["PYTHONPATH"], str(SITE), str(installed)])
    return CommandLine(bare.home, {**bare.environ, "PYTHONPATH": path})


def _install(folder: Path, name: str, entry_points: str) -> None:
    info = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(entry_points)
    (info / "RECORD").write_text("")
