"""The vendors, one row for each: how it is recognised and reached, and how its protocol differs.

The order matters: a model goes to the first vendor with a keyword in its name. Vendors of their own
models take names without a prefix (`strip_prefix`); services whose names of models contain a slash
get them unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from nanobot_core import JsonObject, ProviderSpec
from nanobot_openai.dialect import Dialect

_spec = partial(ProviderSpec, factory="nanobot_openai.provider:build_provider")
_COMMON = Dialect()
_ONLY_TEMPERATURE_1: JsonObject = {"temperature": 1.0}


@dataclass(frozen=True, slots=True)
class Vendor:
    """One vendor."""

    spec: ProviderSpec
    dialect: Dialect = _COMMON


VENDORS: tuple[Vendor, ...] = (
    Vendor(
        _spec(
            name="custom",
            summary="any OpenAI-compatible endpoint; set api_base",
            api_key_env=("CUSTOM_API_KEY",),
            needs_key=False,
            # It may run elsewhere, but like a local server it serves any model.
            is_local=True,
        ),
        # The model is unknown; servers of open models want the field or ignore it.
        Dialect(return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="openrouter",
            summary="OpenRouter, models of many vendors with one key",
            keywords=("openrouter",),
            api_key_env=("OPENROUTER_API_KEY",),
            default_base="https://openrouter.ai/api/v1",
            is_gateway=True,
            key_prefixes=("sk-or-",),
            base_keywords=("openrouter",),
            prompt_cache=True,
        ),
        Dialect(cost_field="cost"),
    ),
    Vendor(
        _spec(
            name="aihubmix",
            summary="AiHubMix, models of many vendors with one key",
            keywords=("aihubmix",),
            api_key_env=("AIHUBMIX_API_KEY",),
            default_base="https://aihubmix.com/v1",
            is_gateway=True,
            base_keywords=("aihubmix",),
            strip_prefix=True,
        ),
    ),
    Vendor(
        _spec(
            name="siliconflow",
            summary="SiliconFlow, open models hosted",
            keywords=("siliconflow",),
            api_key_env=("SILICONFLOW_API_KEY",),
            default_base="https://api.siliconflow.cn/v1",
            is_gateway=True,
            base_keywords=("siliconflow",),
        ),
        Dialect(thinking="flag", return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="volcengine",
            summary="Volcengine Ark, Doubao and others",
            keywords=("volcengine", "doubao", "ark-"),
            api_key_env=("VOLCENGINE_API_KEY", "ARK_API_KEY"),
            default_base="https://ark.cn-beijing.volces.com/api/v3",
            is_gateway=True,
            base_keywords=("volces",),
            strip_prefix=True,
        ),
        Dialect(thinking="type", return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="deepseek",
            summary="DeepSeek",
            keywords=("deepseek",),
            api_key_env=("DEEPSEEK_API_KEY",),
            default_base="https://api.deepseek.com/v1",
            strip_prefix=True,
        ),
        # Since V3.2 it refuses turns with tool calls without the field, and ignores it in others.
        Dialect(thinking="type", return_reasoning="all", absent_reasoning=""),
    ),
    Vendor(
        _spec(
            name="groq",
            summary="Groq, open models at high speed",
            keywords=("groq",),
            api_key_env=("GROQ_API_KEY",),
            default_base="https://api.groq.com/openai/v1",
        ),
    ),
    Vendor(
        _spec(
            name="zhipu",
            summary="Zhipu, GLM models",
            keywords=("glm", "zhipu", "zai"),
            api_key_env=("ZHIPUAI_API_KEY", "ZAI_API_KEY"),
            default_base="https://open.bigmodel.cn/api/paas/v4",
            strip_prefix=True,
        ),
        Dialect(thinking="type", return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="dashscope",
            summary="Alibaba Cloud Model Studio, Qwen models",
            keywords=("qwen", "dashscope"),
            api_key_env=("DASHSCOPE_API_KEY",),
            default_base="https://dashscope.aliyuncs.com/compatible-mode/v1",
            strip_prefix=True,
        ),
        Dialect(thinking="flag", return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="gemini",
            summary="Google Gemini, by its OpenAI-compatible endpoint",
            keywords=("gemini",),
            api_key_env=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            default_base="https://generativelanguage.googleapis.com/v1beta/openai",
            strip_prefix=True,
        ),
    ),
    Vendor(
        _spec(
            name="moonshot",
            summary="Moonshot, Kimi models",
            keywords=("moonshot", "kimi"),
            api_key_env=("MOONSHOT_API_KEY",),
            default_base="https://api.moonshot.ai/v1",
            strip_prefix=True,
            model_overrides=(("kimi-k2.5", _ONLY_TEMPERATURE_1),),
        ),
        # An empty text counts as absent.
        Dialect(thinking="type", return_reasoning="calls", absent_reasoning=" "),
    ),
    Vendor(
        _spec(
            name="minimax",
            summary="MiniMax",
            keywords=("minimax",),
            api_key_env=("MINIMAX_API_KEY",),
            default_base="https://api.minimax.io/v1",
            strip_prefix=True,
        ),
    ),
    Vendor(
        _spec(
            name="mistral",
            summary="Mistral",
            keywords=("mistral", "ministral", "magistral", "codestral", "devstral", "pixtral"),
            api_key_env=("MISTRAL_API_KEY",),
            default_base="https://api.mistral.ai/v1",
            strip_prefix=True,
        ),
        Dialect(stream_usage=False, mistral=True, alternating=True),
    ),
    Vendor(
        _spec(
            name="xai",
            summary="xAI, Grok models",
            keywords=("grok", "xai"),
            api_key_env=("XAI_API_KEY",),
            default_base="https://api.x.ai/v1",
            strip_prefix=True,
        ),
    ),
    Vendor(
        _spec(
            name="openai",
            summary="OpenAI",
            keywords=("openai", "gpt", "o1-", "o3-", "o4-"),
            api_key_env=("OPENAI_API_KEY",),
            default_base="https://api.openai.com/v1",
            strip_prefix=True,
            model_overrides=(
                ("gpt-5", _ONLY_TEMPERATURE_1),
                ("o1", _ONLY_TEMPERATURE_1),
                ("o3", _ONLY_TEMPERATURE_1),
                ("o4-mini", _ONLY_TEMPERATURE_1),
            ),
        ),
        Dialect(max_tokens_field="max_completion_tokens"),
    ),
    Vendor(
        _spec(
            name="vllm",
            summary="a vLLM server; set api_base",
            keywords=("vllm",),
            api_key_env=("VLLM_API_KEY", "HOSTED_VLLM_API_KEY"),
            needs_key=False,
            is_local=True,
        ),
        # As for `custom`.
        Dialect(return_reasoning="calls"),
    ),
    Vendor(
        _spec(
            name="ollama",
            summary="an Ollama server",
            keywords=("ollama",),
            api_key_env=("OLLAMA_API_KEY",),
            default_base="http://127.0.0.1:11434/v1",
            needs_key=False,
            is_local=True,
            base_keywords=("11434",),
        ),
    ),
)


def dialect_of(name: str) -> Dialect:
    """Return the dialect of the vendor with this name; unknown ones use the common form."""
    return next((vendor.dialect for vendor in VENDORS if vendor.spec.name == name), _COMMON)
