"""``nanobot config``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from nanobot_core.messages import JsonObject
from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.packages import SETTINGS, Packages, packages_for
from tests.unit.config.test_original import FIRST, LAST, MIDDLE

SECRET = "sk-of-this-test-123456"


@pytest.fixture
def packages(bare: CommandLine, tmp_path: Path) -> Packages:
    packages = packages_for(bare, tmp_path / "packages")
    packages.add("alpha", SETTINGS.format(id="alpha"))
    return packages


def test_secrets_are_shown_by_no_command(bare: CommandLine) -> None:
    bare.configure(f"providers: {{oracle: {{api_key: {SECRET}, api_base: here}}}}\n")

    for words in (
        ("show",),
        ("show", "--json"),
        ("get", "providers"),
        ("get", "providers.oracle.apiKey"),
        ("get", "providers.oracle.api_key", "--json"),
    ):
        done = bare("config", *words)
        assert SECRET not in done.stdout + done.stderr
        assert "********" in done.stdout


def test_a_token_in_the_path_of_an_address_is_not_shown(bare: CommandLine) -> None:
    token = "123456789:AAF-abcDEF_ghiJKL12345mnoPQRst6789uv"
    bare.configure(f"x: {{api_root: 'https://api.host/bot{token}/v1', file: /data/bot/v1}}\n")

    for words in (("show",), ("show", "--json"), ("get", "x.api_root")):
        done = bare("config", *words)
        assert token not in done.stdout + done.stderr
        assert "https://api.host/********/v1" in done.stdout
    assert "/data/bot/v1" in bare("config", "show").stdout


def test_a_secret_of_one_letter_does_not_blot_out_the_findings(bare: CommandLine) -> None:
    bare.configure("agents: {defaults: {max_tokens: many}}\ntelegram: {token: x}\n")

    told = bare("config", "check", code=1).stderr

    assert "expected an integer" in told


def test_the_check_reports_plugins_that_are_not_installed(bare: CommandLine) -> None:
    bare.configure("plugins: {policy: listed, enabled: [teapot], required: [samovar]}\n")

    reported = bare("config", "check", code=1).stderr

    assert "Warning" in reported.partition("plugins.enabled[0]: expected the id of an")[0]
    assert "plugins.required[0]: expected the id of an installed plugin, found samovar" in reported


def test_the_check_reports_a_budget_that_no_plugin_keeps(bare: CommandLine) -> None:
    bare.configure("plugins: {policy: listed}\nbudgets: {day: {usd: 1}}\n")

    reported = bare("config", "check").stderr

    assert "budgets: no enabled plugin keeps budgets" in reported
    assert "run nanobot plugins add nanobot-usage" in reported


def test_get_gives_defaults_too(bare: CommandLine) -> None:
    assert bare("config", "get", "agents.defaults.max_tool_iterations").stdout == "200\n"
    assert bare("config", "get", "agents.defaults.streaming").stdout == "true\n"
    assert bare("config", "get", "agents.defaults.model").stdout == "\n"
    assert "no value at" in bare("config", "get", "agents.default.model", code=1).stderr


def test_set_changes_one_value_and_keeps_comments(packages: Packages) -> None:
    file = packages.nanobot.configure("# mine\nagents:\n  defaults:\n    max_tokens: 9 # few\n")

    packages.nanobot("config", "set", "agents.defaults.maxTokens", "10")
    packages.nanobot("config", "set", "tools.alpha.unit", "F")

    text = file.read_text()
    assert text.startswith("# mine\nagents:\n  defaults:\n    max_tokens: 10 # few\n")
    assert yaml.safe_load(text)["tools"] == {"alpha": {"unit": "F"}}
    assert packages.imported() == set()


def test_set_reports_a_key_without_effect(bare: CommandLine) -> None:
    file = bare.configure("owner: [me]\n")

    assert "expected a known key" in bare("config", "set", "foo", "1", code=1).stderr
    assert file.read_text() == "owner: [me]\n"


def test_set_warns_of_a_section_that_no_plugin_reads(bare: CommandLine) -> None:
    told = bare("config", "set", "channels.absent.token", "abc").stderr

    assert "no installed plugin reads this section" in told
    assert "abc" in (bare.home / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("agents.defaults.max_tokens", "many", "expected an integer"),
        ("tools.alpha.limit_s", "soon", "expected a number, found 'soon'"),
        ("tools.alpha.unt", "K", "did you mean 'unit'?"),
    ],
)
def test_set_refuses_what_does_not_fit(packages: Packages, key: str, value: str, told: str) -> None:
    file = packages.nanobot.configure("owner: [me]\n")

    assert told in packages.nanobot("config", "set", key, value, code=1).stderr
    assert file.read_text() == "owner: [me]\n"


def test_set_repairs_a_file_that_is_wrong_elsewhere(bare: CommandLine) -> None:
    file = bare.configure("agents: {defaults: {max_tokens: many, temperature: hot}}\n")

    bare("config", "set", "agents.defaults.max_tokens", "100")

    assert yaml.safe_load(file.read_text())["agents"]["defaults"]["max_tokens"] == 100


OF_ALPHA = "this section belongs to plugin 'alpha'"
WRONG = """\
agents:
  defaults:
    max_tokens: many
tools:
  alpha:
    unitt: K
    colour: red
    limit: [1]
  exec:
    timeout: 5
  alhpa:
    unit: K
somewhere:
  else: 1
"""


def test_check_tells_all_problems_at_once_with_file_and_line(packages: Packages) -> None:
    # Whatever else is installed here, the shell must look as if it were not.
    file = packages.nanobot.configure(WRONG.replace("exec", "exec_of_nobody"))

    done = packages.nanobot("config", "check", code=1)
    data = json.loads(packages.nanobot("config", "check", "--json", code=1).stdout)

    found = {
        problem["path"]: (problem["line"], problem["remedy"])
        for problem in (*data["problems"], *data["warnings"])
    }
    assert found["agents.defaults.max_tokens"][0] == 3
    assert found["tools.alpha.unitt"] == (6, f"did you mean 'unit'?; {OF_ALPHA}")
    assert found["tools.alpha.colour"][1] == "it has no effect; remove it"
    assert found["tools.alpha.limit"][0] == 8
    assert found["tools.alhpa"][1] == "did you mean 'tools.alpha'?"
    assert "install the plugin" in found["somewhere"][1]
    assert f"{file}:6: tools.alpha.unitt" in done.stderr
    assert packages.imported() == set()


def test_check_refuses_presets_that_name_presets_or_nothing(bare: CommandLine) -> None:
    bare.configure(
        "plugins: {policy: listed}\nagents: {defaults: {model: stong}}\nmodels:\n  fast: fast\n"
        "  default: openai/x\n  strong: {model: openai/y, fallback_models: [fats, fast]}\n"
    )
    lines = bare("config", "check", code=1).stderr.splitlines()

    assert [line.split(": ")[2] for line in lines] == [
        "agents.defaults.model",
        "models.fast",
        "models.default",
        "models.strong.fallback_models[0]",
    ]
    assert lines[0].endswith("did you mean 'strong'?")
    assert "expected the name of a model, not of a preset, found fast" in lines[1]


def test_check_reads_the_prompt_texts_of_the_owner(bare: CommandLine) -> None:
    folder = bare.home / "prompts"
    folder.mkdir()
    (folder / "guest.md").write_text("Be kind.\nTo {{sender}}.\n")
    told = bare("config", "check", code=1).stderr
    assert f"{folder}/guest.md:2: unknown placeholder {{{{sender}}}}; this text has none" in told
    (folder / "guest.md").write_text("Be kind.\n")
    bare("config", "check")


def test_a_section_of_a_known_plugin_that_is_missing_comes_with_its_package(
    bare: CommandLine,
) -> None:
    bare.configure("tools: {exec: {timeout: 5}}\n")
    program = (
        "from nanobot_core.plugins import catalogue; "
        "catalogue.load_installed = lambda folder: (); "
        "from nanobot_core.cli import main; main()"
    )
    alone = CommandLine(bare.home, bare.environ, (sys.executable, "-c", program))

    done = alone("config", "check")

    assert "tools.exec: no installed plugin reads this section" in done.stderr
    assert "valid, with one warning" in done.stdout
    assert "nanobot plugins add nanobot-shell" in done.stderr


def test_values_that_the_plugin_would_take_are_no_problem(packages: Packages) -> None:
    packages.nanobot.configure(
        "tools: {alpha: {unit: 5, limitS: '7', token: null}}\nchannels: {alpha: {enabled: false}}\n"
    )

    assert ": valid" in packages.nanobot("config", "check").stdout


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("[1]", "expected a mapping"),
        ("{token: [a]}", "tools.alpha.token: expected a text"),
        ("{mode: slow}", "expected 'fast' or 'exact', found 'slow'"),
        ("{count: 10}", "expected at most 9, found 10"),
        ("{part: {Siez: 1}}", "tools.alpha.part.Siez: expected a known key; did you mean 'size'?"),
        ("{limit: 5, limit_s: 6}", "tools.alpha.limit_s: expected once, found also as 'lim"),
    ],
)
def test_a_section_of_another_form_is_told(packages: Packages, section: str, told: str) -> None:
    packages.nanobot.configure(f"tools: {{alpha: {section}}}\n")

    assert told in packages.nanobot("config", "check", code=1).stderr


TELEGRAM = "channels: {telegram: {token: x, enabled: false, %s}}"
SEARCH = "tools: {web: {search: {%s}}}"
SERVER = "tools: {mcp_servers: {files: {%s}}}"


@pytest.mark.parametrize(
    ("plugin", "section"),
    [
        ("telegram", TELEGRAM % "groups: {'-100': {allow_from: [ada], policy: null}}"),
        ("telegram", TELEGRAM % "groups: {'-100': {allowFrom: [ada]}}"),
        ("web", SEARCH % "max_results: 3, timeout: '20', backends: {brave: {api_key: k}}"),
        ("web", SEARCH % "max-results: 3, timeoutS: 20, backends: {brave: {baseUrl: here}}"),
        ("mcp", SERVER % "command: echo, url: null, tool_timeout: 5, env: {SOME_NAME: a}"),
        ("mcp", SERVER % "url: 'https://a.b/c', toolTimeout: 5, oauth: {client_id: x}"),
    ],
)
def test_keys_inside_a_section_may_be_spelt_as_the_plugin_takes_them(
    bare: CommandLine, plugin: str, section: str
) -> None:
    pytest.importorskip(f"nanobot_{plugin}")
    bare.configure(section)

    assert ": valid" in bare("config", "check").stdout


@pytest.mark.parametrize(
    ("plugin", "section", "told"),
    [
        (
            "telegram",
            TELEGRAM % "groups: {'-100': {alow_from: [ada]}}",
            "groups.-100.alow_from: expected a known key; did you mean 'allow_from'?",
        ),
        (
            "telegram",
            TELEGRAM % "groups: {'-100': {allow_from: [{}]}}",
            "channels.telegram.groups.-100.allow_from[0]: expected a text",
        ),
        ("web", SEARCH % "max_results: 30", "search.max_results: expected at most 10, found 30"),
        (
            "mcp",
            SERVER % "command: echo, tool_timeout: soon",
            "tools.mcp_servers.files.tool_timeout: expected a number, found 'soon'",
        ),
        (
            "mcp",
            SERVER % "url: 'https://a.b/c', oauth: {redirect_port: 70000}",
            "files.oauth.redirect_port: expected at most 65535, found 70000",
        ),
        (
            "mcp",
            SERVER % "args: [a]",
            "either 'command' (a program to start) or 'url' (a remote server)",
        ),
    ],
)
def test_what_is_wrong_inside_a_section_is_told_as_it_is_spelt(
    bare: CommandLine, plugin: str, section: str, told: str
) -> None:
    pytest.importorskip(f"nanobot_{plugin}")
    file = bare.configure(section)

    assert f"{file}:1: " in (said := bare("config", "check", code=1).stderr)
    assert told in said


def test_an_undescribed_plugin_is_examined_in_a_child_and_checked_alike(
    packages: Packages,
) -> None:
    packages.add("beta", SETTINGS.format(id="beta"), described=False)
    packages.nanobot.configure("tools: {beta: {unitt: K}}\n")

    assert "did you mean 'unit'?" in packages.nanobot("config", "check", code=1).stderr


def test_the_schema_knows_the_sections_of_plugins(packages: Packages) -> None:
    schema = json.loads(packages.nanobot("config", "schema").stdout)
    Draft202012Validator.check_schema(schema)
    validator = Draft202012Validator(schema)

    good = {"agents": {"defaults": {"max_tokens": 5}}, "tools": {"alpha": {"limit_s": 3}}}
    wrong = {"tools": {"alpha": {"limit_s": "long"}}}
    assert list(validator.iter_errors(good)) == []
    assert [error.json_path for error in validator.iter_errors(wrong)] == ["$.tools.alpha.limit_s"]


def test_edit_opens_the_file_and_checks_it_afterwards(bare: CommandLine, tmp_path: Path) -> None:
    file = bare.configure("owner: [me]\n")
    editor = tmp_path / "editor"
    editor.write_text("#!/bin/sh\nprintf 'agents: {defaults: {max_tokens: x}}' > \"$1\"\n")
    editor.chmod(0o700)
    edited = replace(bare, changes={"EDITOR": str(editor)})

    done = edited("config", "edit", code=1)

    assert "max_tokens" in file.read_text()
    assert "expected an integer" in done.stderr


@pytest.mark.parametrize(
    ("editor", "told"), [("/no/such/editor", "cannot start the editor"), ("false", "status 1")]
)
def test_an_editor_that_fails_is_told(bare: CommandLine, editor: str, told: str) -> None:
    bare.configure("owner: [me]\n")
    edited = replace(bare, changes={"VISUAL": editor})

    assert told in edited("config", "edit", code=1).stderr


def test_without_a_file_there_is_nothing_to_edit_or_to_migrate(bare: CommandLine) -> None:
    assert "run nanobot onboard" in bare("config", "edit", code=1).stderr
    assert "is not a JSON file" in bare("config", "migrate", code=1).stderr
    named = str(bare.home / "absent.json")
    assert "run nanobot onboard" in bare("--config", named, "config", "migrate", code=1).stderr
    assert "there is no file" in bare("config", "check").stdout


def test_migrate_writes_yaml_beside_the_json(bare: CommandLine) -> None:
    old = bare.home / "config.json"
    old.write_text('{"agents": {"defaults": {"maxTokens": 7}}}')

    bare("config", "migrate")

    assert bare("config", "get", "agents.defaults.max_tokens").stdout == "7\n"
    assert yaml.safe_load((bare.home / "config.yaml").read_text())["agents"]
    assert old.exists()


def test_a_provider_with_the_cores_own_settings_is_checked(packages: Packages) -> None:
    packages.add(
        "beta",
        "@on.contribute_providers\ndef contribute_providers(ctx):\n"
        "    return [ProviderSpec(name='oracle', factory='a:b')]\n",
    )
    packages.nanobot.configure("providers: {oracle: {timeout_s: -1, api_key: k}}\n")

    done = packages.nanobot("config", "check", code=1)

    assert "providers.oracle.timeout_s: expected more than 0, found -1" in done.stderr


@pytest.mark.parametrize("tree", [FIRST, MIDDLE, LAST], ids=["first", "middle", "last"])
def test_a_file_of_the_original_is_valid_before_and_after_its_migration(
    bare: CommandLine, tree: JsonObject
) -> None:
    old = bare.home / "config.json"
    old.write_text(json.dumps(tree, indent=2))

    before = bare("config", "check")
    migrated = bare("config", "migrate")
    after = bare("config", "check")

    assert f"{old}: valid, with" in before.stdout
    assert "config.yaml" in after.stdout
    assert (len(migrated.stderr.splitlines()) > 1) is (tree is not FIRST)
