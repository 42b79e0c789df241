"""The contributions of the plugin, its settings, and the meaning of WhatsApp's error codes."""

from __future__ import annotations

import importlib
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from pydantic import ValidationError

from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import FakeGateway, FakePluginContext, Refusal
from nanobot_whatsapp import plugin
from nanobot_whatsapp.channel import build_channel
from nanobot_whatsapp.codes import FAILURES
from nanobot_whatsapp.graph import GraphFailed, failure_of
from nanobot_whatsapp.settings import WhatsAppSettings

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
LocalWhatsApp: TypeAlias = Any


def test_the_channel_and_its_settings_are_where_the_plugin_declares_them(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={"access_token": "x"})
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()
    (mount,) = plugin.contribute_routes(ctx)

    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is WhatsAppSettings
    module, _, name = mount.app.partition(":")
    assert callable(getattr(importlib.import_module(module), name)(ctx))
    assert (section.path, mount.access) == (f"channels.{spec.name}", "open")


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path))
    settings = WhatsAppSettings.model_validate({name: f"canary-{name}" for name in spec.secrets})

    assert "canary" not in repr(settings)


@pytest.mark.parametrize(
    ("section", "uses_bridge"),
    [
        ({}, True),
        ({"mode": "cloud"}, False),
        ({"access_token": "x"}, False),
        ({"access_token": "x", "mode": "bridge"}, True),
        (
            {
                "enabled": True,
                "bridgeUrl": "ws://localhost:3001",
                "bridgeToken": "",
                "allowFrom": [4915100000001],
                "groupPolicy": "open",
                "identityResolution": False,
            },
            True,
        ),
    ],
)
def test_the_mode_follows_from_the_settings(section: dict[str, Any], uses_bridge: bool) -> None:
    """The last is a section of the original."""
    assert WhatsAppSettings.model_validate(section).uses_bridge is uses_bridge


@pytest.mark.parametrize(
    "section", [{"api_base": "http://example.org"}, {"api_base": "x"}, {"api_version": "../x"}]
)
def test_addresses_that_would_reveal_the_token_are_refused(section: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        WhatsAppSettings.model_validate(section)


def test_libraries_are_imported_only_when_the_channel_connects() -> None:
    program = (
        "import sys\n"
        "from nanobot_whatsapp import plugin\n"
        "import nanobot_whatsapp.channel, nanobot_whatsapp.webhook\n"
        "print(sorted({'httpx', 'websockets', 'segno', 'markdown_it'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("missing", ["phone_number_id", "app_secret", "verify_token"])
async def test_a_missing_setting_is_named_with_its_place(
    api: LocalWhatsApp, tmp_path: Path, missing: str
) -> None:
    ctx = FakePluginContext(tmp_path, settings=api.section() | {missing: ""})
    with pytest.raises(CallFailed) as raised:
        await build_channel(ctx).login()

    assert raised.value.cause is Cause.CREDENTIALS
    assert raised.value.reason.startswith(f"channels.whatsapp.{missing} is missing: ")
    assert "developers.facebook.com" in raised.value.reason


@pytest.mark.parametrize(
    ("why", "sentence"),
    [
        ("token", "does not accept channels.whatsapp.access_token"),
        ("revoked", "does not accept channels.whatsapp.access_token"),
        ("permission", "lacks the permission whatsapp_business_messaging"),
    ],
)
async def test_refused_credentials_are_one_sentence(
    api: LocalWhatsApp, tmp_path: Path, why: Refusal, sentence: str
) -> None:
    api.refuse_credentials(why)
    channel = build_channel(FakePluginContext(tmp_path, settings=api.section()))
    with pytest.raises(CallFailed) as raised:
        await channel.login()
    await channel.stop()

    assert raised.value.cause is Cause.CREDENTIALS
    assert sentence in raised.value.reason
    assert "business.facebook.com > Settings > System users" in raised.value.reason
    assert api.section()["access_token"] not in raised.value.reason


async def test_a_wrong_number_id_is_one_sentence(api: LocalWhatsApp, tmp_path: Path) -> None:
    settings = api.section() | {"phone_number_id": "15550783881"}
    channel = build_channel(FakePluginContext(tmp_path, settings=settings))
    with pytest.raises(CallFailed, match=r"channels\.whatsapp\.phone_number_id") as raised:
        await channel.login()
    await channel.stop()

    assert raised.value.cause is Cause.CREDENTIALS


@pytest.mark.parametrize("in_gateway", [False, True])
async def test_a_login_names_the_account_and_the_next_steps(
    api: LocalWhatsApp, tmp_path: Path, in_gateway: bool
) -> None:
    gateway = FakeGateway() if in_gateway else None
    channel = build_channel(FakePluginContext(tmp_path, settings=api.section(), gateway=gateway))
    account = await channel.login()
    await channel.stop()

    assert account.startswith("+15550783881 (Nano)")
    assert ("Callback URL" in account) is not in_gateway


@pytest.mark.parametrize(("code", "row"), FAILURES.items(), ids=map(str, FAILURES))
def test_every_code_has_a_cause_and_a_sentence(code: int, row: tuple[Cause, str]) -> None:
    cause, sentence = row
    details: dict[str, Any] = {"code": code, "error_data": {"details": "in detail"}}
    found = failure_of(400, {"error": details})

    assert isinstance(found, GraphFailed)
    assert (found.cause, found.code) == (cause, code)
    assert found.reason.startswith(sentence)
    assert ("in detail" in found.reason) is (cause is not Cause.CREDENTIALS)


@pytest.mark.parametrize(
    ("status", "answer", "cause"),
    [
        (200, {}, None),
        (200, {"error": {"code": 131000}}, Cause.UNREACHABLE),
        (403, {"error": {"code": 299}}, Cause.CREDENTIALS),
        (400, {"error": {"code": 100, "error_subcode": 33}}, Cause.CREDENTIALS),
        (400, {"error": {"code": 999_999}}, Cause.REFUSED),
        (400, {"error": {"code": "x"}}, None),
        (401, {"error": "x"}, Cause.CREDENTIALS),
    ],
)
def test_other_answers_have_a_cause(
    status: int, answer: dict[str, Any], cause: Cause | None
) -> None:
    found = failure_of(status, answer)

    assert (found.cause if found else None) == cause


async def test_the_token_is_not_logged(
    opened: Opened, api: LocalWhatsApp, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(0)
    async with opened() as talk:
        await talk.send("hello")

    assert api.section()["access_token"] not in caplog.text
