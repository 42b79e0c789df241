"""Undescribed plugins are examined in a child process, once for each state of their code."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from nanobot_core import PluginLoadFailed, PluginNotFound, PluginRejected
from nanobot_core.config.models import PluginsSettings
from nanobot_core.plugins.catalogue import Catalogue
from nanobot_core.plugins.examine import derive_manifest, examine_plugin
from nanobot_core.plugins.index import load_installed
from tests.distributions import manifest_of, tool_declaration, write_distribution, write_plugin

Open = Callable[..., Catalogue]
ROLL = """
from nanobot_core import LazyTool, PluginFacts, SettingsSection, Tool, on
from nanobot_core import PluginSettings

class Settings(PluginSettings):
    sides: int = 6

class RollTool(Tool):
    name = "roll"
    description = "Roll a die.\\nIt is fair."
    parameters = {"type": "object", "properties": {}}
    read_only = True

    def __init__(self, ctx):
        self.sides = ctx.settings(Settings).sides

    async def execute(self, context, arguments):
        return "4"

@on.contribute_settings
def settings():
    yield SettingsSection("tools.dice", f"{__name__}:Settings", ("DICE_KEY",))

@on.contribute_tools
def tools(ctx):
    return [LazyTool("roll", f"{__name__}:RollTool")]

@on.before_turn(when="channel:dice")
def listen(event): ...

@on.start
def start(ctx): ...

@on.describe_plugin
def describe():
    return PluginFacts(summary="Dice", after=("files",))
"""


@pytest.fixture
def open_catalogue(site: Path, cache: Path) -> Open:
    """Return a catalogue of the plugins in the site folder and of local files."""

    def make(**settings: object) -> Catalogue:
        model = PluginsSettings.model_validate(settings)
        every = Catalogue.load(cache, model).selections.values()
        ours = [
            item.plugin
            for item in every
            if item.plugin.file or item.plugin.distribution.startswith("acme-")
        ]
        return Catalogue(ours, model)

    return make


def test_an_examination_tells_all_that_the_code_gives(site: Path) -> None:
    write_plugin(site, "dice", code=ROLL)

    manifest = examine_plugin("dice")

    (tool,) = manifest.of_kind("tools")
    assert (tool.name, tool.summary) == ("roll", "Roll a die.")
    assert tool.detail["read_only"] is True
    assert tool.detail["factory"] == "acme_dice.plugin:RollTool"
    assert manifest.settings[0].environment == ("DICE_KEY",)
    assert manifest.settings[0].schema["properties"]["sides"]["default"] == 6
    assert manifest.hooks == {"before_turn": 1, "start": 1}
    assert manifest.when == {"before_turn": "channel:dice"}
    assert manifest.facts.summary == "Dice"
    assert not [name for name in sys.modules if name.startswith("acme_")]


def test_an_examination_in_this_process_says_the_same(site: Path, cache: Path) -> None:
    write_plugin(site, "dice", code=ROLL)
    plugin = next(item for item in load_installed(cache) if item.id == "dice")

    assert derive_manifest(plugin) == examine_plugin("dice")


NOISY = """
import atexit, os, sys
print("hello from import")
atexit.register(print, "goodbye")
"""
HIDDEN = """
import os, sys
if "ACME_TOKEN" in os.environ or os.getcwd() in sys.path or sys.stdin.read():
    raise RuntimeError("sees too much")
"""
BAD = "from nanobot_core import on, CliGroup, PluginFacts, SettingsSection, LazyTool\n"


def test_what_a_plugin_prints_does_not_disturb(site: Path) -> None:
    write_plugin(site, "noisy", code=NOISY)

    assert examine_plugin("noisy").id == "noisy"


def test_the_child_gets_no_secrets_no_input_and_nothing_of_the_current_directory(
    site: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_plugin(site, "curious", code=HIDDEN)
    monkeypatch.setenv("ACME_TOKEN", "secret")
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "loguru.py").write_text("raise RuntimeError('shadowed')")
    (workspace / "nanobot_core.py").write_text("raise RuntimeError('shadowed')")
    monkeypatch.chdir(workspace)

    assert examine_plugin("curious").id == "curious"


FAULTS = [
    ("import no_such_thing", PluginLoadFailed, "module 'no_such_thing' is not installed"),
    ("import os; os._exit(9)", PluginLoadFailed, "ended early: exit code 9"),
    (
        BAD + "@on.contribute_cli\ndef f(): raise ValueError('no')",
        PluginLoadFailed,
        "contribute_cli raised ValueError: no",
    ),
    (
        BAD + "@on.contribute_cli\ndef f(): raise SystemExit(1)",
        PluginLoadFailed,
        "contribute_cli raised SystemExit",
    ),
    (
        BAD + "@on.contribute_cli\ndef f(): return 1",
        PluginLoadFailed,
        "contribute_cli raised TypeError",
    ),
    (
        BAD + "@on.contribute_cli\ndef f(): return ['x']",
        PluginRejected,
        "contribute_cli returned str",
    ),
    (
        BAD + "@on.contribute_tools\ndef f(ctx): return [1]",
        PluginRejected,
        "contribute_tools returned int",
    ),
    (
        BAD + "@on.contribute_tools\ndef f(ctx): return [LazyTool('t', 'json:dumps')]",
        PluginLoadFailed,
        "creating tool 't' raised TypeError",
    ),
    (
        BAD + "@on.contribute_tools\ndef f(ctx): return [LazyTool('t', 'json:decoder')]",
        PluginRejected,
        "neither a tool nor a factory",
    ),
    (
        BAD + "@on.contribute_settings\ndef f(): return [1]",
        PluginRejected,
        "contribute_settings returned int",
    ),
    (
        BAD + "@on.contribute_settings\ndef f(): return [SettingsSection('x', 'json:dumps')]",
        PluginRejected,
        "'json:dumps' is not a pydantic model",
    ),
    (
        BAD + "@on.contribute_settings\ndef f(): raise OSError('no')",
        PluginLoadFailed,
        "raised OSError: no",
    ),
    (
        BAD + "@on.describe_plugin\ndef f(): return 1",
        PluginRejected,
        "describe_plugin returned int",
    ),
    (
        BAD + "@on.describe_plugin\ndef f(): return PluginFacts(requires=(1,))",
        PluginRejected,
        "invalid contribution",
    ),
    (
        BAD + "@on.before_turn(when='chanel:x')\ndef f(event): ...",
        PluginRejected,
        "which is not a condition",
    ),
    (
        "from nanobot_core import hookimpl\n@hookimpl\ndef before_turm(event): ...",
        PluginRejected,
        "hook 'before_turm', which does not exist",
    ),
]


@pytest.mark.parametrize(("code", "error", "reason"), FAULTS)
def test_what_is_wrong_with_a_plugin_is_the_reason(
    site: Path, code: str, error: type[Exception], reason: str
) -> None:
    write_plugin(site, "wrong", code=code)

    with pytest.raises(error) as failed:
        examine_plugin("wrong")

    assert reason in str(failed.value)


def test_an_examination_of_nothing_says_that_it_is_not_installed(site: Path) -> None:
    with pytest.raises(PluginNotFound, match="not installed"):
        examine_plugin("nobody")


def test_an_examination_has_a_limit(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_plugin(site, "slow", code="import time\nwhile True: time.sleep(1)\n")
    monkeypatch.setattr("nanobot_core.plugins.examine.EXAMINATION_LIMIT_S", 0.5)

    with pytest.raises(PluginLoadFailed, match=r"did not end within 0\.5 s; run nanobot plugins"):
        examine_plugin("slow")


def counting(tmp_path: Path) -> str:
    """Code that leaves a trace each time it is executed."""
    return f"open({str(tmp_path / 'count')!r}, 'a').write('x')\n"


def examined(open_catalogue: Open, cache: Path, **settings: object) -> Catalogue:
    catalogue = open_catalogue(**settings)
    catalogue.describe_all(cache)
    return catalogue


def test_an_undescribed_plugin_is_examined_once_for_each_state_of_its_files(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "bare", code=counting(tmp_path), record="plugin.py,sha256=one,1\n")

    examined(open_catalogue, cache)
    examined(open_catalogue, cache)
    once = (tmp_path / "count").read_text()
    (site / "acme_bare-1.0.dist-info" / "RECORD").write_text("plugin.py,sha256=two,1\n")
    catalogue = examined(open_catalogue, cache)

    assert once == "x"
    assert (tmp_path / "count").read_text() == "xx"
    assert catalogue.selections["bare"].plugin.manifest is not None


def test_without_a_record_a_plugin_is_examined_each_time(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "bare", code=counting(tmp_path), record="")

    examined(open_catalogue, cache)
    examined(open_catalogue, cache)

    assert (tmp_path / "count").read_text() == "xx"
    assert not (cache / "examined").exists()


@pytest.mark.promise(13)
def test_a_failed_examination_is_kept_until_anything_is_installed(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    code = f"{counting(tmp_path)}\n1 / 0\n"
    write_plugin(site, "bare", code=code, record="plugin.py,sha256=one,1\n")

    examined(open_catalogue, cache)
    kept = examined(open_catalogue, cache).selections["bare"]
    once = (tmp_path / "count").read_text()
    write_plugin(site, "other")
    examined(open_catalogue, cache, disabled=["other"])

    assert (kept.condition.state, once) == ("failed", "x")
    assert "ZeroDivisionError" in kept.condition.reason
    assert (tmp_path / "count").read_text() == "xx"


def test_a_damaged_result_is_examined_anew(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "bare", record="x")
    examined(open_catalogue, cache)
    (kept,) = (cache / "examined").iterdir()
    kept.write_text("[]")

    assert examined(open_catalogue, cache).selections["bare"].enabled


def test_a_plugin_that_cannot_be_examined_is_out_and_so_is_what_requires_it(
    site: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "broken", code="import no_such_thing")
    needs = manifest_of("needy", facts={"requires": ["broken"]})
    write_plugin(site, "needy", manifest=needs)
    write_plugin(site, "free", manifest=manifest_of("free"))

    catalogue = examined(open_catalogue, cache)

    broken = catalogue.selections["broken"]
    assert (broken.enabled, broken.condition.state) == (False, "failed")
    assert broken.condition.remedy == "install the package that has it"
    assert "no_such_thing" in catalogue.selections["needy"].condition.reason
    assert [plugin.id for plugin in catalogue.enabled()] == ["free"]


def test_what_an_examined_plugin_requires_is_enabled_and_examined_too(
    site: Path, cache: Path, open_catalogue: Open
) -> None:
    facts = "from nanobot_core import on, PluginFacts\n@on.describe_plugin\ndef f():\n"
    write_plugin(site, "first", code=facts + "    return PluginFacts(requires=('second',))")
    write_plugin(site, "second", code="")
    write_distribution(site, "someone", requires=["acme-second"])

    catalogue = examined(open_catalogue, cache)

    assert [plugin.id for plugin in catalogue.enabled()] == ["second", "first"]
    assert catalogue.selections["second"].plugin.manifest is not None


def test_a_disabled_plugin_is_not_examined(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "bare", code=counting(tmp_path))

    examined(open_catalogue, cache, disabled=["bare"])

    assert not (tmp_path / "count").exists()


def test_a_local_file_is_described_and_described_again_when_it_changes(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    file = cache.parent / "dice.py"
    file.parent.mkdir(parents=True)
    file.write_text(ROLL)
    first = examined(open_catalogue, cache, local=["dice.py"])
    file.write_text(ROLL.replace('"roll"', '"throw"'))
    second = examined(open_catalogue, cache, local=["dice.py"])

    names = [[item.name for _, item in each.declared("tools")] for each in (first, second)]
    assert names == [["roll"], ["throw"]]
    assert first.claimants("tools", "roll")[0].condition.reason == "named under plugins.local"


def test_a_local_file_with_the_id_of_an_installed_plugin_is_refused_with_it(
    site: Path, tmp_path: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "dice", manifest=manifest_of("dice"))
    file = tmp_path / "dice.py"
    file.write_text("")

    reason = open_catalogue(local=[str(file)]).selections["dice"].condition.reason

    assert reason == f"id 'dice' is claimed by acme-dice and {file}"


def test_a_tool_of_a_disabled_plugin_is_explained(
    site: Path, cache: Path, open_catalogue: Open
) -> None:
    declared = manifest_of("scales", declarations=[tool_declaration("weigh")])
    write_plugin(site, "scales", manifest=declared)

    catalogue = open_catalogue(disabled=["scales"])

    assert catalogue.describe_missing_tool("weigh") == (
        "It comes with plugin 'scales', which is out: named under plugins.disabled."
    )
    assert catalogue.describe_missing_tool("fly") == ""
    assert open_catalogue().describe_missing_tool("weigh") == ""


def test_a_folder_that_cannot_be_written_does_not_stop_an_examination(
    site: Path, cache: Path, open_catalogue: Open
) -> None:
    write_plugin(site, "bare", record="x")
    cache.mkdir(parents=True, exist_ok=True)
    (cache / "examined").write_text("a file where the folder should be")

    catalogue = open_catalogue()

    assert catalogue.selections["bare"].plugin.manifest is not None
    assert (cache / "examined").is_file()


@pytest.mark.promise(27)
@pytest.mark.parametrize(
    ("kind", "said"),
    [("commands", "command 'brew'"), ("memory", "memory 'brew'"), ("services", "service 'brew'")],
)
def test_a_name_of_two_plugins_is_nobodys_and_both_are_named(
    site: Path, open_catalogue: Open, kind: str, said: str
) -> None:
    declared = {"kind": kind, "name": "brew", "summary": "", "detail": {}}
    for plugin_id in ("one", "two"):
        write_plugin(site, plugin_id, manifest=manifest_of(plugin_id, declarations=[declared]))

    catalogue = open_catalogue()

    (clash,) = catalogue.contested.values()
    assert clash.claim == f"{said} is claimed by one and two"
    assert not [item for item in catalogue.declared(kind) if item[0].id in {"one", "two"}]
