"""Where requests go and what goes with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nanobot_core import ConfigError, ProviderSettings
from nanobot_core.providers import Endpoint, key_hint, resolve_endpoint
from nanobot_core.testing import FakePluginContext
from nanobot_openai.vendors import VENDORS

SPECS = {spec.name: spec for spec in VENDORS}


def _resolve(
    folder: Path, vendor: str = "openai", environment: dict[str, str] | None = None, **section: Any
) -> Endpoint:
    ctx = FakePluginContext(folder, environment=environment or {})
    return resolve_endpoint(ctx, SPECS[vendor], ProviderSettings.model_validate(section))


@pytest.mark.parametrize(
    ("base", "url"),
    [
        ("http://h:8000", "http://h:8000/v1/chat/completions"),
        ("http://h:8000/", "http://h:8000/v1/chat/completions"),
        ("https://h/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/", "https://h/v1/chat/completions"),
        (" https://h/api/paas/v4 ", "https://h/api/paas/v4/chat/completions"),
        ("https://h/v1beta/openai", "https://h/v1beta/openai/chat/completions"),
        ("https://h/proxy", "https://h/proxy/v1/chat/completions"),
        ("https://h/inference/chat/completions", "https://h/inference/chat/completions"),
        ("https://h/v1/v1", "https://h/v1/chat/completions"),
        ("https://h/v1/v1/chat/completions", "https://h/v1/chat/completions"),
        ("https://h/v1?api-version=2", "https://h/v1/chat/completions?api-version=2"),
        ("https://h/v1/chat/completions/?v=2", "https://h/v1/chat/completions?v=2"),
        ("https://h/a/gpt/chat/completions?v=2", "https://h/a/gpt/chat/completions?v=2"),
        ("https://h/v1#fragment", "https://h/v1/chat/completions"),
    ],
)
def test_a_base_with_or_without_its_version_leads_to_the_same_place(
    tmp_path: Path, base: str, url: str
) -> None:
    assert _resolve(tmp_path, "custom", api_base=base).url("/chat/completions") == url


def test_a_query_of_the_base_and_one_of_the_path_are_joined(tmp_path: Path) -> None:
    endpoint = _resolve(tmp_path, "custom", api_base="https://h/v1?v=2")
    assert endpoint.url("/models?limit=9") == "https://h/v1/models?v=2&limit=9"


@pytest.mark.parametrize(
    ("base", "is_refused"),
    [
        ("http://api.example.com/v1", True),
        ("http://8.8.8.8/v1", True),
        ("http://134744072/v1", True),
        ("http://[2606:4700::1111]/v1", True),
        ("https://api.example.com/v1", False),
        ("http://ollama:11434", False),
        ("http://10.1.2.3:8000", False),
        ("http://[::1]:8000", False),
        ("http://box.local:8000", False),
        ("http://gpu.home.arpa", False),
    ],
)
def test_a_key_does_not_travel_unencrypted_to_a_public_host(
    tmp_path: Path, base: str, is_refused: bool
) -> None:
    open_base: dict[str, Any] = {"api_key": "sk-canary", "api_base": base}
    if is_refused:
        with pytest.raises(ConfigError, match="unencrypted") as raised:
            _resolve(tmp_path, "custom", **open_base)
        assert "canary" not in str(raised.value)
    else:
        assert _resolve(tmp_path, "custom", **open_base).base.startswith(base)
    assert _resolve(tmp_path, "custom", allow_http=True, **open_base).base.startswith(base)
    assert _resolve(tmp_path, "custom", api_base=base).base.startswith(base)


def test_the_key_of_the_settings_goes_before_the_environment(tmp_path: Path) -> None:
    environment = {"OPENAI_API_KEY": "from-environment"}
    assert (
        _resolve(tmp_path, environment=environment, api_key="from-settings").headers[
            "authorization"
        ]
        == "Bearer from-settings"
    )
    assert (
        _resolve(tmp_path, environment=environment).headers["authorization"]
        == "Bearer from-environment"
    )


def test_a_pasted_key_loses_its_line_end(tmp_path: Path) -> None:
    endpoint = _resolve(tmp_path, api_key=" sk-1\n")
    assert endpoint.headers["authorization"] == "Bearer sk-1"
    assert endpoint.secrets == ("sk-1",)


def test_a_missing_key_is_reported_with_all_ways_to_set_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"providers\.openai\.api_key or OPENAI_API_KEY"):
        _resolve(tmp_path)
    assert key_hint(SPECS["openai"]) == "set providers.openai.api_key or OPENAI_API_KEY"


def test_a_local_server_needs_no_key(tmp_path: Path) -> None:
    assert "authorization" not in _resolve(tmp_path, "ollama").headers


@pytest.mark.parametrize(
    "base", [None, "h:8000", "ftp://h", "http://", "http://[", "http://h:port"]
)
def test_a_base_that_is_not_a_address_is_refused(tmp_path: Path, base: str | None) -> None:
    with pytest.raises(ConfigError, match=r"providers\.custom\.api_base"):
        _resolve(tmp_path, "custom", api_base=base)


@pytest.mark.parametrize(
    ("section", "setting"),
    [
        ({"api_key": "sk-\u2019canary"}, "api_key"),
        ({"api_key": "sk", "extra_headers": {"X-Team": "canary\nsmuggled: 1"}}, "extra_headers"),
        ({"api_key": "sk", "extra_headers": {"X-Tëam": "canary"}}, "extra_headers"),
    ],
)
def test_what_a_header_cannot_carry_is_refused_unquoted(
    tmp_path: Path, section: dict[str, Any], setting: str
) -> None:
    with pytest.raises(ConfigError, match=setting) as raised:
        _resolve(tmp_path, **section)
    assert "canary" not in str(raised.value)


def test_extra_headers_may_replace_the_authorization(tmp_path: Path) -> None:
    endpoint = _resolve(tmp_path, api_key="sk", extra_headers={"Authorization": "Basic x"})
    assert endpoint.headers == {"authorization": "Basic x"}


def test_nothing_secret_stands_in_the_repr(tmp_path: Path) -> None:
    endpoint = _resolve(
        tmp_path,
        api_key="sk-canary",
        api_base="https://u:pw-canary@h/v1?token=canary",
        proxy="http://u:px-canary@p",
        extra_headers={"x-key": "hd-canary"},
    )
    assert "canary" not in repr(endpoint)
    assert set(endpoint.secrets) == {
        "sk-canary", "pw-canary", "token=canary", "px-canary", "hd-canary"
    }  # fmt: skip


@pytest.mark.parametrize(
    ("environment", "base", "proxy"),
    [
        ({}, "https://h/v1", None),
        ({"HTTPS_PROXY": "http://p:1"}, "https://h/v1", "http://p:1"),
        ({"https_proxy": "p:1"}, "https://h/v1", "http://p:1"),
        ({"HTTPS_PROXY": "http://p:1"}, "http://h/v1", None),
        ({"HTTP_PROXY": "http://p:1"}, "http://h/v1", "http://p:1"),
        ({"ALL_PROXY": "socks5://p:1"}, "https://h/v1", "socks5://p:1"),
        ({"ALL_PROXY": "http://p:1"}, "http://127.0.0.1:9/v1", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "x, .inner.net"}, "https://a.inner.net", None),
        ({"ALL_PROXY": "http://p:1", "no_proxy": "INNER.net"}, "https://inner.net", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": "*"}, "https://h", None),
        ({"ALL_PROXY": "http://p:1", "NO_PROXY": ",ner.net"}, "https://inner.net", "http://p:1"),
    ],
)
def test_the_usual_variables_name_the_proxy(
    tmp_path: Path, environment: dict[str, str], base: str, proxy: str | None
) -> None:
    assert _resolve(tmp_path, "custom", environment, api_base=base).proxy == proxy


def test_the_proxy_of_the_settings_goes_before_the_environment(tmp_path: Path) -> None:
    environment = {"ALL_PROXY": "http://other:1"}
    endpoint = _resolve(tmp_path, "custom", environment, api_base="http://h", proxy="http://p:1")
    assert endpoint.proxy == "http://p:1"
