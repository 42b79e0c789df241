"""Lists of models, as services give them."""

from __future__ import annotations

import pytest

from nanobot_core import ModelInfo
from nanobot_openai.listing import model_list


@pytest.mark.parametrize(
    ("row", "window"),
    [
        # Ollama
        ({"id": "llama3.2:3b", "object": "model", "created": 1, "owned_by": "library"}, None),
        # vLLM
        ({"id": "m", "owned_by": "vllm", "root": "/models/m", "max_model_len": 32_768}, 32_768),
        # llama.cpp, of a model that runs with a smaller window than it was trained with
        ({"id": "m.gguf", "meta": {"n_ctx_train": 131_072, "n_ctx": 8_192}}, 8_192),
        ({"id": "m.gguf", "owned_by": "llamacpp", "meta": {"n_ctx_train": 131_072}}, 131_072),
        ({"id": "m.gguf", "meta": None}, None),
        # LM Studio, of a model in memory
        ({"id": "m", "max_context_length": 131_072, "loaded_context_length": 4_096}, 4_096),
        ({"id": "m", "object": "model", "owned_by": "organization_owner"}, None),
        # OpenRouter, Groq
        ({"id": "a/b", "context_length": 200_000}, 200_000),
        ({"id": "m", "context_window": 131_072}, 131_072),
        ({"id": "m", "context_length": "many", "max_model_len": True}, None),
    ],
)
def test_a_model_has_its_window_if_the_service_reports_it(
    row: dict[str, object], window: int | None
) -> None:
    found = model_list({"object": "list", "data": [row]})
    assert found == [ModelInfo(name=str(row["id"]), window_tokens=window)]


@pytest.mark.parametrize(
    "payload",
    [None, [], "models", {}, {"data": None}, {"data": {"id": "m"}}, {"data": [1, {}, {"id": 7}]}],
)
def test_what_is_no_list_of_models_is_empty(payload: object) -> None:
    assert model_list(payload) == []


def test_a_gateway_reports_prices_and_abilities() -> None:
    row = {
        "id": "vendor/model",
        "context_length": 200_000,
        "top_provider": {"max_completion_tokens": 32_000},
        "pricing": {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "x"},
        "architecture": {"input_modalities": ["text", "image"]},
        "supported_parameters": ["tools", "top_p"],
    }
    router = {"id": "router", "pricing": {"prompt": "-1", "completion": "-1"}}
    assert model_list({"data": [row, router]}) == [
        ModelInfo(
            name="vendor/model",
            window_tokens=200_000,
            max_answer_tokens=32_000,
            input_usd=3,
            output_usd=15,
            abilities=frozenset({"images", "tools"}),
        ),
        ModelInfo(name="router"),
    ]
