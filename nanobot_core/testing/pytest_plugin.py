"""The pytest plugin: fixtures, and the contracts of an installed nanobot plugin as tests.

pytest loads this module in every run of an environment, so it imports nothing until asked.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nanobot_core.testing.clock import FakeClock
    from nanobot_core.testing.context import FakePluginContext
    from nanobot_core.testing.replay import Replayer

_CONFORMANCE = Path(__file__).with_name("conformance.py")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--nanobot-plugin`` and ``--nanobot-report``."""
    group = parser.getgroup("nanobot")
    group.addoption(
        "--nanobot-report",
        metavar="DIR",
        help="write what --nanobot-plugin finds to DIR, as NAME.json and NAME.badge.json",
    )
    group.addoption(
        "--nanobot-plugin",
        action="append",
        default=[],
        metavar="NAME",
        help="test that the installed nanobot plugin NAME keeps its contracts; may be repeated",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Collect the contracts when plugins are named, in place of the default test paths."""
    if names := config.getoption("nanobot_plugin"):
        from nanobot_core.errors import PluginNotFound
        from nanobot_core.testing.description import find_plugin

        for name in names:
            try:
                find_plugin(name)
            except PluginNotFound as error:
                msg = f"--nanobot-plugin {name}: {error.reason}; {error.remedy}"
                raise pytest.UsageError(msg) from error
        named = config.args if config.args_source is pytest.Config.ArgsSource.ARGS else []
        config.args = [*named, str(_CONFORMANCE)]
        # Plugins that may not be installed define them; the suites must load without.
        for marker in ("anyio", "timeout"):
            config.addinivalue_line("markers", f"{marker}: see the plugin of that name")
    if folder := config.getoption("nanobot_report"):
        if not names:
            msg = "--nanobot-report needs --nanobot-plugin NAME, whose results it writes"
            raise pytest.UsageError(msg)
        from nanobot_core.testing.report import ConformanceReport

        config.pluginmanager.register(ConformanceReport(Path(folder)), "nanobot-report")


@pytest.fixture
def nanobot_clock() -> FakeClock:
    """A clock that the test moves."""
    from nanobot_core.testing.clock import FakeClock

    return FakeClock()


@pytest.fixture
async def nanobot_context(
    anyio_backend: object, tmp_path: Path, nanobot_clock: FakeClock
) -> AsyncIterator[FakePluginContext]:
    """A plugin's context on a temporary folder, entered, with `nanobot_clock`."""
    from nanobot_core.testing.context import FakePluginContext

    async with FakePluginContext(tmp_path, clock=nanobot_clock) as context:
        yield context


@pytest.fixture
def nanobot_replay(tmp_path: Path) -> Replayer:
    """What replays recorded hook calls against a plugin: see `Replayer`."""
    from nanobot_core.testing.replay import Replayer

    return Replayer(tmp_path)
