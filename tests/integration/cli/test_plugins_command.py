"""``nanobot plugins``."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import yaml

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.packages import HOOK, SETTINGS, TOOL, Packages, packages_for

LISTED = "plugins: {policy: listed, enabled: [alpha, beta]}\n"


@pytest.fixture
def packages(bare: CommandLine, tmp_path: Path) -> Packages:
    return packages_for(bare, tmp_path / "packages")


@pytest.mark.promise(1)
def test_list_shows_each_plugin_and_imports_none(packages: Packages) -> None:
    packages.add("alpha", SETTINGS.format(id="alpha") + TOOL.format(id="alpha"))
    packages.add("beta", HOOK.format(options=""))
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    lines = packages.nanobot("plugins", "list").stdout.splitlines()

    assert lines[0].split("\t") == ["plugin", "state", "version", "gives", "about"]
    assert "alpha\tenabled\t1.2\ttools weather\tA sample." in lines
    assert any(line.startswith("beta\tdisabled\t1.2") for line in lines)
    assert packages.imported() == set()


@pytest.fixture
def alone(bare: CommandLine) -> CommandLine:
    """Whatever is installed here is hidden from the command."""
    program = (
        "import sys; from nanobot_core.plugins import catalogue; "
        "catalogue.load_installed = lambda folder: (); "
        "from nanobot_core.cli import group; group.plugin_entries = lambda parent: (); "
        "from nanobot_core.cli import main; main()"
    )
    return CommandLine(bare.home, bare.environ, (bare.command[0], "-c", program))


def test_list_without_any_plugin_says_what_to_install(alone: CommandLine) -> None:
    done = alone("plugins", "list")

    assert "python3 -m pip install 'nanobot-core[standard]'" in done.stderr
    assert done.stdout == ""


def test_a_command_of_a_published_plugin_names_its_package(alone: CommandLine) -> None:
    reported = alone("web", code=2).stderr

    assert "no such command 'web'; it comes with nanobot-page" in " ".join(reported.split())


def test_a_published_plugin_is_named_with_the_line_that_installs_it(alone: CommandLine) -> None:
    reported = alone("plugins", "why", "telegram", code=1).stderr

    assert "run nanobot plugins add nanobot-telegram" in " ".join(reported.split())


def test_onboard_without_a_model_provider_says_so(alone: CommandLine) -> None:
    assert "For a model, run pip install" in alone("onboard", "--yes").stdout


def test_the_id_of_a_plugin_is_not_the_name_of_its_package(packages: Packages) -> None:
    packages.add("alpha")

    reported = packages.nanobot("plugins", "why", "nanobot-alpha", code=1).stderr

    assert "the id of its plugin is alpha" in " ".join(reported.split())


def test_what_is_named_and_missing_comes_with_the_line_that_brings_it(packages: Packages) -> None:
    packages.add("alpha")
    packages.nanobot.configure("plugins: {policy: listed, enabled: [teapot]}")

    listed = packages.nanobot("plugins", "list")
    why = json.loads(packages.nanobot("plugins", "why", "teapot", "--json").stdout)

    assert "teapot\tnot-installed" in listed.stdout
    assert "install the package that has it" in listed.stderr
    assert (why["runs"], why["remedy"]) == (False, "install the package that has it")


@pytest.mark.promise(27)
def test_two_plugins_with_one_tool_name_are_told_with_the_remedy(packages: Packages) -> None:
    for plugin_id in ("alpha", "beta"):
        packages.add(plugin_id, TOOL.format(id=plugin_id))
    packages.nanobot.configure(LISTED)

    done = packages.nanobot("plugins", "list")
    data = json.loads(packages.nanobot("plugins", "list", "--json").stdout)

    assert "tool 'weather' is claimed by alpha and beta" in done.stderr
    assert data["clashes"] == [
        {
            "kind": "tool",
            "name": "weather",
            "plugins": ["alpha", "beta"],
            "keeper": "",
            "remedy": "set tools.aliases.weather: alpha/weather",
        }
    ]
    packages.nanobot.configure(LISTED + "tools: {aliases: {weather: alpha/weather}}\n")
    assert json.loads(packages.nanobot("plugins", "list", "--json").stdout)["clashes"] == []


@pytest.mark.promise(38)
def test_inspect_shows_what_a_plugin_gives_and_reads(packages: Packages) -> None:
    packages.add("alpha", SETTINGS.format(id="alpha") + HOOK.format(options=""))

    lines = packages.nanobot("plugins", "inspect", "alpha").stdout.splitlines()
    data = json.loads(packages.nanobot("plugins", "inspect", "alpha", "--json").stdout)

    assert lines[0] == "alpha 1.2 (nanobot-alpha): A sample."
    assert "settings: tools.alpha" in lines
    assert "hook: finalize_content" in lines
    assert "reaches: reads and changes answers" in lines
    assert data["manifest"]["id"] == "alpha"
    assert packages.imported() == set()


def test_a_plugin_without_a_manifest_is_listed_like_any_other(packages: Packages) -> None:
    packages.add("alpha", TOOL.format(id="alpha"), described=False)
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    listed = packages.nanobot("plugins", "list").stdout

    assert "alpha\tenabled\t1.2\ttools weather\tA sample." in listed


def test_help_lists_the_commands_of_a_plugin_without_a_manifest(packages: Packages) -> None:
    code = """
from nanobot_core import CliGroup
@on.contribute_cli
def groups():
    return [CliGroup(name="{id}", summary="Forecasts of {id}.", app="nanobot_{id}.tool:app")]
"""
    for plugin_id in ("alpha", "beta"):
        packages.add(plugin_id, code.format(id=plugin_id), described=False)
        (packages.folder / f"nanobot_{plugin_id}-1.2.dist-info" / "RECORD").write_text(plugin_id)
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    first, second = (packages.nanobot("--help").stdout for _ in range(2))

    assert "Forecasts of alpha." in first
    assert first == second
    assert packages.imported() == {"alpha"}, "and not the one that is disabled"


def test_help_lists_and_runs_the_commands_of_a_plugin_in_a_single_file(
    packages: Packages,
) -> None:
    file = packages.nanobot.home / "dice.py"
    text = """
import pathlib
import typer
from nanobot_core import CliGroup, on
with pathlib.Path(__file__).with_suffix(".seen").open("a") as seen:
    seen.write("imported ")
app = typer.Typer(callback=lambda: None)
@app.command()
def roll():
    print("4")
@on.contribute_cli
def groups():
    return [CliGroup(name="dice", summary="{summary}", app=f"{{__name__}}:app")]
"""
    file.write_text(text.format(summary="Rolls."))
    packages.nanobot.configure("plugins: {local: [dice.py]}")

    first, second = (packages.nanobot("--help").stdout for _ in range(2))

    assert "Rolls." in first
    assert first == second
    assert file.with_suffix(".seen").read_text() == "imported ", "once, to describe it"
    assert packages.nanobot("dice", "roll").stdout == "4\n"

    packages.nanobot.configure("plugins: {local: []}")
    assert "Rolls." not in packages.nanobot("--help").stdout


def test_a_command_of_the_devkit_says_what_to_install(bare: CommandLine) -> None:
    program = (
        "from nanobot_core.plugins import index; "
        "index.load_declarations = lambda *arguments: []; "
        "from nanobot_core.cli import main; main()"
    )
    alone = CommandLine(bare.home, bare.environ, (bare.command[0], "-c", program))

    done = alone("plugins", "new", "dice", code=2)

    assert "python3 -m pip install nanobot-devkit" in " ".join(done.stderr.split())


@pytest.mark.parametrize("command", ["inspect", "why", "enable", "disable"])
def test_a_mistyped_id_is_answered_with_the_nearest(packages: Packages, command: str) -> None:
    packages.add("alpha")

    assert "did you mean 'alpha'?" in packages.nanobot("plugins", command, "alhpa", code=1).stderr


WHOLE = """
@on.contribute_channels
def contribute_channels(ctx):
    from nanobot_core import ChannelSpec
    return [ChannelSpec(name=name, factory="a:b") for name in ("line", "quiet")]

@on.contribute_providers
def contribute_providers(ctx):
    return [ProviderSpec(name="oracle", factory="a:b")]

@on.contribute_memory
def contribute_memory(ctx):
    from nanobot_core import MemorySpec
    return [MemorySpec(name=name, factory="a:b") for name in ("diary", "notes")]

@on.contribute_stores
def contribute_stores(ctx):
    from nanobot_core import StoreSpec
    bus = StoreSpec(name="queue", factory="a:b", kind="bus")
    return [
        bus, *(StoreSpec(name=name, factory="a:b", kind="sessions") for name in ("jsonl", "sql"))
    ]

@on.contribute_commands
def contribute_commands(ctx):
    from nanobot_core import SlashCommand
    return [SlashCommand(name="sing", summary="s", handler="a:b")]

@on.contribute_cli
def contribute_cli():
    from nanobot_core import CliGroup
    return [CliGroup(name="sing", summary="s", app="a:b", parent="plugins")]

@on.contribute_services
def contribute_services(ctx):
    from nanobot_core import ServiceSpec
    return [ServiceSpec(name="beat", factory="a:b")]
"""


@pytest.mark.promise(2)
def test_why_names_every_trigger_and_what_is_missing(packages: Packages) -> None:
    packages.add("alpha", TOOL.format(id="alpha") + HOOK.format(options="") + WHOLE)
    packages.nanobot.configure(
        LISTED + "channels: {line: {enabled: true}}\nmemory: {backend: diary}\n"
    )

    told = packages.nanobot("plugins", "why", "alpha").stdout

    for sentence in (
        "alpha may run: named under plugins.enabled",
        "starts with the agent, to hear finalize_content",
        "tool 'weather' is offered",
        "channels.line.enabled is true",
        "channel 'quiet' is off; set channels.quiet.enabled to true",
        "provider 'oracle'",
        "memory.backend is 'diary'",
        "memory backend 'notes' is not chosen",
        "agents.defaults.session_store is 'jsonl'",
        "store 'sql' is not chosen; set agents.defaults.session_store to sql",
        "store 'queue' is not chosen; set gateway.bus to queue",
        "'/sing' is typed",
        "'nanobot plugins sing' needs it",
        "starts with the gateway, for services 'beat'",
    ):
        assert sentence in told, sentence
    assert packages.imported() == set()


@pytest.mark.promise(29)
def test_order_gives_the_reason_for_each_place(packages: Packages) -> None:
    wishes = (
        "@on.describe_plugin\ndef describe_plugin():\n    return PluginFacts(after=('beta',))\n"
    )
    packages.add("alpha", HOOK.format(options="") + wishes)
    packages.add("beta", HOOK.format(options=""))
    packages.add("delta", HOOK.format(options="(tryfirst=True)"))
    packages.add("gamma", HOOK.format(options=""))
    names = ["alpha", "beta", "delta", "gamma"]
    packages.nanobot.configure(
        f"plugins: {{policy: listed, enabled: {json.dumps(names)}, "
        "order: {finalize_content: [gamma]}}"
    )

    places = json.loads(packages.nanobot("plugins", "order", "finalize_content", "--json").stdout)
    table = packages.nanobot("plugins", "order", "finalize_content").stdout.splitlines()

    assert [place["plugin"] for place in places] == ["gamma", "delta", "beta", "alpha"]
    reasons = {place["plugin"]: place["reason"] for place in places}
    assert reasons["gamma"] == "plugins.order.finalize_content names it"
    assert reasons["delta"] == "an implementation asks to come first or last"
    assert "after" in reasons["alpha"] or "first or last" in reasons["alpha"]
    assert table[1].split("\t")[:2] == ["1", "gamma"]


def test_order_of_a_contribution_follows_the_plugins_and_imports_none(packages: Packages) -> None:
    packages.add("alpha", TOOL.format(id="alpha"))
    packages.add("beta", TOOL.format(id="beta"))
    packages.nanobot.configure(LISTED)

    done = packages.nanobot("plugins", "order", "contribute_tools", "--json")

    assert [place["plugin"] for place in json.loads(done.stdout)] == ["alpha", "beta"]
    assert packages.imported() == set()


def test_order_of_an_unknown_hook_is_wrong_use(packages: Packages) -> None:
    done = packages.nanobot("plugins", "order", "finalise_content", code=2)

    assert "did you mean 'finalize_content'" in done.stderr


def test_order_of_a_hook_nobody_implements_says_so(packages: Packages) -> None:
    packages.nanobot.configure("plugins: {policy: listed}")

    assert "no enabled plugin" in packages.nanobot("plugins", "order", "choose_model").stdout


def test_status_tells_a_plugin_that_fails_from_one_that_runs(packages: Packages) -> None:
    packages.add("alpha", HOOK.format(options=""))
    packages.add("beta", HOOK.format(options="") + "import no_such_module\n", described=False)
    packages.nanobot.configure(LISTED)

    done = packages.nanobot("plugins", "status")
    reports = json.loads(packages.nanobot("plugins", "status", "--json").stdout)

    states = {report["id"]: report["state"] for report in reports}
    assert (states["alpha"], states["beta"]) == ("active", "failed")
    assert "no_such_module" in done.stdout + done.stderr


@pytest.mark.promise(35)
def test_top_tells_what_each_plugin_costs(packages: Packages) -> None:
    packages.add("alpha", TOOL.format(id="alpha"))
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    (cost,) = json.loads(packages.nanobot("plugins", "top", "--json").stdout)
    table = packages.nanobot("plugins", "top").stdout.splitlines()

    assert cost["id"] == "alpha"
    assert cost["prompt_tokens"] > len("Report on one city.") / 4
    assert cost["start_ms"] > 0
    assert cost["import_cpu_ms"] > 0
    assert table[1].startswith("alpha\t")


@pytest.mark.promise(34)
def test_enable_and_disable_change_the_file_and_nothing_else_in_it(packages: Packages) -> None:
    packages.add("alpha", HOOK.format(options=""))
    file = packages.nanobot.configure(
        "# mine\nplugins:\n  policy: listed  # only these\n  disabled: [alpha]\n"
    )

    enabled = packages.nanobot("plugins", "enable", "alpha")
    after_enable = yaml.safe_load(file.read_text())["plugins"]
    again = packages.nanobot("plugins", "enable", "alpha")
    packages.nanobot("plugins", "disable", "alpha")
    after_disable = yaml.safe_load(file.read_text())["plugins"]

    assert enabled.stdout.strip() == "alpha is enabled; it reaches: reads and changes answers"
    assert re.search(r"its import takes [\d.]+ ms, and [\d.]+ MB", enabled.stderr)
    assert "was enabled already" in again.stdout
    assert (after_enable["enabled"], after_enable["disabled"]) == (["alpha"], [])
    assert (after_disable["enabled"], after_disable["disabled"]) == ([], ["alpha"])
    assert file.read_text().startswith("# mine\nplugins:\n  policy: listed  # only these\n")


EAR = "@on.before_turn\ndef hear(event): ...\n"
OWNER = "@on.choose_approval\ndef answer(event): ...\n"
IN_THE_OWNERS_NAME = "answers approval questions in the owner's name"


@pytest.mark.promise(25)
@pytest.mark.parametrize("described", [True, False])
def test_an_upgrade_that_does_more_is_off_until_enable_shows_it_and_agrees(
    packages: Packages, described: bool
) -> None:
    nanobot = packages.nanobot
    packages.add("alpha", EAR, described=described)
    nanobot.configure("plugins: {policy: listed, disabled: [alpha]}")
    first = nanobot("plugins", "enable", "alpha").stdout
    packages.remove("alpha")
    packages.add("alpha", EAR + OWNER, described=described)

    status = nanobot("plugins", "status").stdout
    doctor = nanobot("doctor", code=1).stdout
    listed = nanobot("status").stdout
    left_out = nanobot("sessions", "list").stderr + nanobot("agent", "-m", "hi", code=1).stderr
    again = nanobot("plugins", "enable", "alpha").stdout

    assert "plugin left out: it does more than its owner has agreed to" in left_out
    assert first.strip() == "alpha is enabled; it reaches: reads messages"
    for told in (status, doctor, listed):
        assert IN_THE_OWNERS_NAME in told
    assert "unconfirmed" in status
    assert f"alpha is enabled; it reaches: reads messages, {IN_THE_OWNERS_NAME}" in again
    assert f"new since you last agreed: {IN_THE_OWNERS_NAME}" in again
    assert "alpha\tactive" in nanobot("plugins", "status").stdout


@pytest.mark.promise(25)
def test_what_an_enabled_plugin_reaches_is_shown_although_it_has_no_manifest(
    packages: Packages,
) -> None:
    packages.add("alpha", OWNER, described=False)
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    lines = packages.nanobot("plugins", "inspect", "alpha").stdout.splitlines()

    assert f"reaches: {IN_THE_OWNERS_NAME}" in lines


def test_what_is_refused_for_a_plugin_that_does_not_run_is_said(packages: Packages) -> None:
    packages.add("alpha", "import no_such_module\n", described=False)
    nanobot = packages.nanobot
    nanobot.configure("plugins: {policy: listed, enabled: [alpha]}")

    told = [nanobot("doctor", code=1), nanobot("status"), nanobot("plugins", "status")]

    for each in told:
        assert "every channel message and every tool call is refused until it runs" in each.stdout
    assert "alpha does not run" in nanobot("explain", "hook", "admit_message").stdout
    nanobot("plugins", "disable", "alpha")
    assert "is refused" not in nanobot("status").stdout


def test_enable_makes_the_file_where_there_is_none(packages: Packages) -> None:
    packages.add("alpha")

    packages.nanobot("plugins", "enable", "alpha")

    written = yaml.safe_load((packages.nanobot.home / "config.yaml").read_text())
    assert written == {"plugins": {"enabled": ["alpha"]}}


def test_a_required_plugin_is_not_disabled(packages: Packages) -> None:
    packages.add("alpha")
    packages.nanobot.configure("plugins: {required: [alpha]}")

    assert "plugins.required" in packages.nanobot("plugins", "disable", "alpha", code=1).stderr


@pytest.mark.promise(30)
def test_disable_names_the_plugins_that_require_it_and_can_include_them(
    packages: Packages,
) -> None:
    packages.add("alpha", EAR)
    needs = "@on.describe_plugin\ndef facts(): return PluginFacts(requires=('alpha>=1',))\n"
    packages.add("beta", EAR + needs)
    nanobot = packages.nanobot
    file = nanobot.configure("plugins: {policy: listed, enabled: [alpha, beta]}")

    refused = nanobot("plugins", "disable", "alpha", code=1)
    unchanged = yaml.safe_load(file.read_text())["plugins"]
    done = nanobot("plugins", "disable", "alpha", "--cascade")

    assert "is required by 'beta'; --cascade" in " ".join(refused.stderr.split())
    assert unchanged["enabled"] == ["alpha", "beta"]
    assert done.stdout.splitlines() == ["beta is disabled", "alpha is disabled"]
    assert yaml.safe_load(file.read_text())["plugins"]["disabled"] == ["beta", "alpha"]


@pytest.mark.promise(29)
@pytest.mark.parametrize(
    ("owner", "wish", "expected"),
    [
        ("beta", "before=('alpha',)", {"beta": "before 'alpha'", "alpha": "'beta' wants to come"}),
        ("alpha", "after=('beta',)", {"alpha": "after 'beta'", "beta": "'alpha' wants to come"}),
    ],
)
def test_order_names_the_wish_on_both_sides(
    packages: Packages, owner: str, wish: str, expected: dict[str, str]
) -> None:
    told = f"@on.describe_plugin\ndef describe_plugin():\n    return PluginFacts({wish})\n"
    for plugin_id in ("alpha", "beta"):
        packages.add(plugin_id, HOOK.format(options="") + (told if plugin_id == owner else ""))
    packages.nanobot.configure(LISTED)

    places = json.loads(packages.nanobot("plugins", "order", "finalize_content", "--json").stdout)

    assert [place["plugin"] for place in places] == ["beta", "alpha"]
    for place in places:
        assert expected[place["plugin"]] in place["reason"]


@pytest.mark.promise(34)
def test_enable_names_an_import_that_takes_long(packages: Packages) -> None:
    slow = "import time\nwhile time.process_time() < 1.0: pass\n"
    packages.add("alpha", f"{slow}{EAR}")

    done = packages.nanobot("plugins", "enable", "alpha")

    assert "ms, more than 300 ms, and" in done.stderr


@pytest.mark.promise(34)
def test_enable_says_that_a_plugin_does_not_import(packages: Packages) -> None:
    packages.add("alpha", EAR)
    (packages.folder / "nanobot_alpha" / "plugin.py").write_text("import no_such_module\n")

    done = packages.nanobot("plugins", "enable", "alpha")

    assert "it cannot run yet: " in done.stderr
    assert "no_such_module" in done.stderr


LATER = """
def sing(ctx, call):
    return "la"

@on.contribute_commands
def contribute_commands(ctx):
    from nanobot_core import SlashCommand
    return [SlashCommand(name="sing", summary="s", handler="nanobot_later.plugin:sing")]

@on.contribute_providers
def contribute_providers(ctx):
    from nanobot_core import ProviderSpec
    return [ProviderSpec(name="later", factory="a:b")]
"""


def test_specifications_with_fields_of_another_release_are_understood(packages: Packages) -> None:
    packages.add("later", LATER)
    file = packages.folder / "nanobot_later" / "nanobot-plugin.json"
    manifest = json.loads(file.read_text())
    for declaration in manifest["declarations"]:
        declaration["detail"]["of_a_later_release"] = True
    file.write_text(json.dumps(manifest))

    providers = packages.nanobot("providers", "list")
    sung = packages.nanobot("agent", "-m", "/sing")

    assert "later" in providers.stdout
    assert "la" in sung.stdout.split()
