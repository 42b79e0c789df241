"""A process that logs every secret in every way that comes to mind.

``python -m tests.security.leaks.speaker LEVEL``, with the configuration of ``NANOBOT_HOME``.
"""

from __future__ import annotations

import asyncio
import logging
import sys

import httpx
from loguru import logger

from nanobot_core.app.logging import configure_logging
from nanobot_core.config.loading import load_config

LIBRARIES = ("httpx", "httpcore", "uvicorn.error", "asyncio", "telegram.ext", "mcp.client")
LEVELS = {"TRACE": 5, "DEBUG": 10, "INFO": 20, "WARNING": 30, "ERROR": 40}


class ServiceFailed(Exception):
    """What a careless library raises: it has all that was sent."""


def main() -> None:
    """Log by the level that the command line names."""
    loaded = load_config(None)
    configure_logging(loaded, level=sys.argv[1])
    for secret in sorted(loaded.secrets):
        for name, number in LEVELS.items():
            logger.log(name, "heard {} and {!r}", secret, secret)
            logger.bind(plugin=secret, session=secret, turn=secret).log(name, "bound")
            for library in LIBRARIES:
                logging.getLogger(library).log(
                    number, "GET https://u:%s@host/?key=%s", secret, secret
                )
        _fail(secret)
    asyncio.run(_fail_in_a_task())
    logger.error("the end")


def _fail(secret: str) -> None:
    try:
        try:
            raise ServiceFailed({"authorization": f"Bearer {secret}", "raw": secret.encode()})
        except ServiceFailed as error:
            error.add_note(f"the note says {secret}")
            raise RuntimeError(f"while calling with {secret}") from error
    except RuntimeError as error:
        logger.exception("a call failed: {}", error)
        logger.opt(exception=error).warning("again")
        logging.getLogger("uvicorn.error").exception("in a library")


async def _fail_in_a_task() -> None:
    """Let the HTTP library itself log and fail, with secrets in address and headers."""
    loaded = load_config(None)
    for secret in sorted(loaded.secrets):
        try:
            async with httpx.AsyncClient(trust_env=False) as client:
                await client.get(f"http://127.0.0.1:9/{secret}", headers={"x-key": secret})
        except Exception as error:  # noqa: BLE001 - whatever it is, it is logged
            logger.opt(exception=error).debug("{} {!r}", secret, error)


if __name__ == "__main__":
    main()
