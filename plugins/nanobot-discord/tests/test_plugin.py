"""The contributions of the plugin, its settings, and the codes of Discord's errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from nanobot_core.chat import Cause, ChatChannel
from nanobot_core.testing import FakePluginContext
from nanobot_discord import plugin
from nanobot_discord.failures import CODES, failure_of
from nanobot_discord.session import Backlog
from nanobot_discord.settings import DiscordSettings

EXPECTED = {
    Cause.FORBIDDEN: (*(10003, 10004, 10013, 50001, 50007, 50008, 50013, 50083, 50278, 160005),),
    Cause.REFUSED: (
        *(10008, 10015, 10062, 30046, 40005, 40060, 50005, 50006, 50027, 50035),
        *(160002, 200000, 240000),
    ),
    Cause.BUSY: (20016, 20028, 40062),
    Cause.CREDENTIALS: (40001, 40002, 50014),
}
ROWS = [(code, cause) for cause, codes in EXPECTED.items() for code in codes]


@pytest.mark.parametrize(("code", "cause"), ROWS)
def test_a_code_has_its_cause_whatever_the_status(code: int, cause: Cause) -> None:
    assert failure_of(400, code, "why").cause is cause


def test_every_code_is_tested() -> None:
    assert set(CODES) == {code for code, _ in ROWS}


@pytest.mark.parametrize(
    ("status", "cause"),
    [
        (400, Cause.REFUSED),
        (401, Cause.CREDENTIALS),
        (403, Cause.FORBIDDEN),
        (404, Cause.FORBIDDEN),
        (413, Cause.REFUSED),
        (429, Cause.BUSY),
        (500, Cause.UNREACHABLE),
        (503, Cause.UNREACHABLE),
    ],
)
def test_an_unknown_code_has_the_cause_of_the_status(status: int, cause: Cause) -> None:
    assert failure_of(status, 99, "why").cause is cause


def test_the_channel_and_its_settings_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={"token": "x"})
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()

    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is DiscordSettings
    assert section.path == f"channels.{spec.name}"


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path))
    found = DiscordSettings.model_validate(
        {"token": "canary-1", "proxy": "http://u:canary-2@h:1", "proxy_password": "canary-3"}
    )
    assert spec.secrets == ("token", "proxy", "proxy_password")
    assert "canary" not in repr(found)


def test_the_settings_of_the_original_are_read() -> None:
    found = DiscordSettings.model_validate(
        {
            "enabled": True,
            "token": "x",
            "allowFrom": [123],
            "allowChannels": ["5"],
            "intents": 37377,
            "groupPolicy": "open",
            "readReceiptEmoji": "👀",
            "streaming": True,
            "proxy": None,
            "proxyUsername": None,
            "proxyPassword": None,
        }
    )
    assert (found.allow_from, found.allow_channels) == (["123"], ["5"])
    assert DiscordSettings().intents == 37377
    assert DiscordSettings().allow_from == []


def test_the_sdk_is_imported_only_when_the_channel_connects() -> None:
    program = (
        "import sys\n"
        "from nanobot_discord import plugin\n"
        "import nanobot_discord.channel\n"
        "print(sorted({'discord', 'aiohttp', 'markdown_it'} & set(sys.modules)))\n"
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


@given(st.lists(st.integers(1, 30), max_size=60))
def test_the_confirmed_number_never_passes_an_open_event(numbers: list[int]) -> None:
    backlog, open_numbers = Backlog(), set[int]()
    for number in numbers:
        if number in open_numbers:
            backlog.finish(number)
            open_numbers.discard(number)
        elif backlog.take(number):
            open_numbers.add(number)
        assert not [one for one in open_numbers if one <= backlog.finished]
    for number in list(open_numbers):
        backlog.finish(number)
    assert backlog.finished == max(numbers, default=0)
