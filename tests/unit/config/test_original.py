"""Configurations that released versions of the original nanobot write."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.config.models import ModelPreset, ProviderSettings
from nanobot_core.config.validation import validate_section
from nanobot_core.messages import JsonObject, JsonValue

FIRST: JsonObject = {
    "agents": {
        "defaults": {
            "workspace": "~/.nanobot/workspace",
            "model": "anthropic/claude-opus-4-5",
            "maxTokens": 8192,
            "temperature": 0.7,
            "maxToolIterations": 20,
        }
    },
    "channels": {
        "whatsapp": {"enabled": False, "bridgeUrl": "ws://localhost:3001", "allowFrom": []},
        "telegram": {"enabled": True, "token": "1:a", "allowFrom": ["7"]},
    },
    "providers": {
        **{name: {"apiKey": "", "apiBase": None} for name in ("anthropic", "openai", "vllm")},
        "openrouter": {"apiKey": "sk-or-v1-abc", "apiBase": None},
        "groq": {"apiKey": "gsk_abc", "apiBase": None},
    },
    "gateway": {"host": "0.0.0.0", "port": 18790},
    "tools": {
        "web": {"search": {"apiKey": "BSA-key", "maxResults": 5}},
        "exec": {"timeout": 60, "restrictToWorkspace": True},
    },
}
"""As v0.1.3.post4 writes it."""

MIDDLE: JsonObject = {
    "agents": {
        "defaults": {
            "workspace": "~/.nanobot/workspace",
            "model": "anthropic/claude-opus-4-5",
            "provider": "auto",
            "maxTokens": 8192,
            "contextWindowTokens": 65536,
            "temperature": 0.1,
            "maxToolIterations": 40,
            "memoryWindow": 50,
            "reasoningEffort": None,
            "timezone": "UTC",
        }
    },
    "channels": {
        "sendProgress": True,
        "sendToolHints": False,
        "sendMaxRetries": 3,
        "slack": {"enabled": True, "botToken": "xoxb-1", "dm": {"policy": "open"}},
    },
    "providers": {
        "custom": {"apiKey": "", "apiBase": None, "extraHeaders": None},
        "openai": {"apiKey": "sk-or-v1-abc", "apiBase": None, "extraHeaders": None},
        "azureOpenai": {"apiKey": "", "apiBase": None, "extraHeaders": None},
    },
    "gateway": {
        "host": "0.0.0.0",
        "port": 18790,
        "heartbeat": {"enabled": True, "intervalS": 1800, "keepRecentMessages": 8},
    },
    "tools": {
        "web": {
            "proxy": None,
            "search": {"provider": "tavily", "apiKey": "tvly", "baseUrl": "", "maxResults": 5},
        },
        "exec": {"enable": False, "timeout": 60, "pathAppend": ""},
        "restrictToWorkspace": False,
        "mcpServers": {
            "files": {
                "type": None,
                "command": "npx",
                "args": ["-y", "server"],
                "env": {},
                "url": "",
                "headers": {},
                "toolTimeout": 30,
                "enabledTools": ["*"],
            }
        },
    },
}
"""As v0.1.4.post6 writes it."""

LAST: JsonObject = {
    "agents": {
        "defaults": {
            "workspace": "~/.nanobot/workspace",
            "modelPreset": "fast",
            "model": "anthropic/claude-opus-4-5",
            "provider": "auto",
            "maxTokens": 8192,
            "contextWindowTokens": 200000,
            "contextBlockLimit": None,
            "temperature": 0.1,
            "fallbackModels": ["deep", {"model": "m-1", "provider": "groq"}],
            "maxToolIterations": 200,
            "maxConcurrentSubagents": 1,
            "failOnToolError": True,
            "maxToolResultChars": 9000,
            "providerRetryMode": "standard",
            "toolHintMaxLength": 40,
            "reasoningEffort": "max",
            "timezone": "Europe/Berlin",
            "timezoneMode": "manual",
            "botName": "nanobot",
            "botIcon": "x",
            "unifiedSession": False,
            "disabledSkills": ["tmux"],
            "idleCompactAfterMinutes": 15,
            "idleCompactCheckIntervalSeconds": 60,
            "consolidationRatio": 0.5,
            "dream": {"enabled": True, "intervalH": 2, "modelOverride": None},
        }
    },
    "channels": {
        "sendProgress": True,
        "sendToolHints": True,
        "showReasoning": True,
        "extractDocumentText": True,
        "sendMaxRetries": 3,
        "transcriptionProvider": "groq",
        "transcriptionLanguage": "de",
    },
    "transcription": {
        "enabled": True,
        "provider": "openai",
        "model": None,
        "language": None,
        "maxDurationSec": 120,
        "maxUploadMb": 20,
    },
    "providers": {
        "openai": {
            "apiKey": "sk-abc",
            "apiBase": "https://proxy/v1",
            "apiType": "auto",
            "extraHeaders": None,
            "extraBody": None,
            "extraQuery": None,
            "proxy": None,
            "thinkingStyle": None,
        },
        "bedrock": {"apiKey": None, "region": None, "profile": None},
        "xiaomiMimo": {"apiKey": None, "apiBase": None},
    },
    "api": {"host": "127.0.0.1", "port": 8900, "timeout": 120.0, "apiKey": ""},
    "gateway": {
        "host": "127.0.0.1",
        "port": 18790,
        "restartMode": "auto",
        "heartbeat": {"enabled": True, "intervalS": 1800, "keepRecentMessages": 8},
    },
    "tools": {
        "web": {
            "enable": True,
            "proxy": None,
            "userAgent": None,
            "search": {
                "provider": "duckduckgo",
                "apiKey": "",
                "baseUrl": "",
                "maxResults": 5,
                "timeout": 30,
            },
            "fetch": {"useJinaReader": True},
        },
        "exec": {
            "enable": True,
            "timeout": 0,
            "pathPrepend": "",
            "pathAppend": "",
            "sandbox": "",
            "allowedEnvKeys": [],
            "allowPatterns": [],
            "denyPatterns": [],
        },
        "file": {"enable": False},
        "cliApps": {"enable": True, "installTimeout": 300, "runTimeout": 60},
        "my": {"enable": True, "allowSet": False},
        "imageGeneration": {"enabled": False, "provider": "openrouter"},
        "maxSessionMessagesPerMinute": 6,
        "restrictToWorkspace": True,
        "webuiAllowLocalServiceAccess": True,
        "webuiAllowRemotePackageInstall": False,
        "mcpServers": {},
        "ssrfWhitelist": ["100.64.0.0/10"],
    },
    "modelPresets": {
        "fast": {"model": "openai/small", "provider": "openai", "maxTokens": 100},
        "deep": {"model": "large", "provider": "auto"},
    },
}
"""As v0.3.0 writes it."""


def load(folder: Path, tree: JsonObject, environ: Mapping[str, str] | None = None) -> LoadedConfig:
    path = folder / "config.json"
    path.write_text(json.dumps(tree))
    return load_config(path, environ=environ or {}, home=folder)


def test_the_first_format_keeps_confinement_search_and_voice(tmp_path: Path) -> None:
    loaded = load(tmp_path, FIRST)

    assert loaded.settings.tools.restrict_to_workspace
    assert loaded.value_at("tools.web.search.provider") == "brave"
    assert loaded.value_at("transcription.api_key") == "gsk_abc"
    assert loaded.settings.gateway.host == "127.0.0.1"
    assert [warning.path for warning in loaded.warnings] == ["gateway.host"]


def test_the_middle_format_keeps_its_switches_and_servers(tmp_path: Path) -> None:
    loaded = load(tmp_path, MIDDLE)

    assert loaded.settings.tools.deny == ["exec", "exec_session"]
    assert loaded.value_at("tools.mcp_servers.files.url") is None
    assert loaded.value_at("tools.web.search.provider") == "tavily"
    key = validate_section(loaded, "providers.openrouter", ProviderSettings).api_key
    assert key is not None
    assert key.get_secret_value() == "sk-or-v1-abc"
    assert validate_section(loaded, "providers.openai", ProviderSettings).api_key is None
    assert {warning.path for warning in loaded.warnings} == {
        "agents.defaults.memory_window",
        "channels.send_max_retries",
        "gateway.heartbeat.keep_recent_messages",
        "gateway.host",
        "providers.openai.api_key",
    }


def test_the_last_format_keeps_presets_and_transcription(tmp_path: Path) -> None:
    loaded = load(tmp_path, LAST)
    defaults = loaded.settings.agents.defaults

    assert (defaults.model, defaults.max_tokens) == ("fast", 8192)
    assert loaded.settings.preset("fast") == ModelPreset(
        model="openai/small", provider="openai", max_tokens=100
    )
    assert defaults.fallback_models == ["deep", "groq/m-1"]
    assert defaults.reasoning_effort == "high"
    assert set(loaded.settings.models) == {"fast", "deep"}
    assert loaded.value_at("transcription") == {
        "provider": "openai",
        "model": None,
        "language": "de",
        "max_bytes": 20_000_000,
        "api_key": "sk-abc",
        "api_base": "https://proxy/v1",
    }
    assert loaded.settings.tools.max_tool_result_chars == 9000
    assert "write_file" in loaded.settings.tools.deny
    assert "exec" not in loaded.settings.tools.deny
    assert loaded.value_at("tools.exec.timeout") == 600
    assert loaded.value_at("skills.disabled") == ["tmux"]


def test_each_value_without_a_counterpart_is_listed_with_the_reason(tmp_path: Path) -> None:
    loaded = load(tmp_path, LAST)

    listed = {warning.path: warning for warning in loaded.warnings}
    assert {
        "agents.defaults.bot_name",
        "agents.defaults.dream",
        "agents.defaults.unified_session",
        "channels.show_reasoning",
        "gateway.restart_mode",
        "tools.exec.timeout",
        "tools.my",
        "transcription.max_duration_sec",
    } <= set(listed)
    assert all(warning.line and warning.remedy for warning in listed.values())


@pytest.mark.parametrize(
    ("expression", "globs"),
    [
        ("rm -rf", ["*rm -rf*"]),
        (r"^git\s+push", ["git push*"]),
        (r"^ls$|cat .*\.env$", ["ls", "*cat *[.]env"]),
        (r"\bmkfs", ["mkfs*", "*[!a-z0-9_]mkfs*"]),
    ],
)
def test_regular_expressions_for_commands_become_globs(
    tmp_path: Path, expression: str, globs: JsonValue
) -> None:
    loaded = load(tmp_path, {"tools": {"exec": {"denyPatterns": [expression]}}})

    assert loaded.value_at("tools.exec.deny_patterns") == globs
    assert loaded.warnings == ()


@pytest.mark.parametrize("expression", [r"curl.*\|\s*sh", "(rm|dd) /", r"rm\s+-[rf]+", "", "x{2}"])
def test_an_expression_without_such_globs_is_listed_and_closes_the_shell(
    tmp_path: Path, expression: str
) -> None:
    loaded = load(tmp_path, {"tools": {"exec": {"allowPatterns": ["^ls", expression]}}})

    assert loaded.value_at("tools.exec.allow_patterns") == ["ls*"]
    assert loaded.settings.tools.deny == ["exec", "exec_session"]
    assert "write globs under allow_patterns" in str(loaded.warnings[0])


def test_globs_of_ours_stay(tmp_path: Path) -> None:
    loaded = load(tmp_path, {"tools": {"exec": {"deny_patterns": ["git push*"]}}})

    assert loaded.value_at("tools.exec.deny_patterns") == ["git push*"]


def test_a_preset_gives_way_to_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    path.write_text(json.dumps(LAST))
    loaded = load_config(
        path, environ={}, home=tmp_path, overrides={"agents.defaults.model": "mine"}
    )
    assert loaded.settings.agents.defaults.model == "mine"


@pytest.mark.parametrize("secret", ["file", "environment"])
def test_a_gateway_with_a_secret_listens_for_other_machines(tmp_path: Path, secret: str) -> None:
    gateway: JsonObject = {"host": "0.0.0.0", "secret": "long-enough" if secret == "file" else ""}
    environ = {"NANOBOT_GATEWAY__SECRET": "long-enough"} if secret == "environment" else {}

    assert load(tmp_path, {"gateway": gateway}, environ).settings.gateway.host == "0.0.0.0"


def test_a_switched_off_or_foreign_transcription_stays_off(tmp_path: Path) -> None:
    section: JsonObject = {"provider": "assemblyai", "enabled": True}
    loaded = load(tmp_path, {"transcription": section})

    assert loaded.settings.plugins.disabled == ["transcription"]
    assert loaded.warnings[0].path == "transcription.provider"


def test_a_key_does_not_follow_recordings_to_an_endpoint_of_the_owners_choice(
    tmp_path: Path,
) -> None:
    loaded = load(
        tmp_path,
        {
            "providers": {"groq": {"api_key": "gsk_abc", "api_base": "http://model.example/v1"}},
            "transcription": {"provider": "groq", "api_base": "http://ear.example/v1"},
        },
    )
    assert loaded.value_at("transcription.api_base") == "http://ear.example/v1"
    assert loaded.value_at("transcription.api_key") is None
