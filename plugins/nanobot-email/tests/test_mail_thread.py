"""The thread of a connection."""

from __future__ import annotations

import asyncio
import threading

import pytest

from nanobot_email.mail_thread import MailThread

pytestmark = pytest.mark.anyio


async def test_a_connection_that_does_not_end_does_not_delay_the_next_one() -> None:
    release = threading.Event()
    thread = MailThread(lambda: None)
    try:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await thread.run(release.wait)
        await thread.close()
        assert await thread.run(lambda: not release.is_set())
    finally:
        release.set()
        await thread.close()
