"""The gates: each session is one question about the tree, asked in an environment of its own.

`nox` alone runs the tests. `nox -l` lists the rest. Arguments after `--` go to pytest.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import tomllib
from pathlib import Path

import nox

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).resolve().parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".nox", ".venv", "venv", "dist", "_build", "__pycache__", ".*_cache", ".hypothesis"
)


def install(
    session: nox.Session,
    plugins: list[str],
    *groups: str,
    root: Path = ROOT,
    extra: tuple[str, ...] = (),
) -> None:
    """Install core, plugins and tools as one resolution.

    pip finds a plugin's unpublished `nanobot-core` only when both stand on one command line, and
    uv is told to look at it the same way, so that both see what a user's installer sees.
    """
    editables = [arg for folder in (root, *plugin_folders(root, plugins)) for arg in ("-e", folder)]
    session.install(
        # uv leaves out pip, which some tests run.
        *(["--no-sources", "pip"] if session.venv_backend == "uv" else []),
        "-c",
        str(ROOT / "constraints.txt"),
        *map(str, editables),
        *nox.project.dependency_groups(PYPROJECT, *groups),
        *extra,
    )


def plugin_folders(root: Path, plugins: list[str]) -> list[Path]:
    """Give the folders of these plugins below `root`."""
    return [root / "plugins" / name for name in plugins]


def test_requirements(plugins: list[str]) -> tuple[str, ...]:
    """Collect what the tests of these plugins need beyond the common tools (group `test`)."""
    found: list[str] = []
    for folder in plugin_folders(ROOT, plugins):
        groups = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        found += groups.get("dependency-groups", {}).get("test", [])
    return tuple(found)


def test_groups(plugins: list[str]) -> list[str]:
    """Name the groups `test` of these plugins as uv wants them on its command line."""
    files = [folder / "pyproject.toml" for folder in plugin_folders(ROOT, plugins)]
    having = [
        file for file in files if "test" in nox.project.load_toml(file).get("dependency-groups", {})
    ]
    return [arg for file in having for arg in ("--group", f"{file}:test")]


def run_pytest(session: nox.Session, *args: str, empty_is_fine: bool = False) -> None:
    """Run pytest; without tests it fails, unless `empty_is_fine`."""
    session.run("pytest", *args, success_codes=[0, 5] if empty_is_fine else [0])


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests with every plugin installed."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    run_pytest(session, "-n", "2", *session.posargs)


@nox.session
def coverage(session: nox.Session) -> None:
    """Measure the core's coverage with branches, subprocesses counted."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    session.run("coverage", "erase")
    session.run("coverage", "run", "-m", "pytest", *session.posargs)
    session.run("coverage", "combine")
    session.run("coverage", "report")


@nox.session
def fuzz(session: nox.Session) -> None:
    """Look for input that breaks a target: `nox -s fuzz -- TARGET --minutes N`."""
    install(session, PLUGINS, "test", "fuzz", extra=test_requirements(PLUGINS))
    session.run("python", "-m", "tests.fuzz", *session.posargs)


@nox.session
def lint(session: nox.Session) -> None:
    """Look for faults and for unformatted files."""
    session.install("-c", "constraints.txt", *nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of everything, and that the public surface is completely typed."""
    install(session, PLUGINS, "types", extra=test_requirements(PLUGINS))
    sources = sorted(str(path) for path in ROOT.glob("plugins/*/src"))
    # Packages that the tests install as strangers would.
    samples = [
        str(ROOT / "tests/integration/cli/site"),
        str(ROOT / "tests/strangers/weather_station/src"),
    ]
    env = {"MYPYPATH": os.pathsep.join([str(ROOT), *sources, *samples])}
    packages = sorted(str(path) for path in ROOT.glob("plugins/*/src/nanobot_*"))
    session.run(
        "mypy",
        "nanobot_core",
        "tests",
        "benchmarks",
        "conftest.py",
        "noxfile.py",
        *packages,
        env=env,
    )
    for tests_folder in sorted(ROOT.glob("plugins/*/tests")):
        if any(tests_folder.rglob("*.py")):
            session.run("mypy", str(tests_folder), env=env)
    session.run("pyright", "--verifytypes", "nanobot_core", "--ignoreexternal")


@nox.session
def imports(session: nox.Session) -> None:
    """Hold the layers."""
    install(session, [], "imports")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation, warnings being errors, and draft the changelog."""
    install(session, PLUGINS, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
    session.run("towncrier", "build", "--draft", "--version", "next")


@nox.session
def goals(session: nox.Session) -> None:
    """Try sixty attacks with an obedient model in every combination, and print the table."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    session.run("python", "-m", "tests.security.goals", *session.posargs)


@nox.session
def core_alone(session: nox.Session) -> None:
    """Show that the core works with no plugin installed."""
    install(session, [], "test")
    session.run("nanobot", "--version")
    session.run("nanobot", "--help", silent=True)
    run_pytest(session, "tests", "-m", "core_alone", *session.posargs, empty_is_fine=True)


@nox.session
@nox.parametrize("name", PLUGINS)
def plugin_alone(session: nox.Session, name: str) -> None:
    """Run one plugin's tests beside the core only: an undeclared dependency shows."""
    install(session, [name], "test", extra=test_requirements([name]))
    run_pytest(session, f"plugins/{name}/tests", *session.posargs)


@nox.session
@nox.parametrize("name", PLUGINS)
def without(session: nox.Session, name: str) -> None:
    """Run everything else's tests in a copy of the tree that lacks one plugin's folder."""
    others = [plugin for plugin in PLUGINS if plugin != name]
    # Not nox's own folder, which git ignores, and whose name is too long for a socket's.
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:
        copy = Path(folder) / "tree"
        shutil.copytree(ROOT, copy, ignore=NOT_COPIED)
        shutil.rmtree(copy / "plugins" / name)
        install(session, others, "test", root=copy, extra=test_requirements(others))
        with session.chdir(copy):
            run_pytest(session, "-n", "2", *session.posargs)


@nox.session
def wheels(session: nox.Session) -> None:
    """Build every wheel into `dist` and start the program from them."""
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    constrained = ("-c", "constraints.txt")
    session.install(*constrained, *nox.project.dependency_groups(PYPROJECT, "wheels"))
    for folder in (ROOT, *plugin_folders(ROOT, PLUGINS)):
        session.run(
            "python", "-m", "build", "--wheel", "--no-isolation", "-o", str(dist), str(folder),
            silent=True,
        )  # fmt: skip
    built = sorted(map(str, dist.glob("*.whl")))
    session.log("built %s", json.dumps([Path(wheel).name for wheel in built]))
    session.install(*constrained, *built)
    with session.chdir(session.create_tmp()):
        session.run("nanobot", "--version")
        session.run("nanobot", "--help", silent=True)


@nox.session
def constraints(session: nox.Session) -> None:
    """Write constraints.txt again, for every plugin, extra and tool."""
    session.install("uv")
    target = ROOT / "constraints.txt"
    projects = [str(folder / "pyproject.toml") for folder in plugin_folders(ROOT, PLUGINS)]
    session.run(
        "uv", "pip", "compile", "pyproject.toml", *projects, "--universal", "--all-extras",
        "--group", "dev", *test_groups(PLUGINS), "--python-version", "3.11", "--upgrade", "--quiet",
        "--no-header", "--no-annotate", "--no-emit-index-url", "--no-emit-find-links",
        *(arg for name in ("nanobot-core", *PLUGINS) for arg in ("--no-emit-package", name)),
        "-o", str(target),
    )  # fmt: skip
    pins = [line for line in target.read_text("utf-8").splitlines() if not line.startswith("#")]
    target.write_text(CONSTRAINTS_HEAD + "\n".join(pins) + "\n", "utf-8")


CONSTRAINTS_HEAD = """\
# What the gates run with; `nox -s constraints` writes it.
# Names and versions only: pip refuses hashes beside editable installs (a folder has none), and a
# lock file would name the package index of whoever made it.
"""
