"""How the vendors report failures, as data."""

from __future__ import annotations

from nanobot_core import AuthenticationFailed, BadRequest, RateLimited
from nanobot_core.providers import FailureWords

_TOO_LONG_SENTENCES = (
    ("vllm, openrouter, siliconflow", "maximum context length"),
    ("moonshot", "exceeded model token limit"),
    ("gemini", "exceeds the maximum number of tokens"),
    ("xai", "maximum prompt length"),
    ("mistral", "too large for model with"),
    ("dashscope", "range of input length"),
    ("ollama", "exceeds the context length"),
    ("minimax", "context window exceeds limit"),
)
"""(vendor, part of its message in lower case) where no code says that a prompt is too long."""

WORDS = FailureWords(
    too_long=frozenset(
        {
            "context_length_exceeded",  # OpenAI, Groq, DeepSeek, Azure
            "exceed_context_size_error",  # llama.cpp
            "1261",  # Zhipu
            "1039",  # MiniMax
        }
    ),
    too_long_sentences=tuple(sentence for _, sentence in _TOO_LONG_SENTENCES),
    # OpenAI and others, DeepSeek, Zhipu, MiniMax.
    no_credit=frozenset({"insufficient_quota", "insufficient_balance", "1113", "1008"}),
    classes={
        "invalid_api_key": AuthenticationFailed,
        "1004": AuthenticationFailed,  # MiniMax
        "rate_limit_exceeded": RateLimited,
        "rate_limit_reached_error": RateLimited,
        "resource_exhausted": RateLimited,
        "1002": RateLimited,  # MiniMax
        "1302": RateLimited,  # Zhipu
        "invalid_argument": BadRequest,
        "2013": BadRequest,  # MiniMax
        # The Responses API.
        "invalid_prompt": BadRequest,
        "data_residency_mismatch": BadRequest,
        "bio_policy": BadRequest,
        "invalid_image": BadRequest,
        "invalid_image_format": BadRequest,
        "invalid_base64_image": BadRequest,
        "image_too_large": BadRequest,
        "image_too_small": BadRequest,
        "image_parse_error": BadRequest,
        "image_content_policy_violation": BadRequest,
        "image_file_too_large": BadRequest,
        "unsupported_image_media_type": BadRequest,
        "empty_image_file": BadRequest,
    },
    status_object="base_resp",  # MiniMax
)
