"""What the plugin gives its host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from nanobot_core.testing import FakePluginContext
from nanobot_openai import plugin
from nanobot_openai.dialect import dialect_of
from nanobot_openai.vendors import VENDORS

_NAMES = (
    "custom openai openrouter deepseek groq zhipu dashscope vllm ollama gemini moonshot minimax "
    "aihubmix siliconflow volcengine mistral xai llama_cpp lm_studio openai_codex github_copilot"
)


def test_every_vendor_is_contributed_once(tmp_path: Path) -> None:
    names = [spec.name for spec in plugin.contribute_providers(FakePluginContext(tmp_path))]
    assert sorted(names) == sorted(_NAMES.split())


def test_every_vendor_can_be_reached_as_it_is_or_says_what_is_missing() -> None:
    for spec in VENDORS:
        assert spec.summary
        if spec.login:
            assert spec.default_base
            assert spec.login
            assert not any((spec.needs_key, spec.keywords, spec.api_key_env))
            continue
        assert spec.api_key_env
        assert spec.default_base or spec.is_local
        assert spec.needs_key is not spec.is_local
        assert re.search(r"/v\d", spec.default_base or "/v1"), spec.name


def test_well_known_models_go_to_their_vendor() -> None:
    models = {
        "gpt-5.1": "openai",
        "o3-mini": "openai",
        "deepseek-chat": "deepseek",
        "glm-4.6": "zhipu",
        "qwen3-max": "dashscope",
        "gemini-2.5-pro": "gemini",
        "kimi-k2.5": "moonshot",
        "codestral-latest": "mistral",
        "grok-4": "xai",
        "doubao-seed": "volcengine",
        "minimax-m2": "minimax",
    }
    for model, vendor in models.items():
        found = next(spec for spec in VENDORS if any(word in model for word in spec.keywords))
        assert found.name == vendor, model


def test_only_gateways_are_recognised_by_keys() -> None:
    assert {spec.name for spec in VENDORS if spec.key_prefixes} == {"openrouter"}
    assert all(spec.is_gateway for spec in VENDORS if spec.key_prefixes)


def test_an_unknown_vendor_speaks_the_common_form() -> None:
    assert dialect_of("somebody", "m") == dialect_of("openrouter-like", "m")


def test_contributing_providers_imports_no_http_library() -> None:
    program = (
        "import sys\n"
        "from nanobot_openai import plugin\n"
        "list(plugin.contribute_providers(None))\n"
        "import nanobot_openai.provider\n"
        "print(sorted({'httpx', 'httpcore', 'anyio', 'pydantic', 'ssl'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert "httpx" not in done.stdout
    assert "pydantic" not in done.stdout
