"""A third party's package, built, installed beside the core and used through the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from nanobot_core import Tool, ToolContext, tool
from nanobot_core.app.application import Nanobot
from nanobot_core.config.loading import load_config
from nanobot_core.plugins.catalogue import Catalogue
from tests.environments import Environment, build_wheel, make_environment

STRANGERS = Path(__file__).parents[1] / "strangers"
PACKAGE = STRANGERS / "weather_station"
CONFIG = f"""\
agents: {{defaults: {{model: scripted/one, provider: scripted}}}}
plugins:
  local: [{STRANGERS / "scripted.py"}]
weather:
  place: Zugspitze
  altitude_m: 2962
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_wheel(PACKAGE, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    return make_environment(tmp_path_factory.mktemp("stranger"))


@pytest.fixture(scope="module")
def installed(environment: Environment, wheel: Path) -> Environment:
    environment.configure(CONFIG)
    environment.install(wheel)
    return environment


@pytest.mark.promise(38)
def test_it_is_listed_with_what_it_gives_and_reaches(installed: Environment) -> None:
    listed = installed.nanobot("plugins", "list")
    inspected = installed.nanobot("plugins", "inspect", "weather")

    assert "weather" in listed
    assert "3.2.1" in listed
    for line in ("tools: read_weather", "settings: weather", "reaches: reads a thermometer"):
        assert line in inspected


@pytest.mark.promise(4)
def test_a_turn_passes_through_every_kind_of_hook(installed: Environment) -> None:
    answer = installed.nanobot("agent", "-m", 'call read_weather {"hours_ago": "3"}')

    assert "The tool said: Zugspitze: 20 °C, 3 hours ago" in answer
    assert "-- the weather station" in answer
    heard = (installed.home / "plugins" / "weather" / "heard.txt").read_text("utf-8").splitlines()
    assert set(heard) == {
        "start",
        "observe",
        "gather",
        "first",
        "wrap True",
        "gate read_weather",
        "detached read_weather",
        "chain",
        "stop shutdown",
    }
    assert (heard[0], heard[-1]) == ("start", "stop shutdown")


@pytest.mark.promise(44)
def test_its_gate_holds(installed: Environment) -> None:
    answer = installed.nanobot("agent", "-m", 'call read_weather {"hours_ago": 13}')

    assert "the thermometer was broken at that hour" in answer


def test_its_slash_command_is_answered_without_the_model(installed: Environment) -> None:
    assert "Zugspitze: fair" in installed.nanobot("agent", "-m", "/weather")


def test_its_command_stands_in_the_help_and_runs(installed: Environment) -> None:
    assert "Look at the weather station." in installed.nanobot("--help")
    assert installed.nanobot("weather", "place").strip() == "Zugspitze, 2962 m"


@pytest.mark.promise(38)
def test_its_check_is_part_of_the_doctor(installed: Environment) -> None:
    assert "weather: mast: the mast stands" in installed.nanobot("doctor")


@pytest.mark.promise(15)
def test_wrong_settings_are_told_with_file_and_line_and_harm_nobody_else(
    installed: Environment,
) -> None:
    file = installed.configure(CONFIG.replace("2962", "high"))

    answer = installed.nanobot("agent", "-m", "hello")
    installed.configure(CONFIG)

    assert f"{file}:6: weather.altitude_m" in answer
    assert "You said: hello" in answer
    assert "the weather station" not in answer


def test_it_can_be_left_out(installed: Environment) -> None:
    assert "is out" in installed.nanobot("--without", "weather", "agent", "-m", "call read_weather")


def test_without_it_all_is_as_before(installed: Environment, wheel: Path) -> None:
    installed.run("-m", "pip", "uninstall", "--quiet", "--yes", "stranger-weather")
    listed = installed.nanobot("plugins", "list")
    overview = installed.nanobot("--help")
    answer = installed.nanobot("agent", "-m", "call read_weather")
    installed.install(wheel)

    assert "weather" not in listed
    assert "weather station" not in overview
    assert "there is no tool 'read_weather'" in answer
    assert "read_weather" in installed.nanobot("plugins", "inspect", "weather")


@tool(name="double")
async def double(context: ToolContext, number: int) -> str:
    """Double a number."""
    return str(2 * number)


@pytest.mark.anyio
async def test_a_tool_registered_in_a_running_application_is_offered_in_the_next_turn(
    tmp_path: Path,
) -> None:
    assert isinstance(double, Tool)
    loaded = load_config(
        None,
        environ={},
        home=tmp_path,
        overrides={
            "agents.defaults.model": "scripted/one",
            "plugins.local": [str(STRANGERS / "scripted.py")],
        },
    )
    catalogue = Catalogue.load(tmp_path / "cache", loaded.settings.plugins)
    only = [item.plugin for item in catalogue.selections.values() if item.plugin.file]

    async with Nanobot(loaded, catalogue=Catalogue(only, loaded.settings.plugins)) as app:
        before = await app.run('call double {"number": 21}')
        app.tools.register(double)
        after = await app.run('call double {"number": 21}')
        app.tools.unregister("double")
        gone = await app.run('call double {"number": 21}')

    assert "there is no tool 'double'" in (before.reply or "")
    assert after.reply == "The tool said: 42"
    assert "there is no tool 'double'" in (gone.reply or "")
