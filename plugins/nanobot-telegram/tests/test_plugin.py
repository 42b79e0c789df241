"""The contributions of the plugin, and how it maps the SDK's errors."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import given, strategies as st
from telegram import error as sdk_errors
from telegram.error import ChatMigrated, TelegramError

from nanobot_core import DeliveryError
from nanobot_core.chat import CallFailed, Cause, ChatChannel
from nanobot_core.testing import FakePluginContext
from nanobot_telegram import plugin
from nanobot_telegram.call import GroupMoved, TimeLimits
from nanobot_telegram.connection import FAILURES, Connection
from nanobot_telegram.polling import Backlog
from nanobot_telegram.settings import TelegramSettings


def test_the_channel_and_its_settings_are_where_they_are_said_to_be(tmp_path: Path) -> None:
    ctx = FakePluginContext(tmp_path, settings={"token": "1:x"})
    (spec,) = plugin.contribute_channels(ctx)
    (section,) = plugin.contribute_settings()

    module, _, name = spec.factory.partition(":")
    assert isinstance(getattr(importlib.import_module(module), name)(ctx), ChatChannel)
    module, _, name = section.model.partition(":")
    assert getattr(importlib.import_module(module), name) is TelegramSettings
    assert section.path == f"channels.{spec.name}"


def test_secrets_are_named_and_not_shown(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_channels(FakePluginContext(tmp_path))
    settings = TelegramSettings.model_validate(
        {
            "token": "canary-1",
            "proxy": "http://u:canary-2@h:1",
            "webhook": {"url": "https://h", "secret": "canary-3-canary-3"},
        }
    )

    assert spec.secrets == ("token", "proxy", "webhook.secret")
    assert "canary" not in repr(settings)


def test_no_one_may_write_unless_the_owner_says_so() -> None:
    assert TelegramSettings().allow_from == []
    assert not TelegramSettings().drop_pending_updates


def test_the_settings_of_the_original_are_read() -> None:
    found = TelegramSettings.model_validate(
        {"enabled": True, "token": "1:x", "allowFrom": [123], "proxy": None, "replyToMessage": True}
    )

    assert (found.allow_from, found.reply_to_message) == (["123"], True)


def test_the_sdk_is_imported_only_when_the_channel_connects() -> None:
    program = (
        "import sys\n"
        "from nanobot_telegram import plugin\n"
        "import nanobot_telegram.channel, nanobot_telegram.webhook\n"
        "print(sorted({'telegram', 'httpx', 'markdown_it'} & set(sys.modules)))\n"
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


def _sdk_classes() -> list[type[TelegramError]]:
    return [
        kind
        for kind in vars(sdk_errors).values()
        if isinstance(kind, type) and issubclass(kind, TelegramError)
    ]


@pytest.mark.parametrize("kind", _sdk_classes(), ids=lambda kind: kind.__name__)
def test_every_error_of_the_sdk_becomes_one_of_ours(kind: type[TelegramError]) -> None:
    listed = [known for known, _, _ in FAILURES]
    if issubclass(kind, ChatMigrated):
        return  # it has a class of its own
    assert kind in listed
    # The first match counts, so a special one must not follow a general one.
    before = listed[: listed.index(kind)]
    assert not any(issubclass(kind, known) for known in before)


@pytest.mark.parametrize("cause", list(Cause))
def test_only_what_will_never_be_accepted_is_final(cause: Cause) -> None:
    error = CallFailed(cause, "why", retry_after_s=3.0).as_delivery_error("telegram")

    assert isinstance(error, DeliveryError)
    assert error.retryable is (cause not in {Cause.REFUSED, Cause.FORBIDDEN})
    assert (error.reason, error.retry_after_s) == ("why", 3.0)


async def test_an_answer_that_makes_no_sense_is_not_a_crash() -> None:
    connection = Connection("1:secret", "http://127.0.0.1:9", None, TimeLimits())
    with pytest.raises(CallFailed) as raised:
        async with connection.call(1.0):
            raise KeyError("result")
    assert raised.value.cause is Cause.UNREACHABLE
    moved = connection.failure_of(ChatMigrated(-5))
    assert isinstance(moved, GroupMoved)
    assert (moved.cause, moved.moved_to) == (Cause.BUSY, -5)
    quoted = connection.failure_of(sdk_errors.NetworkError("at /bot1:secret/getMe"))
    assert "secret" not in str(quoted)
    await connection.aclose()


@given(st.lists(st.integers(0, 40), max_size=60), st.randoms(use_true_random=False))
def test_the_offset_never_passes_what_is_not_stored(ids: list[int], random: Random) -> None:
    backlog = Backlog()
    open_ids: set[int] = set()
    stored: set[int] = set()
    everything = sorted(set(ids))
    while len(stored) < len(everything):
        offset = backlog.offset
        if offset is not None:
            assert all(i in stored for i in everything if i < offset)
        offered = [i for i in everything if offset is None or i >= offset]
        fresh = backlog.take(offered[:10])
        assert not set(fresh) & (open_ids | stored)
        open_ids |= set(fresh)
        done = random.choice(sorted(open_ids))
        open_ids.discard(done)
        stored.add(done)
        backlog.finish(done)
    assert backlog.is_settled


def test_update_ids_may_begin_again() -> None:
    backlog = Backlog()
    assert backlog.take([900, 901]) == [900, 901]
    for update_id in (900, 901):
        backlog.finish(update_id)
    assert backlog.offset == 902

    assert backlog.take([5]) == [5]
    backlog.finish(5)
    assert backlog.offset == 6
