"""Text of a PDF, from a process that ends with the call."""

from __future__ import annotations

import asyncio
import sys
from asyncio.subprocess import DEVNULL, PIPE

from nanobot_core import ToolFailed
from nanobot_web.extraction import Extract

# Neither the environment nor the current folder decides what is imported there.
_COMMAND = (sys.executable, "-E", "-P", "-X", "utf8", "-m", "nanobot_web.pdf")


async def read_pdf(content: bytes, limit_s: float) -> Extract:
    """Return the text of a PDF; what a damaged one gives before the damage counts as incomplete.

    Raises:
        ToolFailed: there is no text in it that can be read within `limit_s` seconds.

    Cancellation:
        The process is ended before the cancellation is passed on.
    """
    process = await asyncio.create_subprocess_exec(
        *_COMMAND, stdin=PIPE, stdout=PIPE, stderr=DEVNULL, env={}
    )
    try:
        async with asyncio.timeout(limit_s):
            # The program bounds what it writes.
            output, _ = await process.communicate(content)
    except TimeoutError as error:
        raise ToolFailed(f"the PDF was not read within {limit_s:g} seconds") from error
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if process.returncode and not output:
        raise ToolFailed("the PDF cannot be read: it is damaged, encrypted or too large")
    return Extract(output.decode("utf-8", "replace"), "pdf", complete=not process.returncode)
