"""What the plugin gives its host."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from nanobot_anthropic import plugin
from nanobot_core import LLMProvider, ModelInfo
from nanobot_core.providers import HTTPProvider
from nanobot_core.testing import AnthropicServer, FakePluginContext

Serving = Callable[..., AbstractAsyncContextManager[tuple[LLMProvider, AnthropicServer]]]


def test_one_provider_is_contributed(tmp_path: Path) -> None:
    (spec,) = plugin.contribute_providers(FakePluginContext(tmp_path))
    assert spec.name == "anthropic"
    assert spec.summary


def test_the_data_of_models_is_complete() -> None:
    rows = json.loads(files("nanobot_anthropic").joinpath("models.json").read_text("utf-8"))
    models = [ModelInfo(**{**row, "abilities": frozenset(row["abilities"])}) for row in rows]
    assert len({model.name for model in models}) == len(models) > 10
    for model in models:
        assert model.window_tokens is not None
        assert model.max_answer_tokens is not None
        assert 0 < model.max_answer_tokens < model.window_tokens
        assert model.input_usd is not None
        assert model.output_usd is not None
        assert 0 < (model.cached_usd or 0) < model.input_usd < model.output_usd


@pytest.mark.anyio
async def test_the_models_of_the_service_are_listed(serving: Serving) -> None:
    async with serving() as (provider, server):
        server.models = ["claude-a", "claude-b"]
        found = await provider.list_models()
    assert [model.name for model in found] == ["claude-a", "claude-b"]
    assert (found[0].window_tokens, found[0].max_answer_tokens) == (200_000, 64_000)


def test_abilities_are_those_that_the_service_lists(build: Callable[..., Any]) -> None:
    row = {
        "id": "claude-x",
        "capabilities": {"image_input": {"supported": True}, "thinking": {"supported": False}},
    }
    provider = build()
    assert isinstance(provider, HTTPProvider)
    (found,) = provider.read_models({"data": [row, {"id": "old", "lifecycle": "retired"}, 5]})
    assert sorted(found.abilities or ()) == ["images", "tools"]
    assert found.window_tokens is None
    odds: list[object] = [[], {"data": 5}, {"data": [{"id": 5}]}]
    for odd in odds:
        assert provider.read_models(odd) == []


def test_the_first_request_needs_no_library_that_others_do_not_need() -> None:
    program = (
        "import hashlib, sys\n"
        "from nanobot_core import ChatRequest, Message, on\n"
        "import nanobot_core.providers.http, nanobot_core.providers.encoding\n"
        "import nanobot_core.providers.endpoint, nanobot_core.providers.failure\n"
        "before = set(sys.modules)\n"
        "from nanobot_anthropic import plugin\n"
        "list(plugin.contribute_providers(None))\n"
        "from nanobot_anthropic.provider import AnthropicProvider\n"
        "from nanobot_core.providers import Endpoint\n"
        "endpoint = Endpoint(base='', headers={}, proxy=None, timeout_s=1, secrets=())\n"
        "request = ChatRequest(model='claude-opus-5-5', messages=(Message(role='user'),))\n"
        "AnthropicProvider(plugin.SPEC, endpoint, None).encode(request, stream=True)\n"
        "print(*sorted(set(sys.modules) - before))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    parts = ("", ".answer", ".blocks", ".mapping", ".plugin", ".provider", ".request", ".traits")
    assert done.stdout.split() == [f"nanobot_anthropic{part}" for part in parts]
