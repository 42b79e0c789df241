"""Sections of plugins: validation with file, line and owner, and those that no plugin reads."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest
from pydantic import SecretStr

from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.config.models import PluginSettings, Settings
from nanobot_core.config.sections import unknown_sections
from nanobot_core.config.validation import validate_section
from nanobot_core.errors import ConfigInvalid, ConfigProblem
from nanobot_core.messages import JsonObject

IS_ORIGINAL = "it is one of the original; it has no effect until a plugin reads it"


class ExecSettings(PluginSettings):
    timeout_s: float = 60
    sandbox: Literal["auto", "none"] = "auto"
    api_key: SecretStr | None = None


class BackendA(PluginSettings):
    kind: Literal["a"]
    size: int


class BackendB(PluginSettings):
    kind: Literal["b"]
    colour: str


class RecallSettings(PluginSettings):
    backend_options: BackendA | BackendB | None = None
    limit: int | Literal["none"] = 3
    items: list[ExecSettings] | None = None
    by_name: dict[str, ExecSettings] | None = None


def load(folder: Path, text: str) -> LoadedConfig:
    path = folder / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return load_config(path, environ={}, home=folder)


def test_the_unit_of_a_key_may_be_left_out(tmp_path: Path) -> None:
    loaded = load(tmp_path, "tools: {exec: {timeout: 42}}")
    assert validate_section(loaded, "tools.exec", ExecSettings).timeout_s == 42


def test_a_section_is_found_in_any_spelling(tmp_path: Path) -> None:
    loaded = load(tmp_path, "tools: {mcpServers: {fileServer: {env: {API_KEY: k}}}}")
    assert loaded.settings.section("tools.mcp_servers.file_server.env") == {"API_KEY": "k"}


def test_a_section_is_validated_by_its_plugin_with_file_line_and_owner(tmp_path: Path) -> None:
    text = (
        "tools:\n  exec:\n    timeoutS: soon\n    sandbx: auto\n    apiKey: [1]\n    zebra: 1\n"
        "  web: 3\n"
    )
    loaded = load(tmp_path, text.replace("  web: 3\n", ""))
    with pytest.raises(ConfigInvalid) as caught:
        validate_section(loaded, "tools.exec", ExecSettings, owner="shell")
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert ":3: tools.exec.timeoutS: expected a number, found 'soon'" in lines[0]
    assert ":4: tools.exec.sandbx: expected a known key; did you mean 'sandbox'?" in lines[1]
    assert "tools.exec.apiKey" in lines[2]
    assert all("plugin 'shell'" in line for line in lines)


def test_unknown_keys_of_a_plugin_are_warnings_where_the_caller_takes_them(tmp_path: Path) -> None:
    loaded = load(tmp_path, "tools: {exec: {horse: 60, zebra: 1}}")
    told: list[ConfigProblem] = []
    settings = validate_section(loaded, "tools.exec", ExecSettings, on_warning=told.append)
    assert settings == ExecSettings()
    assert [warning.path for warning in told] == ["tools.exec.horse", "tools.exec.zebra"]


def test_a_section_that_is_no_mapping_is_an_error(tmp_path: Path) -> None:
    loaded = load(tmp_path, "custom: [1]")
    with pytest.raises(ConfigInvalid, match=r"custom: expected a mapping, found a list"):
        validate_section(loaded, "custom", ExecSettings)
    assert validate_section(loaded, "absent", ExecSettings) == ExecSettings()


def test_the_key_of_the_core_in_a_shared_section_is_not_the_plugins(tmp_path: Path) -> None:
    loaded = load(tmp_path, "memory: {backend: files, limit: 5}")
    assert loaded.settings.memory.backend == "files"
    assert validate_section(loaded, "memory", RecallSettings).limit == 5
    assert loaded.settings.section("memory") == {"backend": "files", "limit": 5}


@pytest.mark.parametrize(
    ("section", "expected"),
    [
        ("{limit: x}", ["memory.limit: expected an integer or 'none', found 'x'"]),
        (
            "{backendOptions: {kind: a, size: big}}",
            ["memory.backendOptions.size: expected an integer, found 'big'"],
        ),
        ("{backend_options: {kind: a}}", ["memory.backend_options.size: expected a value"]),
        ("{items: true}", ["memory.items: expected a list, found true"]),
        (f"{{limit: {'x ' * 40}}}", ["memory.limit: expected an integer or 'none'"]),
        ("{items: [{timeout_s: x}]}", ["memory.items[0].timeout_s: expected a number"]),
        ("{by_name: {a: {timeot_s: 1}}}", ["memory.by_name.a.timeot_s: expected a known key"]),
        ("{backend_options: 3}", ["memory.backend_options: expected a mapping"]),
    ],
)
def test_errors_in_unions_are_those_of_the_branch_that_was_meant(
    tmp_path: Path, section: str, expected: list[str]
) -> None:
    loaded = load(tmp_path, f"memory: {section}")
    with pytest.raises(ConfigInvalid) as caught:
        validate_section(loaded, "memory", RecallSettings)
    lines = str(caught.value).splitlines()
    assert len(lines) == len(expected)
    assert all(text in line for text, line in zip(expected, lines, strict=True)), lines


def test_sections_that_nobody_claims_are_found_with_the_nearest_known_one(tmp_path: Path) -> None:
    text = (
        "provider: {openai: {api_key: x}}\ncorn: {a: 1}\nnotes: {a: 1}\nidle: {a: ''}\n"
        "channels: {telegran: {enabled: true}, slack: {enabled: false, a: 1}, mail: {a: 1},"
        " mastodon: {a: 1}, discord: {a: 1}}\n"
        "tools: {webb: {search: {a: 1}}, exec: {a: 1}, mcp: {web: {a: 1}}}\n"
        "providers: {openai: {api_key: x}, groq: {api_key: ''}, xyz: {api_key: x}}\nscalar: 3\n"
    )
    known = ["cron", "channels.telegram", "channels.mail", "tools.exec", "tools.mcp.web"]
    found = unknown_sections(
        load(tmp_path, text),
        [*known, "tools.web", "providers.openai"],
        lambda: {"channels.mastodon": "nanobot-mastodon"},
    )
    assert [(each.level, each.path, each.remedy) for each in found] == [
        ("error", "provider", "did you mean 'providers'?"),
        ("error", "corn", "did you mean 'cron'?"),
        ("warning", "notes", "install the plugin that reads it, or remove it"),
        ("error", "channels.telegran", "did you mean 'channels.telegram'?"),
        ("warning", "channels.mastodon", "run nanobot plugins add nanobot-mastodon"),
        ("warning", "channels.discord", IS_ORIGINAL),
        ("error", "tools.webb", "did you mean 'tools.web'?"),
        ("warning", "providers.xyz", "install the plugin that reads it, or remove it"),
    ]


def test_the_core_fields_of_a_section_are_those_that_are_set() -> None:
    settings = Settings.model_validate({"tools": {"timeoutS": 5, "exec": {"a": 1}}})
    section: JsonObject | None = settings.section("tools")
    assert section == {"timeout_s": 5, "exec": {"a": 1}}
