"""Environments of their own, in which the packages of third parties are installed."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

LIMIT_S = 50


@dataclass(frozen=True)
class Environment:
    """A virtual environment with the core, and a home of its own."""

    python: Path
    home: Path
    variables: Mapping[str, str]

    def run(self, *arguments: str, code: int = 0) -> str:
        """Run this environment's Python; return what it prints."""
        done = subprocess.run(
            [str(self.python), *arguments],
            env=self.variables,
            cwd=self.home,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == code, (done.stdout, done.stderr)
        return done.stdout + done.stderr

    def nanobot(self, *arguments: str, code: int = 0) -> str:
        """Run a command of nanobot."""
        return self.run("-m", "nanobot_core", *arguments, code=code)

    def install(self, *wheels: Path) -> None:
        """Install wheels with pip, and nothing that they require."""
        self.run("-m", "pip", "install", "--quiet", "--no-index", "--no-deps", *map(str, wheels))

    def configure(self, text: str) -> Path:
        """Write the configuration."""
        file = self.home / "config.yaml"
        file.write_text(text, "utf-8")
        file.chmod(0o600)
        return file


def build_wheel(package: Path, folder: Path) -> Path:
    """Build the wheel of a package with the build backend that it names; return its file."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=package,
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return next(folder.glob("*.whl"))


def make_environment(root: Path) -> Environment:
    """Make an environment that sees what this one has installed, and has a pip of its own."""
    venv.create(root / "venv", with_pip=True)
    python = root / "venv" / "bin" / "python"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    here = sysconfig.get_path("purelib")
    link = root / "venv" / "lib" / version / "site-packages" / "here.pth"
    link.write_text(f"import site; site.addsitedir({here!r})\n")
    home = root / "home"
    home.mkdir()
    variables = {
        **{name: value for name, value in os.environ.items() if name.startswith("COV")},
        "HOME": str(root),
        "NANOBOT_HOME": str(home),
        "PATH": os.environ["PATH"],
    }
    return Environment(python, home, variables)
