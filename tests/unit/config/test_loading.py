"""What a configuration says after all its layers, and how it says that something is wrong."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest
from hypothesis import given, strategies as st
from pydantic import SecretStr

from nanobot_core.config.loading import LoadedConfig, load_config, read_config
from nanobot_core.config.models import PluginSettings, ProviderSettings, Settings
from nanobot_core.config.validation import validate_section
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.messages import JsonValue

CANARY = "canary-9f8e7d6c5b4a3210"


def load(
    folder: Path,
    text: str = "",
    *,
    name: str = "config.yaml",
    environ: Mapping[str, str] | None = None,
    overrides: Mapping[str, JsonValue] | None = None,
    profile: str | None = None,
) -> LoadedConfig:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return load_config(
        path, environ=environ or {}, overrides=overrides, profile=profile, home=folder
    )


def problems(folder: Path, text: str, profile: str | None = None) -> tuple[ConfigProblem, ...]:
    with pytest.raises(ConfigInvalid) as caught:
        load(folder, text, profile=profile)
    assert CANARY not in str(caught.value)
    return caught.value.problems


def test_without_a_file_the_defaults_count(tmp_path: Path) -> None:
    loaded = load_config(None, environ={}, home=tmp_path)
    assert loaded.settings == Settings()
    assert loaded.path is None
    assert loaded.workspace == tmp_path / "workspace"
    assert loaded.settings.agents.defaults.context_window_tokens == 65_536
    assert loaded.problem("owner", "expected x").file == "configuration"


def test_what_counts_more_wins_whatever_the_spelling(tmp_path: Path) -> None:
    text = (
        "agents: {defaults: {maxTokens: 1, model: file, timezone: UTC}}\n"
        "gateway: {host: file}\n"
        "profiles:\n"
        "  work:\n"
        "    agents: {defaults: {max_tokens: 2, model: profile}}\n"
        "    gateway: {host: profile}\n"
    )
    loaded = load(
        tmp_path,
        text,
        environ={
            "NANOBOT_AGENTS__DEFAULTS__MAX_TOKENS": "3",
            "NANOBOT_AGENTS__DEFAULTS__MODEL": "e",
        },
        overrides={"agents.defaults.model": "command"},
        profile="work",
    )
    defaults = loaded.settings.agents.defaults
    assert (defaults.max_tokens, defaults.model) == (3, "command")
    assert loaded.settings.gateway.host == "profile"
    sources = {path: (origin.source, origin.line) for path, origin in loaded.origins.items()}
    assert sources["agents.defaults.maxTokens"] == (
        "environment variable NANOBOT_AGENTS__DEFAULTS__MAX_TOKENS",
        None,
    )
    assert sources["agents.defaults.model"] == ("command line", None)
    assert sources["gateway.host"] == (str(tmp_path / "config.yaml"), 6)
    assert sources["agents.defaults.timezone"] == (str(tmp_path / "config.yaml"), 1)
    assert loaded.settings.profiles["work"]["agents"]["defaults"]["max_tokens"] == 2


def test_a_layer_replaces_lists_and_their_origins(tmp_path: Path) -> None:
    loaded = load(tmp_path, "owner: [a, b]\n", environ={"NANOBOT_OWNER": "[c]"})
    assert loaded.settings.owner == ["c"]
    assert {path for path in loaded.origins if path.startswith("owner")} == {"owner", "owner[0]"}


def test_profiles_are_named_by_the_environment_and_must_exist(tmp_path: Path) -> None:
    text = "profiles:\n  laptop: {owner: [me], channels: {x: {key: '${UNSET}'}}}\n  desk:\n"
    assert load(tmp_path, text).settings.owner == []
    (problem,) = problems(tmp_path, text, profile="latop")
    assert problem.remedy == "did you mean 'laptop'?"
    assert problems(tmp_path, text, profile="desk")[0].path == "profiles"
    assert problems(tmp_path, "", profile="any")[0].path == "profiles"
    with pytest.raises(ConfigInvalid, match="UNSET"):
        load(tmp_path, text, environ={"NANOBOT_PROFILE": "laptop"})


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("true", True),
        ("12", 12),
        ("0123", "0123"),
        ("1.5", 1.5),
        ("", None),
        ("[a, 1]", ["a", 1]),
        ("{a: {b: 2}}", {"a": {"b": 2}}),
        ('"12"', "12"),
        ("{broken", "{broken"),
        ("{a: 1, a: 2}", "{a: 1, a: 2}"),
        ("a: b #c", "a: b #c"),
        ("@*&!", "@*&!"),
    ],
)
def test_variables_hold_scalars_lists_mappings_or_plain_text(
    tmp_path: Path, text: str, value: JsonValue
) -> None:
    loaded = load(tmp_path, environ={"NANOBOT_CUSTOM__SOME_KEY": text, "NANOBOT_HOME": "/x"})
    assert loaded.tree == {"custom": {"some_key": value}}


def test_placeholders_take_variables_defaults_and_files(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n")
    text = (
        "channels:\n  x:\n    a: 'Bearer ${A}'\n    b: ${B:-x:-y}\n    c: ${file:token}\n"
        "    d: $${A} $A\n    e: ['${A}']\ngateway: {port: '${PORT}'}\n"
    )
    loaded = load(tmp_path, text, environ={"A": "1", "PORT": "99", "NANOBOT_X__Y": "${A}"})
    assert loaded.settings.section("channels.x") == {
        "a": "Bearer 1",
        "b": "x:-y",
        "c": "from-file",
        "d": "${A} $A",
        "e": ["1"],
    }
    assert loaded.settings.gateway.port == 99
    assert loaded.settings.section("x") == {"y": "${A}"}
    assert "from-file" in loaded.secrets


def test_a_variable_that_is_set_and_empty_is_set(tmp_path: Path) -> None:
    text = "x: {a: '${A}', b: '-${A}-', c: '${A:-other}', api_key: '${A:-}'}\n"
    loaded = load(tmp_path, text, environ={"A": ""})
    assert loaded.settings.section("x") == {"a": "", "b": "--", "c": "other", "api_key": ""}


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("${A}", "the environment variable A is set but empty"),
        ("Bearer ${A}", "the environment variable A is set but empty"),
        ("${file:key}", "the file of ${file:key} is empty"),
    ],
)
def test_an_empty_secret_is_refused_with_what_is_empty(
    tmp_path: Path, value: str, what: str
) -> None:
    (tmp_path / "key").write_text("\n")
    with pytest.raises(ConfigInvalid, match="expected a secret, and ") as caught:
        load(tmp_path, f"x:\n  api_key: {value}\n", environ={"A": ""})
    (problem,) = caught.value.problems
    assert (problem.path, problem.line) == ("x.api_key", 2)
    assert problem.expected == f"expected a secret, and {what}"


def test_placeholders_without_a_value_are_told_once_each(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff")
    (tmp_path / "large").write_bytes(b"x" * 70_000)
    text = (
        "gateway:\n  port: ${PORT}\n  bus: ${file:absent}\nx:\n  a: ${file:binary}\n"
        "  b: ${file:large}\n  c: ${not a name}\n"
    )
    found = problems(tmp_path, text)
    assert [(problem.path, problem.line) for problem in found] == [
        ("gateway.port", 2),
        ("gateway.bus", 3),
        ("x.a", 5),
        ("x.b", 6),
        ("x.c", 7),
    ]
    assert "PORT" in found[0].expected
    loaded = load(tmp_path, "gateway: {port: '${PORT}'}", overrides={"gateway.port": 5})
    assert loaded.settings.gateway.port == 5


def test_all_errors_are_told_at_once_in_order_of_their_lines(tmp_path: Path) -> None:
    text = (
        "gateway:\n  prot: 1\n  port: many\n"
        "tools:\n  approval:\n    - {tool: x, action: perhaps}\n    - {action: ask}\n"
        "    - {tool: x, action: ask, argument: '('}\n"
        "agents:\n  defaults:\n    max_tokns: 3\n    timezone: Moon/Base\n"
        "    maxTokens: 1\n    max_tokens: 2\n"
        "channels: 3\n"
    )
    found = problems(tmp_path, text)
    assert [(problem.line, problem.path) for problem in found] == [
        (2, "gateway.prot"),
        (3, "gateway.port"),
        (6, "tools.approval[0].action"),
        (7, "tools.approval[1].tool"),
        (8, "tools.approval[2].argument"),
        (11, "agents.defaults.max_tokns"),
        (12, "agents.defaults.timezone"),
        (14, "agents.defaults.max_tokens"),
        (15, "channels"),
    ]
    assert str(found[0]).endswith(
        "config.yaml:2: gateway.prot: expected a known key; did you mean 'port'?"
    )
    assert str(found[1]).endswith("gateway.port: expected an integer, found 'many'")
    assert found[2].expected == "expected 'allow', 'ask' or 'deny'"
    assert found[3].expected == "expected a value"
    assert "name of the argument" in found[4].expected
    assert "IANA" in found[6].expected


def test_unknown_keys_warn_unless_they_resemble_a_known_one(tmp_path: Path) -> None:
    text = "gateway: {zebra: 1}\nplugins: {zebra: {}}\nzebra: 3\ncron:\n"
    loaded = load(tmp_path, text)
    assert [(warning.line, warning.path) for warning in loaded.warnings] == [
        (1, "gateway.zebra"),
        (2, "plugins.zebra"),
        (3, "zebra"),
    ]
    assert loaded.settings.section("cron") == {}
    assert loaded.settings.section("zebra") is None
    assert loaded.settings.section("gateway.zebra.x") is None


def test_keys_left_empty_mean_the_default(tmp_path: Path) -> None:
    text = "owner:\ntools:\n  allow:\nproviders:\n  openai:\nagents:\n  defaults:\n    model:\n"
    loaded = load(tmp_path, text)
    assert loaded.settings.tools.allow == ["*"]
    assert loaded.settings.providers == {"openai": {}}
    assert validate_section(loaded, "providers.openai", ProviderSettings) == ProviderSettings()


@pytest.mark.parametrize(
    "text",
    [
        f"providers: {{x: {{apiKey: {CANARY}}}}}\ngateway: {{port: {CANARY}}}",
        f"gateway: {{port: 'http://user:{CANARY}@host'}}",
        f"providers: {{x: {{api_key: {CANARY}}}}}\nagents: {{defaults: {{timezone: {CANARY}}}}}",
        f"budgets: {{turn: {{tokens: '{CANARY}'}}}}\nx: {{password: {CANARY}}}",
        f"logging: {{level: {CANARY}}}",
        "gateway: {port: '${MY_TOKEN}'}",
        "gateway: {port: '${file:secret}'}",
    ],
)
def test_errors_never_show_a_secret(tmp_path: Path, text: str) -> None:
    (tmp_path / "secret").write_text(CANARY)
    with pytest.raises(ConfigInvalid) as caught:
        load(tmp_path, text, environ={"MY_TOKEN": CANARY})
    assert CANARY not in str(caught.value)
    assert CANARY not in repr(caught.value.problems)


@pytest.mark.parametrize(
    "text", [f"key: *{CANARY}", f"key: !{CANARY} x", f"key: [{CANARY}", f"? [{CANARY}]\n: 1"]
)
def test_errors_of_the_parser_never_show_a_secret(tmp_path: Path, text: str) -> None:
    with pytest.raises(ConfigUnreadable) as caught:
        load(tmp_path, text)
    assert CANARY not in str(caught.value)


def test_secrets_are_known_and_masked(tmp_path: Path) -> None:
    text = (
        "channels:\n  x: {botToken: tok-1234, max_tokens: 5, enabled_key: true, password: 123456}\n"
        "tools:\n  mcp_servers:\n    y:\n      headers: {Authorization: Bearer abcd1234}\n"
        "      env: {GITHUB_TOKEN: gh-1234, LANG: de}\n      api_keys: [one-1234, '']\n"
        "      proxy: http://me:pass-1234@host\n      note: see tok-1234\n      token_url: https://a\n"
    )
    loaded = load(tmp_path, text, environ={"OPENAI_API_KEY": "env-1234", "SSH_KEY_PATH": "/a/b"})
    assert {"tok-1234", "123456", "abcd1234", "gh-1234", "one-1234", "pass-1234", "env-1234"} <= (
        loaded.secrets
    )
    assert not {"5", "de", "/a/b", "https://a"} & loaded.secrets
    shown = json.dumps(loaded.masked())
    assert not [secret for secret in loaded.secrets if secret in repr(loaded)]
    assert not [secret for secret in loaded.secrets if secret in shown]
    assert '"max_tokens": 5' in shown
    assert "http://me:********@host" in shown
    assert 'enabled_key": true' in shown


def test_a_file_that_is_named_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigUnreadable, match="No such file"):
        load_config(tmp_path / "absent.yaml", environ={}, home=tmp_path)
    with pytest.raises(ConfigUnreadable, match="absent"):
        load_config(None, environ={"NANOBOT_CONFIG": str(tmp_path / "absent")}, home=tmp_path)


def test_the_workspace_is_where_the_owner_says(tmp_path: Path) -> None:
    text = "agents: {defaults: {workspace: here}}"
    assert load(tmp_path, text).workspace == tmp_path / "here"
    assert load(tmp_path, text.replace("here", "/abs")).workspace == Path("/abs")
    # As in a shell, the name of an unknown user stays as it is written.
    unknown = load(tmp_path, text.replace("here", "~nobody-here/x")).workspace
    assert unknown == tmp_path / "~nobody-here/x"


def test_a_secret_file_of_an_unknown_user_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match="expected a readable text file"):
        load(tmp_path, "providers: {openai: {api_key: '${file:~nobody-here/key}'}}")


def test_any_spelling_of_the_keys_gives_the_same_settings(tmp_path: Path) -> None:
    @given(
        st.integers(1, 10**9),
        st.floats(0, 5),
        st.lists(st.text(max_size=9), max_size=3),
        st.booleans(),
    )
    def loads(tokens: int, temperature: float, allow: list[str], is_restricted: bool) -> None:
        settings = Settings.model_validate(
            {
                "agents": {"defaults": {"max_tokens": tokens, "temperature": temperature}},
                "tools": {"allow": allow, "restrict_to_workspace": is_restricted},
            }
        )
        for by_alias in (True, False):
            tree = settings.model_dump(by_alias=by_alias, exclude_unset=True)
            loaded = load(tmp_path, json.dumps(tree), name="config.json")
            assert loaded.settings == settings
            assert loaded.warnings == ()

    loads()


MISSING = """\
gateway: {secret: '${HOOK_SECRET}', port: 99}
owner: ['${OWNER}', ada]
channels: {hook: {secret: '${HOOK_SECRET}'}, mail: {user: ada}}
"""


def test_a_lenient_load_leaves_out_values_without_a_variable(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(MISSING)
    loaded = load_config(tmp_path / "config.yaml", environ={}, home=tmp_path, lenient=True)

    assert loaded.settings.gateway.secret is None
    assert (loaded.settings.gateway.port, loaded.settings.owner) == (99, ["ada"])
    assert loaded.tree["channels"] == {"hook": {}, "mail": {"user": "ada"}}
    assert {(found.level, found.path) for found in loaded.findings} == {
        ("missing", "gateway.secret"),
        ("missing", "owner[0]"),
        ("missing", "channels.hook.secret"),
    }


def test_a_plugin_whose_secret_is_missing_cannot_use_its_section(tmp_path: Path) -> None:
    class HookSettings(PluginSettings):
        secret: SecretStr | None = None
        user: str = ""

    (tmp_path / "config.yaml").write_text(MISSING)
    loaded = load_config(tmp_path / "config.yaml", environ={}, home=tmp_path, lenient=True)

    assert validate_section(loaded, "channels.mail", HookSettings).user == "ada"
    with pytest.raises(ConfigInvalid, match="expected the environment variable HOOK_SECRET"):
        validate_section(loaded, "channels.hook", HookSettings)


def test_a_reading_keeps_what_is_valid_and_reports_the_rest(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(
        "gateway: {port: many, grace_s: 7}\nowner: ['${OWNER}']\nplugins: {polcy: all}\n"
        "budgets: {day: {usd: 3}}\n"
    )
    loaded = read_config(tmp_path / "config.yaml", environ={}, home=tmp_path)

    assert (loaded.settings.gateway.grace_s, loaded.settings.gateway.port) == (7, 18_790)
    assert loaded.settings.budgets.day.usd == 3
    assert [(found.level, found.line, found.path) for found in loaded.findings] == [
        ("error", 1, "gateway.port"),
        ("missing", 2, "owner[0]"),
        ("error", 3, "plugins.polcy"),
    ]


def test_a_reading_of_a_file_that_is_not_yaml_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("owner: [ada]\na: b: c\n")
    loaded = read_config(tmp_path / "config.yaml", environ={"NANOBOT_PROFILE": "x"}, home=tmp_path)

    assert loaded.settings == Settings()
    (found,) = loaded.findings
    assert (found.line, found.level) == (2, "error")
    assert str(found).endswith(
        "config.yaml:2: a ':' is not allowed here; put the value in quotes or check the indentation"
    )
