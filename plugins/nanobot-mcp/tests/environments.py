"""A Python environment for a plugin that conflicts with others, created without a network.

``environments.py FOLDER NAME VERSION`` prints the interpreter of an environment with plugin NAME
and version VERSION of a library that it needs.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

PLUGIN = '''
"""A tool plugin that needs a particular version of a library."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import shared_lib
from nanobot_core import (
    ImageBlock, PluginSettings, SettingsSection, TextBlock, Tool, ToolFailed, ToolInputError,
    ToolResult, on,
)


class Settings(PluginSettings):
    token: str = ""
    explodes: bool = False


class Base(Tool):
    description = "Try something. Use it in tests only."
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": []}

    def __init__(self, ctx):
        self.ctx = ctx


class Which(Base):
    name = "which_NAME"
    read_only = True

    async def execute(self, context, arguments):
        print("this must not reach the wire")
        return f"shared-lib {shared_lib.VERSION} in {os.getpid()}"


class Told(Base):
    name = "told_NAME"
    read_only = True

    async def execute(self, context, arguments):
        await context.progress("looking around")
        ctx = self.ctx
        return ToolResult(
            (TextBlock("words"), ImageBlock("image/png", "aGVsbG8=")),
            media=("/a/file.txt",),
            data={
                "token": ctx.settings(Settings).token,
                "key": dict(ctx.environment(("NAME_KEY", "OTHER_KEY"))),
                "environ": sorted(os.environ),
                "data_dir": str(ctx.data_dir),
                "workspace": str(ctx.workspace),
                "session": context.session_key,
                "sender": context.sender_id,
                "call": context.call_id,
            },
        )


class Fail(Base):
    name = "fail_NAME"

    async def execute(self, context, arguments):
        match arguments.get("text"):
            case "input":
                raise ToolInputError("give another text")
            case "failed":
                raise ToolFailed("the tank is empty")
            case "exit":
                os._exit(3)
        raise LookupError("nobody expected this")


class Wait(Base):
    """Waits with a child of its own, and tells in a file how it ended."""

    name = "wait_NAME"
    timeout_s = 45.0

    async def execute(self, context, arguments):
        note = Path(arguments["text"])
        words = [sys.executable, "-c", "import time; time.sleep(600)"]
        child = await asyncio.create_subprocess_exec(*words)
        try:
            note.write_text(str(os.getpid()))
            await child.wait()
        finally:
            child.kill()
            await child.wait()
            await asyncio.sleep(0.05)
            note.write_text("cleared up")


@on.contribute_settings
def contribute_settings():
    return [SettingsSection("tools.NAME", f"{__name__}:Settings", environment=("NAME_KEY",))]


@on.contribute_tools
def contribute_tools(ctx):
    return [Which(ctx), Told(ctx), Fail(ctx), Wait(ctx)]


@on.start
def start(ctx):
    if ctx.settings(Settings).explodes:
        raise RuntimeError("the fuse was lit")


@on.finalize_content
async def finalize_content(event):
    return "this hook must not run"
'''


def make_environment(folder: Path, name: str, version: str) -> Path:
    """Return the interpreter of an environment with plugin `name` and ``shared-lib`` `version`.

    What nanobot itself needs comes from the environment that runs the tests.
    """
    wheels = folder / "wheels"
    wheels.mkdir(parents=True, exist_ok=True)
    _wheel(wheels, "shared_lib", version, {"shared_lib.py": f"VERSION = '{version}'\n"})
    plugin = PLUGIN.replace("NAME", name)
    points = f"[nanobot]\n{name} = nanobot_{name}\n"
    _wheel(
        wheels,
        f"nanobot_{name}",
        "0.3.1",
        {f"nanobot_{name}.py": plugin},
        requires=(f"shared-lib=={version}", "nanobot-core"),
        entry_points=points,
    )
    home = folder / name
    venv.create(home, with_pip=False, symlinks=True)
    python = home / "bin" / "python"
    [site] = home.glob("lib/python3*/site-packages")
    outer = sysconfig.get_path("purelib")
    (site / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n", "utf-8")
    options = ["--no-index", "--disable-pip-version-check", "--find-links", str(wheels)]
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--isolated", "install", "-q"]
    subprocess.run([*pip, *options, f"nanobot-{name}"], check=True, timeout=50)
    return python


def _wheel(
    folder: Path,
    name: str,
    version: str,
    files: dict[str, str],
    *,
    requires: tuple[str, ...] = (),
    entry_points: str = "",
) -> None:
    """Write a wheel in the binary distribution format, without a build."""
    info = f"{name}-{version}.dist-info"
    metadata = [f"Metadata-Version: 2.1\nName: {name.replace('_', '-')}\nVersion: {version}"]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = files | {
        f"{info}/METADATA": "\n".join(metadata) + "\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    if entry_points:
        files[f"{info}/entry_points.txt"] = entry_points
    record = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
        for path, text in (files | {f"{info}/RECORD": record}).items():
            wheel.writestr(path, text)


if __name__ == "__main__":
    sys.stdout.write(str(make_environment(Path(sys.argv[1]), sys.argv[2], sys.argv[3])))
