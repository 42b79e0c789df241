"""What the plugin gives its host."""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from pathlib import Path

import pytest
from pydantic import ValidationError

from nanobot_core import JsonObject, LazyTool
from nanobot_core.testing import FakePluginContext
from nanobot_message import plugin
from nanobot_message.settings import MessageSettings


def test_the_tool_is_found_under_its_name(tmp_path: Path) -> None:
    (lazy,) = plugin.contribute_tools(FakePluginContext(tmp_path))
    assert isinstance(lazy, LazyTool)
    module, _, name = lazy.factory.partition(":")

    tool = getattr(importlib.import_module(module), name)(FakePluginContext(tmp_path))
    assert tool.name == lazy.name == "message"
    assert tool.idempotent
    assert not tool.read_only


def test_settings_are_found_and_allow_no_other_chat() -> None:
    (section,) = plugin.contribute_settings()
    module, _, name = section.model.partition(":")

    assert section.path == "tools.message"
    assert getattr(importlib.import_module(module), name) is MessageSettings
    assert MessageSettings().allow_chats == ()
    assert MessageSettings().extra_roots == ()


@pytest.mark.parametrize(
    "section",
    [
        {"allowChats": ["*"]},
        {"allowChats": ["telegram:"]},
        {"allowChats": [":1"]},
        {"maxFiles": 0},
        {"maxFileBytes": 0},
        {"unknown": 1},
    ],
)
def test_settings_that_do_not_fit_are_refused(section: JsonObject) -> None:
    with pytest.raises(ValidationError):
        MessageSettings.model_validate(section)


def test_importing_the_entry_module_loads_neither_the_tool_nor_libraries() -> None:
    program = (
        "import sys, json; import nanobot_message.plugin; "
        "print(json.dumps([m for m in sys.modules if m.partition('.')[0] in "
        "('nanobot_message', 'pydantic')]))"
    )
    output = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=30
    ).stdout

    assert sorted(json.loads(output)) == ["nanobot_message", "nanobot_message.plugin"]


def test_the_description_reports_when_to_use_it_and_when_not(tmp_path: Path) -> None:
    from nanobot_message.message_tool import MessageTool

    description = MessageTool(FakePluginContext(tmp_path)).description
    assert "only way to give the user a file" in description
    assert "read_file" in description
    assert "do not repeat" in description
