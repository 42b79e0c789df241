"""What the plugin gives its host."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest
import standardwebhooks
from hypothesis import given, strategies as st
from pydantic import ValidationError

from nanobot_core import ChannelSettings
from nanobot_core.testing import FakePluginContext
from nanobot_webhook import plugin
from nanobot_webhook.channel import WebhookChannel
from nanobot_webhook.settings import WebhookSettings
from nanobot_webhook.signature import (
    SignatureRefused,
    SignedHead,
    read_head,
    sign,
    verify_body,
)


def test_importing_the_entry_module_loads_no_library() -> None:
    program = (
        "import sys, json; import nanobot_webhook.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_webhook', 'nanobot_http', 'pydantic', 'starlette', 'httpx')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout
    assert sorted(json.loads(output)) == ["nanobot_webhook", "nanobot_webhook.plugin"]


def test_channel_route_and_settings_are_found_under_their_names(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path)
    (section,) = plugin.contribute_settings()
    (channel,) = plugin.contribute_channels(ctx)
    (mount,) = plugin.contribute_routes(ctx)
    assert [trigger.name for trigger in plugin.contribute_triggers(ctx)] == ["webhook"]
    assert (channel.name, mount.path, mount.access) == ("webhook", "/webhook", "open")
    assert section.path == f"channels.{channel.name}"
    assert issubclass(_load(section.model), ChannelSettings)
    assert set(channel.secrets) <= set(WebhookSettings.model_fields)
    assert _load(section.model) is WebhookSettings
    assert _load(channel.factory) is WebhookChannel
    assert callable(_load(mount.app))
    assert plugin.describe_plugin().requires == ("http",)


def test_without_settings_no_one_may_write() -> None:
    assert WebhookSettings().allow_from == []
    assert WebhookSettings(secret="", callback_url="").secret is None  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "settings",
    [
        {"secret": "canary"},
        {"secret": "whsec_canary"},
        {"secret": "whsec_AAAA"},
        {"secret": "whsec_" + "A" * 120},
        {"secret": "whsec_" + "A" * 43 + "!"},
        {"callback_url": "canary"},
        {"callback_url": "ftp://canary/"},
        {"callback_url": "http:///canary"},
        {"callback_url": "https://user:canary@host/"},
        {"callback_url": "http://[canary"},
        {"tolerance_s": 0},
    ],
)
def test_settings_that_cannot_be_used_are_refused_without_being_quoted(
    settings: dict[str, object],
) -> None:
    with pytest.raises(ValidationError) as raised:
        WebhookSettings.model_validate(settings)
    assert "canary" not in str(raised.value)


@given(st.binary(min_size=24, max_size=64), st.text(), st.integers(min_value=0, max_value=2**31))
def test_signatures_are_those_of_the_specifications_library(
    key: bytes, body: str, timestamp: int
) -> None:
    moment = datetime.fromtimestamp(timestamp, UTC)
    theirs = standardwebhooks.Webhook(key).sign("msg_1", moment, body)
    assert sign(key, "msg_1", timestamp, body.encode()) == theirs


@given(
    st.binary(),
    st.from_regex(r"[A-Za-z0-9_-]{1,50}", fullmatch=True),
    st.integers(min_value=0, max_value=10**11),
    st.data(),
)
def test_only_what_was_signed_is_accepted(
    body: bytes, message_id: str, timestamp: int, data: st.DataObject
) -> None:
    key = data.draw(st.binary(min_size=24, max_size=64))
    signature = sign(key, message_id, timestamp, body)
    headers = {
        "webhook-id": message_id,
        "webhook-timestamp": str(timestamp),
        "webhook-signature": signature,
    }
    head = read_head(headers, now_s=float(timestamp), tolerance_s=1)
    verify_body(key, head, body)
    at = data.draw(st.integers(min_value=0, max_value=len(body)))
    with pytest.raises(SignatureRefused):
        verify_body(key, head, body[:at] + b"!" + body[at:])
    with pytest.raises(SignatureRefused):
        verify_body(key, SignedHead(message_id + "0", timestamp, head.signatures), body)
    with pytest.raises(SignatureRefused):
        verify_body(key + b"!", head, body)


@given(
    st.dictionaries(
        st.sampled_from(["webhook-id", "webhook-timestamp", "webhook-signature"]), st.text()
    )
)
def test_any_headers_are_read_or_refused(headers: dict[str, str]) -> None:
    try:
        head = read_head(headers, now_s=0, tolerance_s=1e12)
    except SignatureRefused:
        return
    with pytest.raises(SignatureRefused):
        verify_body(bytes(24), head, b"")


def _load(dotted: str) -> type:
    module, _, name = dotted.partition(":")
    found: type = getattr(importlib.import_module(module), name)
    return found
