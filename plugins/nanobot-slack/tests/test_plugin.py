"""The contributions of the plugin."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

from nanobot_core.chat import ChatChannel
from nanobot_core.testing import FakePluginContext
from nanobot_slack import plugin
from nanobot_slack.settings import SlackSettings


def test_the_channel_and_its_settings_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={"bot_token": "xoxb-1"}, plugin_id="slack")
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()
    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is SlackSettings
    assert section.path == f"channels.{spec.name}"


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path, plugin_id="slack"))
    secrets = {"bot_token": "canary-1", "app_token": "canary-2", "proxy": "http://u:canary-3@h:1"}
    assert spec.secrets == tuple(secrets)
    assert "canary" not in repr(SlackSettings.model_validate(secrets))


def test_the_sdk_is_imported_when_the_channel_connects() -> None:
    code = (
        "import sys, nanobot_slack.plugin, nanobot_slack.channel\n"
        "sys.exit(bool({'slack_sdk', 'aiohttp', 'markdown_it'} & set(sys.modules)))"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
