"""The way out, as far as the queue."""

from __future__ import annotations

from dataclasses import replace

import pytest

from nanobot_core import MessageComposed, OutboundMessage, on
from tests.unit.channels.conftest import Bench, outbound

pytestmark = pytest.mark.anyio


class Signs:
    @on.rewrite_outbound
    def rewrite_outbound(self, event: MessageComposed) -> OutboundMessage | None:
        content = f"{event.message.content} -- bot"
        return replace(event.message, content=content, idempotency_key="forged")


class Redacts:
    @on.rewrite_outbound(critical=True)
    def rewrite_outbound(self, event: MessageComposed) -> OutboundMessage | None:
        raise RuntimeError("broken")


class Silences:
    @on.rewrite_outbound
    def rewrite_outbound(self, event: MessageComposed) -> OutboundMessage | None:
        return replace(event.message, content="")


async def test_a_message_goes_out_as_plugins_leave_it_under_its_own_key(bench: Bench) -> None:
    bench.plug(Signs())
    await bench.outbox.publish(outbound("yes", idempotency_key="k"))
    await bench.outbox.publish(outbound("yes", idempotency_key="k"))
    (message,) = await bench.outgoing()
    assert (message.content, message.idempotency_key) == ("yes -- bot", "k")


async def test_what_must_be_rewritten_and_cannot_be_is_withheld(bench: Bench) -> None:
    bench.plug(Redacts())
    assert await bench.outbox.compose(outbound("the secret")) is None
    await bench.outbox.publish(outbound("the secret"))
    assert await bench.outgoing() == []


async def test_without_content_nothing_is_sent_but_a_file_is(bench: Bench) -> None:
    bench.plug(Silences())
    await bench.outbox.publish(outbound("x"))
    await bench.outbox.publish(outbound("x", media=("photo.png",)))
    (message,) = await bench.outgoing()
    assert message.media == ("photo.png",)
