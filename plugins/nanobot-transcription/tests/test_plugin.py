"""The plugin's contributions, its settings, and its check."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from nanobot_core import JsonObject, TranscriptionProvider
from nanobot_core.testing import FakePluginContext
from nanobot_transcription import plugin
from nanobot_transcription.checks import check_endpoint
from nanobot_transcription.endpoint import resolve_endpoint, transcription_url
from nanobot_transcription.settings import TranscriptionSettings


def _named(dotted: str) -> object:
    module, _, name = dotted.partition(":")
    found: object = getattr(importlib.import_module(module), name)
    return found


def test_one_transcriber_is_contributed_and_can_be_made_without_a_key(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path)
    (spec,) = plugin.contribute_transcribers(ctx)
    build = _named(spec.factory)
    assert callable(build)
    assert isinstance(build(ctx), TranscriptionProvider)


def test_settings_and_check_are_found() -> None:
    (section,) = plugin.contribute_settings()
    (check,) = plugin.contribute_checks()
    assert section.path == "transcription"
    assert _named(section.model) is TranscriptionSettings
    assert section.environment == ("GROQ_API_KEY", "OPENAI_API_KEY", "TRANSCRIPTION_API_KEY")
    assert _named(check.run) is check_endpoint
    assert plugin.describe_plugin().hosts == ("api.groq.com", "api.openai.com")


@pytest.mark.parametrize(
    "section",
    [
        {"provider": "other"},
        {"provider": "custom"},
        {"apiBase": "host/v1"},
        {"apiBase": "ftp://host"},
        {"apiBase": "http://host:99999"},
        {"language": "German"},
        {"proxy": "host:3128"},
        {"proxy": "ftp://host"},
        {"timeoutS": 0},
        {"maxBytes": 0},
        {"unknown": 1},
    ],
)
def test_settings_that_do_not_fit_are_refused_and_repeat_no_value(section: JsonObject) -> None:
    with pytest.raises(ValidationError) as raised:
        TranscriptionSettings.model_validate({**section, "apiKey": "sk-canary"})
    assert "sk-canary" not in str(raised.value)


def test_empty_settings_count_as_absent() -> None:
    names = ("apiKey", "apiBase", "model", "language", "proxy")
    settings = TranscriptionSettings.model_validate(dict.fromkeys(names, ""))
    assert settings == TranscriptionSettings()


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("https://api.groq.com/openai/v1", "https://api.groq.com/openai/v1/audio/transcriptions"),
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000/v1/audio/transcriptions"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000/v1/audio/transcriptions"),
        ("http://h/audio/transcriptions", "http://h/audio/transcriptions"),
        ("http://h/api/v3?k=1#x", "http://h/api/v3/audio/transcriptions?k=1"),
    ],
)
def test_the_address_is_found_below_the_base(base: str, url: str) -> None:
    assert transcription_url(base) == url


def test_each_service_has_its_address_model_and_variable(tmp_path: Path) -> None:
    environment = {"GROQ_API_KEY": "gsk \n", "OPENAI_API_KEY": "sk", "TRANSCRIPTION_API_KEY": "t"}
    ctx = FakePluginContext(tmp_path, environment=environment)
    found = {}
    for name in ("groq", "openai", "custom"):
        section = {"provider": name, "apiBase": "http://h" if name == "custom" else ""}
        endpoint = resolve_endpoint(ctx, TranscriptionSettings.model_validate(section))
        found[name] = (endpoint.host, endpoint.key, endpoint.fields["model"])
    assert found == {
        "groq": ("api.groq.com", "gsk", "whisper-large-v3"),
        "openai": ("api.openai.com", "sk", "gpt-4o-mini-transcribe"),
        "custom": ("h", "t", "whisper-1"),
    }


def test_a_key_in_the_settings_counts_before_the_environment(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, environment={"GROQ_API_KEY": "theirs"})
    settings = TranscriptionSettings.model_validate({"apiKey": "mine"})
    endpoint = resolve_endpoint(ctx, settings)
    assert endpoint.key == "mine"
    assert "mine" not in f"{endpoint!r}{settings!r}"


@pytest.mark.parametrize(
    ("section", "environment", "status", "words"),
    [
        ({}, {"GROQ_API_KEY": "k"}, "ok", "'groq' at api.groq.com, model whisper-large-v3"),
        ({}, {}, "warning", "'groq' has no usable key"),
        ({"apiKey": "schlüssel"}, {}, "warning", "'groq' has no usable key"),
        ({"provider": "openai"}, {"GROQ_API_KEY": "k"}, "warning", "'openai' has no usable key"),
        ({"provider": "custom", "apiBase": "http://h:1/v1"}, {}, "ok", "'custom' at h, model"),
    ],
)
async def test_doctor_is_reported_where_recordings_go(
    tmp_path: Path, section: JsonObject, environment: dict[str, str], status: str, words: str
) -> None:
    ctx = FakePluginContext(tmp_path, settings=section, environment=environment)
    result = await check_endpoint(ctx)
    assert result.status == status
    assert words in result.message
    assert bool(result.remedy) is (status == "warning")
    assert "schlüssel" not in f"{result.message}{result.remedy}"


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys, json; from nanobot_transcription import plugin; "
        "list(plugin.contribute_transcribers(None)); "
        "import nanobot_transcription.endpoint; "
        "print(json.dumps(sorted({'httpx', 'httpcore', 'anyio', 'ssl', 'pydantic'} "
        "& set(sys.modules))))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout
    assert json.loads(output) == []
