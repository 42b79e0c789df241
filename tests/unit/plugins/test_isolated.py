"""Isolated plugins are described by their own environment and stood for by an isolator."""

from __future__ import annotations

import os
import sys
import sysconfig
import venv
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from nanobot_core import IsolatedPlugin, IsolatorSpec, on
from nanobot_core.config.loading import load_config
from nanobot_core.config.models import PluginsSettings, Settings
from nanobot_core.hooks.compilation import Registrant
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.consent import closed_plugins
from nanobot_core.plugins.examine import describe
from nanobot_core.plugins.index import InstalledPlugin
from nanobot_core.plugins.isolated import stand_in, with_isolated
from tests.distributions import manifest_of, write_plugin

DICE = """
from nanobot_core import CliGroup, PluginSettings, SettingsSection, Tool, on

class Settings(PluginSettings):
    sides: int = 6
    token: str = ""

class RollTool(Tool):
    name = "roll"
    description = "Roll a die."
    parameters = {"type": "object", "properties": {}}
    read_only = True

    async def execute(self, context, arguments):
        return "4"

@on.contribute_settings
def settings():
    yield SettingsSection("tools.dice", f"{__name__}:Settings", ("DICE_KEY",))

@on.contribute_tools
def tools(ctx):
    return [RollTool()]

@on.contribute_cli
def cli():
    return [CliGroup(name="dice", summary="Roll.", app="acme_dice.plugin:Settings")]

@on.before_turn
def listen(event): ...

@on.start
def start(ctx): ...
"""


@dataclass
class Place:
    """An environment with plugin ``dice``.

    Attributes:
        python: its interpreter.
        site: where its distributions are.
    """

    python: str
    site: Path


@pytest.fixture
def place(tmp_path: Path) -> Place:
    home = tmp_path / "elsewhere"
    venv.create(home, with_pip=False, symlinks=True)
    [site] = home.glob("lib/python3*/site-packages")
    outer = sysconfig.get_path("purelib")
    (site / "outer.pth").write_text(f"import site; site.addsitedir({outer!r})\n", "utf-8")
    write_plugin(site, "dice", code=DICE)
    return Place(str(home / "bin" / "python"), site)


Open = Callable[..., Catalogue]


@pytest.fixture
def open_catalogue(site: Path, cache: Path) -> Open:
    """Opens a catalogue of one that runs others, of what is isolated, and of nothing else."""
    isolator = {
        "kind": "isolators",
        "name": "test",
        "detail": {"factory": "isolator_of_a_test:make"},
    }
    write_plugin(site, "a-runner", manifest=manifest_of("a-runner", declarations=[isolator]))

    def make(**isolate: str | None) -> Catalogue:
        model = PluginsSettings.model_validate(
            {"policy": "listed", "enabled": ["a-runner"], "isolate": isolate}
        )
        every = Catalogue.load(cache, model).selections.values()
        wanted = {"a-runner", *isolate}
        return Catalogue([each.plugin for each in every if each.plugin.id in wanted], model)

    return make


def described(catalogue: Catalogue, cache: Path) -> InstalledPlugin:
    catalogue.describe_all(cache)
    return catalogue.selections["dice"].plugin


def test_a_list_of_ids_is_read_as_well() -> None:
    model = PluginsSettings.model_validate({"isolate": ["dice"]})

    assert model.isolate == {"dice": None}


def test_an_isolated_plugin_is_described_by_its_own_environment(
    open_catalogue: Open, place: Place, cache: Path
) -> None:
    catalogue = open_catalogue(dice=place.python)
    plugin = described(catalogue, cache)
    selection = catalogue.selections["dice"]

    assert (selection.enabled, selection.condition.state) == (True, "isolated")
    assert place.python in selection.condition.reason
    assert selection.condition.reason.endswith(
        "without effect there: cli 'dice'; hook 'before_turn'"
    )
    assert plugin.label == "dice@1.0"
    assert plugin.manifest is not None
    assert [item.name for item in plugin.manifest.declarations] == ["roll"]
    assert plugin.manifest.hooks == {}
    assert plugin.manifest.facts.requires == ("a-runner",)
    assert plugin.manifest.variables == ("DICE_KEY",)
    assert not [name for name in sys.modules if name.startswith("acme_dice")]


def test_the_description_is_kept_until_something_is_installed_there(
    open_catalogue: Open, place: Place, cache: Path
) -> None:
    described(open_catalogue(dice=place.python), cache)
    kept = cache / "isolated" / "dice.json"
    first = kept.read_text()

    open_catalogue(dice=place.python)
    assert kept.read_text() == first
    before = place.site.stat().st_mtime_ns
    os.utime(place.site, ns=(before, before + 1_000_000_000))
    open_catalogue(dice=place.python)
    assert kept.read_text() != first


def test_a_failure_is_kept_until_something_is_installed_there(
    open_catalogue: Open, place: Place, cache: Path, tmp_path: Path
) -> None:
    marks = tmp_path / "marks"
    code = f"with open({str(marks)!r}, 'a') as file: file.write('x')\n1 / 0\n"
    (place.site / "acme_dice" / "plugin.py").write_text(code, "utf-8")

    for _ in range(3):
        catalogue = open_catalogue(dice=place.python)
        described(catalogue, cache)
        assert "ZeroDivisionError" in catalogue.selections["dice"].condition.reason
    assert marks.read_text() == "x"

    before = place.site.stat().st_mtime_ns
    os.utime(place.site, ns=(before, before + 1_000_000_000))
    described(open_catalogue(dice=place.python), cache)
    assert marks.read_text() == "xx"


def test_a_plugin_that_is_installed_here_too_is_not_imported_here(
    open_catalogue: Open, place: Place, site: Path, cache: Path
) -> None:
    write_plugin(site, "dice", code="raise RuntimeError('imported here')")

    plugin = described(open_catalogue(dice=place.python), cache)

    assert plugin.isolation is not None
    assert plugin.target == "isolator_of_a_test:make"


def test_what_is_lacking_is_told_with_its_remedy(
    open_catalogue: Open, place: Place, tmp_path: Path, cache: Path
) -> None:
    nowhere = open_catalogue(dice=str(tmp_path / "x" / "bin" / "python")).selections["dice"]
    assert nowhere.condition.reason == f"interpreter {tmp_path}/x/bin/python does not exist"
    assert f"python3 -m venv {tmp_path}/x" in nowhere.condition.remedy

    usual = open_catalogue(dice=None).selections["dice"]
    assert f"{cache.parent}/environments/dice/bin/python" in usual.condition.reason

    catalogue = open_catalogue(gone=place.python)
    catalogue.describe_all(cache)
    assert catalogue.selections["gone"].condition.state == "failed"
    assert catalogue.selections["gone"].condition.reason == "it is not installed"


def test_one_with_a_gate_is_out_and_the_gate_is_closed(
    open_catalogue: Open, place: Place, cache: Path
) -> None:
    # Its gate would have no effect from there, so that what it forbids would run.
    file = place.site / "acme_dice" / "plugin.py"
    file.write_text(f"{DICE}\n@on.authorize_tool_call\ndef judge(event): ...\n", "utf-8")
    catalogue = open_catalogue(dice=place.python)
    described(catalogue, cache)

    for each in (catalogue, open_catalogue(dice=place.python)):  # found out, and from the cache
        selection = each.selections["dice"]
        assert (selection.enabled, selection.condition.state) == (False, "incompatible")
        assert (
            selection.condition.reason
            == "its authorize_tool_call cannot judge from another process"
        )
        assert selection.condition.remedy == "take it out of plugins.isolate"
        assert closed_plugins(each, {}, (), Settings())["dice"].hooks == ("authorize_tool_call",)


def test_without_an_isolator_it_is_out(place: Place, cache: Path) -> None:
    found = with_isolated((), {"dice": place.python}, cache)
    (selection,) = Catalogue(found, PluginsSettings()).selections.values()

    assert not selection.enabled
    assert selection.condition.remedy == "run nanobot plugins add nanobot-mcp"


def test_the_stand_in_gets_what_the_plugin_needs_and_no_more(
    open_catalogue: Open,
    place: Place,
    cache: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    module = ModuleType("isolator_of_a_test")

    def make(plugin: IsolatedPlugin) -> object:
        return plugin

    module.make = make  # type: ignore[attr-defined]  # a module made for this test
    monkeypatch.setitem(sys.modules, module.__name__, module)
    environ = {"DICE_KEY": "a", "OTHER_KEY": "b", "HTTP_PROXY": "c", "PATH": "d"}
    loaded = load_config(
        None,
        environ={},
        home=tmp_path,
        overrides={"providers.x.api_key": "not-to-be-seen", "tools.timeout_s": 7},
    )
    plugin = described(open_catalogue(dice=place.python), cache)
    assert plugin.manifest is not None

    standing = stand_in(
        plugin,
        plugin.manifest,
        loaded,
        {"tools.dice": {"token": "t"}},
        lambda names: {name: environ[name] for name in names if name in environ},
    )

    assert isinstance(standing, IsolatedPlugin)
    setup: dict[str, Any] = dict(standing.setup)
    assert setup["environment"] == {"DICE_KEY": "a", "HTTP_PROXY": "c"}
    assert setup["tree"]["tools"] == {
        "dice": {"token": "t"},
        "restrict_to_workspace": False,
        "ssrf_whitelist": [],
    }
    assert "not-to-be-seen" not in str(setup)
    assert standing.variables == {"PATH": "d"}
    assert (standing.version, standing.timeout_s) == ("1.0", 7)
    assert [(tool.definition.name, tool.read_only) for tool in standing.tools] == [("roll", True)]
    assert "'t'" not in repr(standing), "logs contain no secrets"


class Runner:
    @on.contribute_isolators
    def contribute_isolators(self) -> list[IsolatorSpec]:
        return [IsolatorSpec(name="test", factory="somewhere:make")]


def test_an_isolator_stands_in_its_plugins_manifest() -> None:
    (found,) = describe(Registrant("a-runner", "", Runner())).declarations

    assert (found.kind, found.name) == ("isolators", "test")
    assert found.detail["factory"] == "somewhere:make"
