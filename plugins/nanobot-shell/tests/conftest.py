"""What the tests of this plugin share."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from nanobot_core import JsonValue, ToolCall, ToolCallProposed, TurnInfo
from nanobot_core.net import NetworkPolicy
from nanobot_core.testing import FakePluginContext
from nanobot_shell.sandbox import probe_sandbox

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


@pytest.fixture(params=["sandboxed", "unsandboxed"])
async def context(
    request: pytest.FixtureRequest, make_context: MakeContext, sandbox_works: bool
) -> AsyncIterator[FakePluginContext]:
    """Give an entered context, once with the sandbox and once without."""
    wanted = request.param == "sandboxed"
    if wanted and not sandbox_works:
        pytest.skip("bubblewrap does not work on this machine")
    async with make_context(sandbox="bwrap" if wanted else "none") as context:
        yield context


@pytest.fixture(scope="session")
def sandbox_works(tmp_path_factory: pytest.TempPathFactory) -> bool:
    """Say whether bubblewrap works here; the tests without it run in any case."""
    folder = tmp_path_factory.mktemp("probe")
    (folder / "home").mkdir()
    probe = probe_sandbox(folder, folder / "home", has_network=True, path=ENVIRONMENT["PATH"])
    return probe.sandbox is not None


@pytest.fixture
def proposed() -> Callable[..., ToolCallProposed]:
    """Make the event that asks whether a command may run."""
    return _propose


@pytest.fixture
def turn_in() -> Callable[[str], TurnInfo]:
    """Make a turn in a channel."""
    return _turn_in


def _propose(
    command: str,
    *,
    channel: str = "cli",
    name: str = "exec",
    origin: str = "shell@0.1.0",
    working_dir: str | None = None,
) -> ToolCallProposed:
    arguments: dict[str, JsonValue] = {"command": command}
    if working_dir is not None:
        arguments["working_dir"] = working_dir
    return ToolCallProposed(
        turn=_turn_in(channel),
        call=ToolCall("c", name, arguments),
        origin=origin,
        read_only=False,
    )


def _turn_in(channel: str) -> TurnInfo:
    return TurnInfo(
        id="t",
        session_key=f"{channel}:direct",
        channel=channel,
        chat_id="direct",
        sender_id="user",
        source="chat",
    )
