"""What every test of the repository starts from, those of the plugins included."""

from __future__ import annotations

import gc
import signal

import pytest

try:
    from hypothesis import settings
except ModuleNotFoundError:
    # `pytest --nanobot-plugin` imports this file where nanobot-core is installed from a clone.
    pass
else:
    # Shared machines pause at will; a slow example is not a wrong one. The examples are the same in
    # each run, so that a change and not chance makes a test fail; `--hypothesis-profile=random`
    # looks for others.
    settings.register_profile("nanobot", deadline=None, derandomize=True)
    settings.register_profile("random", deadline=None)
    settings.load_profile("nanobot")

# What is started in the background ignores Ctrl-C, and so would the programs that tests interrupt.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """Leave out what all tests have in common when a test has garbage collected.

    To look through the objects of all modules takes a third of a second each time.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
