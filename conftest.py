"""What every test of the repository starts from, those of the plugins included."""

from __future__ import annotations

import pytest
from hypothesis import settings

# Shared machines pause at will; a slow example is not a wrong one.
settings.register_profile("nanobot", deadline=None)
settings.load_profile("nanobot")


@pytest.fixture(scope="session")
def anyio_backend() -> str:
    return "asyncio"
