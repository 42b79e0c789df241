"""``nanobot status`` and ``explain``."""

from __future__ import annotations

import json

import pytest

from tests.distributions import write_plugin
from tests.integration.cli.conftest import CONFIG, CommandLine

BAKERY = '''
from __future__ import annotations
from collections.abc import Iterable
from nanobot_core import PluginContext, declare_contribution, on

@declare_contribution
def bakery_recipes(ctx: PluginContext) -> Iterable[str]:
    """Give recipes, one line each."""
    raise NotImplementedError

@on.contribute_hookspecs
def hooks(): yield bakery_recipes
'''
CAKES = """
from acme_bakery.plugin import bakery_recipes

@bakery_recipes
def recipes(ctx): return ["carrot cake"]
"""
OVEN = """
from nanobot_core import PluginSettings, SettingsSection, on

class OvenSettings(PluginSettings):
    degrees: int = 180
    api_key: str = "key-of-every-oven"

@on.contribute_settings
def settings(): return [SettingsSection("tools.oven", "acme_oven.plugin:OvenSettings")]
"""


def test_the_status_names_model_provider_and_plugins(nanobot: CommandLine) -> None:
    shown = nanobot("status").stdout
    facts = json.loads(nanobot("status", "--json").stdout)

    assert "Model          scripted-1" in shown
    assert facts["provider"] == "scripted"
    assert facts["plugins"]["enabled"] == 2
    assert facts["configuration"] == str(nanobot.home / "config.yaml")


def test_the_status_without_a_configuration_says_what_to_do(nanobot: CommandLine) -> None:
    (nanobot.home / "config.yaml").unlink()

    assert "run nanobot onboard" in nanobot("status").stdout


def test_the_status_tells_of_plugins_that_are_not_there(nanobot: CommandLine) -> None:
    nanobot.configure(CONFIG.replace("extras]", "extras, absent]"))

    assert "absent: the configuration names it and it is not installed" in nanobot("status").stdout


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("tool", "ping"), "scripted@1.0: enabled"),
        (("command", "/help"), "nanobot-core"),
        (("setting", "agents.defaults.model"), "config.yaml:1"),
        (("setting", "agents.defaults.max_tokens"), "not set; the default applies"),
        (("setting", "agents.defaults.maxTokens"), "8192"),
        (("setting", "logging.json"), "False"),
        (("setting", "providers.scripted.api_base"), "scripted@1.0"),
        (("hook", "before_turn"), "The user's message is stored"),
    ],
)
def test_explanations_name_the_source(
    nanobot: CommandLine, args: tuple[str, ...], expected: str
) -> None:
    assert expected in nanobot("explain", *args).stdout


def test_a_hook_is_explained_with_kind_arguments_fields_result_and_limit(
    nanobot: CommandLine,
) -> None:
    facts = json.loads(nanobot("explain", "hook", "authorize_tool_call", "--json").stdout)

    assert facts["kind"].startswith("gate: ")
    assert facts["arguments"] == ["event: ToolCallProposed"]
    assert "call: ToolCall" in facts["event_fields"]
    assert (facts["returns"], facts["limit"]) == ("Decision | None", "15 s")


def test_hooks_that_plugins_declare_are_listed_and_explained(nanobot: CommandLine) -> None:
    write_plugin(nanobot.own_site(), "bakery", code=BAKERY)
    write_plugin(nanobot.own_site(), "cakes", code=CAKES)
    nanobot.configure(CONFIG.replace("extras]", "extras, bakery, cakes]"))

    rows = {row["hook"]: row for row in json.loads(nanobot("plugins", "hooks", "--json").stdout)}
    facts = json.loads(nanobot("explain", "hook", "bakery_recipes", "--json").stdout)

    assert rows["before_turn"]["declared_by"] == "nanobot-core"
    assert rows["bakery_recipes"]["declared_by"] == "bakery@1.0"
    assert facts["contract"] == "Give recipes, one line each."
    assert (facts["arguments"], facts["returns"]) == (["ctx: PluginContext"], "Iterable[str]")
    assert facts["implemented_by"] == ["cakes"]
    assert (
        "did you mean 'bakery_recipes'?"
        in nanobot("explain", "hook", "bakery_recipe", code=1).stderr
    )


def test_an_explanation_shows_no_secret(nanobot: CommandLine) -> None:
    shown = nanobot("explain", "setting", "providers.scripted.api_key").stdout

    assert "key-of-the-test-7" not in shown
    assert "config.yaml:2" in shown


def test_a_setting_of_a_plugin_that_is_not_set_has_the_default_of_the_plugin(
    nanobot: CommandLine,
) -> None:
    write_plugin(nanobot.own_site(), "oven", code=OVEN)
    nanobot.configure(CONFIG.replace("extras]", "extras, oven]") + "tools: {oven: {degrees: 9}}\n")
    assert _explained(nanobot, "tools.oven.degrees")["value"] == 9
    nanobot.configure(CONFIG.replace("extras]", "extras, oven]"))

    facts = _explained(nanobot, "tools.oven.degrees")

    assert (facts["value"], facts["belongs_to"]) == (180, ["oven@1.0"])
    assert facts["set_in"] == "not set; the default applies"
    assert _explained(nanobot, "tools.oven.api_key")["value"] == "********"
    assert _explained(nanobot, "tools.oven")["value"] is None
    nanobot.configure(CONFIG)
    assert _explained(nanobot, "tools.oven.degrees")["value"] is None, "it is not imported"


def _explained(nanobot: CommandLine, path: str) -> dict[str, object]:
    facts: dict[str, object] = json.loads(nanobot("explain", "setting", path, "--json").stdout)
    return facts


@pytest.mark.parametrize(
    ("args", "hint"),
    [
        (("tool", "pnig"), "did you mean 'ping'"),
        (("hook", "befor_turn"), "did you mean 'before_turn'"),
        (("command", "hepl"), "did you mean 'help'"),
    ],
)
def test_a_near_miss_is_named(nanobot: CommandLine, args: tuple[str, ...], hint: str) -> None:
    assert hint in nanobot("explain", *args, code=1).stderr


MISSING = (
    CONFIG + "gateway: {secret: '${HOOK_SECRET}'}\nchannels: {hook: {secret: '${HOOK_SECRET}'}}\n"
)


@pytest.mark.parametrize(
    "words",
    [
        "status",
        "sessions list",
        "pairing list",
        "deadletters list",
        "plugins list",
        "approvals list",
        "config get gateway.port",
        "config show",
    ],
)
def test_commands_that_need_no_secret_work_without_it(nanobot: CommandLine, words: str) -> None:
    nanobot.configure(MISSING)

    nanobot(*words.split())


def test_an_agent_without_a_secret_names_the_variable_and_the_key(nanobot: CommandLine) -> None:
    nanobot.configure(MISSING)

    told = nanobot("agent", "-m", "hi", code=1).stderr
    assert "gateway.secret: expected the environment variable HOOK_SECRET to be set" in told


@pytest.mark.parametrize("words", ["gateway status", "gateway stop"])
def test_commands_for_the_gateway_work_with_a_broken_file(nanobot: CommandLine, words: str) -> None:
    nanobot.configure("a: b: c\n")

    assert "no gateway runs here" in nanobot(*words.split(), code=1).stderr


def test_the_status_reports_a_broken_file(nanobot: CommandLine) -> None:
    nanobot.configure("a: b: c\n")

    assert "config.yaml:1: a ':' is not allowed here" in nanobot("status").stdout


def test_the_status_reports_what_config_check_finds(nanobot: CommandLine) -> None:
    nanobot.configure(CONFIG + "tols: {a: 1}\nchanels: {x: {a: 1}}\n")

    shown = nanobot("status").stdout
    listed = nanobot("config", "check", code=1).stderr
    assert "tols: no installed plugin reads this section; did you mean 'tools'?" in shown
    assert "did you mean 'tools'?" in listed
    assert "did you mean 'channels'?" in listed
    assert "1 more: nanobot config check" in shown


def test_the_status_names_keys_and_gateway(nanobot: CommandLine) -> None:
    facts = json.loads(nanobot("status", "--json").stdout)

    assert "scripted" in facts["keys_present"]
    assert facts["gateway"] == "not running"
