"""The contributions of the plugin."""

from __future__ import annotations

import importlib
from pathlib import Path

from nanobot_core.chat import ChatChannel
from nanobot_core.testing import FakePluginContext
from nanobot_feishu import plugin
from nanobot_feishu.settings import FeishuSettings


def test_the_channel_and_its_settings_are_found(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path)
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()

    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is FeishuSettings
    assert section.path == f"channels.{spec.name}"


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path))

    assert spec.secrets == ("app_secret",)
    assert "canary" not in repr(FeishuSettings.model_validate({"app_secret": "canary"}))


def test_no_one_may_write_unless_the_owner_says_so() -> None:
    assert FeishuSettings().allow_from == []
