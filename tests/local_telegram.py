"""A gateway between people on a local Telegram and a scripted model, every link real HTTP."""

from __future__ import annotations

import asyncio
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import pytest
import yaml

from nanobot_core.testing import OpenAIServer, Reply
from nanobot_core.testing.model_server import RecordedRequest
from tests.gateways import REPOSITORY

LocalApi: TypeAlias = Any
"""The local Bot API; its module is loaded by path, so that its types are not known here."""
BOT_API = REPOSITORY / "plugins" / "nanobot-telegram" / "tests" / "bot_api.py"
LIMIT_S = 25.0
if not BOT_API.exists():
    pytest.skip("nanobot-telegram is not in this tree", allow_module_level=True)


def load_bot_api() -> ModuleType:
    """Import the local Bot API of nanobot-telegram: its folder is no package."""
    spec = importlib.util.spec_from_file_location("local_bot_api", BOT_API)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def person(number: int, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a person and the private chat with them."""
    who = {"id": number, "is_bot": False, "first_name": name, "username": f"{name.lower()}_x"}
    return who, {"id": number, "type": "private", "first_name": name}


def write_config(home: Path, api: LocalApi, model_url: str, **sections: Any) -> Path:
    """Write the configuration of a gateway on `api` whose owner is Anna.

    Args:
        home: nanobot's folder.
        api: the local Telegram.
        model_url: base URL of the model.
        sections: further sections; ``telegram`` and ``plugins`` extend the existing ones.
    """
    home.mkdir(parents=True, exist_ok=True)
    telegram = {"token": load_token(), "api_base": api.url, "allow_from": ["1001"]}
    plugins = ["openai", "telegram", *sections.pop("plugins", ())]
    content: dict[str, Any] = {
        "agents": {
            "defaults": {
                "provider": "custom",
                "model": "m",
                "workspace": str(home / "workspace"),
            }
        },
        "plugins": {"policy": "listed", "enabled": plugins},
        "providers": {"custom": {"api_base": model_url}},
        "channels": {"telegram": telegram | sections.pop("telegram", {})},
        "gateway": {"port": 0, "grace_s": 2},
        "owner": ["1001"],
        **sections,
    }
    file = home / "config.yaml"
    file.write_text(yaml.safe_dump(content))
    file.chmod(0o600)
    return file


def load_token() -> str:
    token: str = sys.modules["local_bot_api"].TOKEN
    return token


async def until(api: LocalApi, holds: Callable[[], bool]) -> None:
    """Wait until what the local Telegram has seen fulfils `holds`."""
    await asyncio.to_thread(api.wait_until, holds, LIMIT_S)


@asynccontextmanager
async def serving(
    model: Callable[[RecordedRequest], Reply],
) -> AsyncIterator[tuple[LocalApi, OpenAIServer]]:
    """Run a Telegram and a model."""
    with sys.modules["local_bot_api"].BotApi() as api:
        async with OpenAIServer(default=model) as server:
            yield api, server


bot_api = load_bot_api()
