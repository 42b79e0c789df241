from __future__ import annotations

from typing import Any

import pytest
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from nanobot_mcp.settings import CopiedServers, McpSettings, OwnServers, ServerSettings


@pytest.mark.parametrize(
    ("given", "transport"),
    [
        ({"command": "npx"}, "stdio"),
        ({"url": "http://localhost:1/mcp"}, "streamableHttp"),
        ({"url": "https://example.test/sse"}, "sse"),
        ({"url": "https://example.test/sse/?a=b"}, "sse"),
        ({"url": "https://example.test/?x=/sse"}, "streamableHttp"),
        ({"url": "https://example.test/mcp", "type": "sse"}, "sse"),
        ({"url": "https://example.test/sse", "type": "http"}, "streamableHttp"),
        ({"url": "https://example.test/", "type": "streamable-http"}, "streamableHttp"),
        ({"url": "https://example.test/", "type": "streamableHttp"}, "streamableHttp"),
    ],
)
def test_the_transport_is_guessed_unless_it_is_given(given: dict[str, Any], transport: str) -> None:
    assert ServerSettings.model_validate(given).transport == transport


@pytest.mark.parametrize(
    ("given", "finding"),
    [
        ({}, "either 'command'"),
        ({"command": "a", "url": "http://b"}, "either 'command'"),
        ({"url": "ftp://b"}, "begins with http"),
        ({"command": "a", "type": "sse"}, "'url' beside type 'sse'"),
        ({"url": "http://b", "type": "stdio"}, "'command' beside type 'stdio'"),
        ({"comand": "a"}, "did you mean 'command'"),
        ({"command": "a", "enabledTool": []}, "did you mean 'enabled_tools'"),
        ({"command": "a", "type": "carrier pigeon"}, "stdio"),
    ],
)
def test_what_is_not_a_server_is_refused_with_a_remedy(given: dict[str, Any], finding: str) -> None:
    with pytest.raises(ValidationError, match=finding):
        ServerSettings.model_validate(given)


def test_keys_of_other_clients_are_kept_and_known_as_unknown() -> None:
    server = ServerSettings.model_validate(
        {"command": "a", "autoApprove": ["x"], "gallery": True, "enabled": True, "toolTimeout": 5}
    )

    assert server.unknown_keys == ("autoApprove", "gallery")
    assert server.tool_timeout_s == 5
    assert server.is_enabled


@pytest.mark.parametrize("off", [{"disabled": True}, {"enabled": False}])
def test_a_server_can_be_switched_off(off: dict[str, Any]) -> None:
    assert not ServerSettings.model_validate({"command": "a", **off}).is_enabled


@pytest.mark.parametrize("model", [OwnServers, CopiedServers])
def test_names_lead_to_servers(model: type[OwnServers | CopiedServers]) -> None:
    found = model.model_validate({"My Server!": {"command": "a"}}).servers

    assert list(found) == ["My Server!"]
    assert found["My Server!"].command == "a"
    assert model().servers == {}


def test_secrets_are_not_shown() -> None:
    server = ServerSettings.model_validate(
        {"url": "https://example.test/", "headers": {"Authorization": "canary"}}
    )

    assert "canary" not in repr(server)


def test_defaults_fit_a_person() -> None:
    assert McpSettings().startup_grace_s == 0
    assert ServerSettings(command="a").tool_timeout_s == 30


def test_empty_keys_count_as_absent() -> None:
    """The original saves every key of a server, most of them empty."""
    saved = {"type": "", "command": "npx", "args": [], "env": {}, "url": "", "headers": {}}
    remote: dict[str, Any] = {
        "type": None,
        "command": "",
        "args": [],
        "cwd": "",
        "url": "http://b/mcp",
    }

    assert ServerSettings.model_validate(saved).transport == "stdio"
    assert ServerSettings.model_validate(remote).transport == "streamableHttp"
    check = Draft202012Validator(OwnServers.model_json_schema())
    assert check.is_valid({"a": saved, "b": remote})
    assert not check.is_valid({"a": {**saved, "command": ""}})
    assert not check.is_valid({"a": {**saved, "url": "http://b"}})


@pytest.mark.parametrize("bad", [{"url": ""}, {"command": "a", "args": 5}, "npx", None])
def test_a_bad_server_leaves_the_others_alone(bad: object) -> None:
    found = OwnServers.model_validate({"good": {"command": "a"}, "bad": bad}).servers

    assert found["good"].is_enabled
    assert not found["bad"].is_enabled
    assert found["bad"].problem
    assert OwnServers.model_validate(OwnServers.model_validate({"bad": bad}).model_dump()).servers
