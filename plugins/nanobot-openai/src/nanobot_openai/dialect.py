"""Where a vendor's form of the OpenAI protocol departs from the common one, as data.

Above each row are the pages and threads that its facts come from; ``gh:owner/name#1`` is a thread
on GitHub. What no source shows is left in the common form.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Literal, TypeAlias

from nanobot_core import JsonObject
from nanobot_openai.schema import SchemaRules

Need: TypeAlias = Literal["alternate", "answer-results", "one-system", "text-only"]
"""What a service demands of the order and content of messages:

``alternate``: no two neighbouring messages of the user, or of the model; they are merged.
``answer-results``: an answer of the model between the result of a tool and a message of the user.
``one-system``: a single system message, the first.
``text-only``: no images.
"""
Efforts: TypeAlias = Mapping[str, JsonObject]
"""Reasoning effort to the body fields that ask for it; what is missing is not sent."""

ANY_NAME = ".*"
"""Every name that the core gives a tool is accepted."""
_ANY_SCHEMA = SchemaRules()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """One vendor's departures, for one family of its models.

    Attributes:
        max_tokens_field: name of the limit on the answer.
        temperatures: lowest and highest temperature, or ``None`` where the field is refused.
        efforts: how thinking is steered.
        effort_with_tools: sent instead if tools are offered, or ``None``.
        whole_answer: body fields of a request for an answer in one piece, or ``None``.
        tool_choices: accepted values of ``tool_choice``.
        thinking_choices: the same while the model thinks.
        thinks_unasked: it thinks if the request has no effort.
        return_reasoning: which messages of the model hand its thinking back as
            ``reasoning_content``: none, those with tool calls, or all.
        absent_reasoning: what those of them hand back that have no thinking, such as messages of
            another model, because the service refuses them without the field; ``None`` leaves it
            out.
        call_id: pattern of accepted ids of tool calls; others are replaced.
        tool_name: pattern of accepted names of tools; others are marked.
        unsigned_call: ``extra_content`` of a call that another model made.
        needs: see `Need`.
        schema: what is accepted in the parameters of tools.
        documents: PDF documents are accepted, as parts of the type ``file``.
        stream_usage: the service takes ``stream_options`` (the others report usage unasked).
        cost_field: field of ``usage`` that holds the price in US dollars, or ``None``.
    """

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    temperatures: tuple[float, float] | None = (0.0, 2.0)
    efforts: Efforts = field(default_factory=lambda: _EFFORT, hash=False)
    effort_with_tools: JsonObject | None = field(default=None, hash=False)
    whole_answer: JsonObject | None = field(default=None, hash=False)
    tool_choices: frozenset[str] = frozenset({"auto", "none", "required"})
    thinking_choices: frozenset[str] = frozenset({"auto", "none", "required"})
    thinks_unasked: bool = True
    return_reasoning: Literal["none", "calls", "all"] = "none"
    absent_reasoning: str | None = None
    call_id: str = ".*"
    tool_name: str = ANY_NAME
    unsigned_call: JsonObject | None = field(default=None, hash=False)
    needs: frozenset[Need] = frozenset()
    schema: SchemaRules = _ANY_SCHEMA
    documents: bool = False
    stream_usage: bool = True
    cost_field: str | None = None


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _steered(off: JsonObject, on: JsonObject) -> Efforts:
    """Return the fields for a service that only switches thinking off or on."""
    return {"none": off, "low": on, "medium": on, "high": on}


_EFFORT: Efforts = {
    effort: {"reasoning_effort": effort} for effort in ("none", "low", "medium", "high")
}
_NO_EFFORT: Efforts = {}
_EFFORT_OR_LOW: Efforts = {**_EFFORT, "none": {"reasoning_effort": "low"}}
"""Of models that always think."""
_LOW_OR_HIGH: Efforts = {**_EFFORT_OR_LOW, "medium": {"reasoning_effort": "high"}}
_TYPE = _steered({"thinking": {"type": "disabled"}}, {"thinking": {"type": "enabled"}})
_ADAPTIVE = _steered({"thinking": {"type": "disabled"}}, {"thinking": {"type": "adaptive"}})
_FLAG = _steered({"enable_thinking": False}, {"enable_thinking": True})
_HIGH = _steered({"reasoning_effort": "none"}, {"reasoning_effort": "high"})
_DEFAULT = _steered({"reasoning_effort": "none"}, {"reasoning_effort": "default"})
_AUTO = frozenset({"auto"})
_AUTO_OR_NONE = frozenset({"auto", "none"})
_SHORT_ID = "[a-zA-Z0-9]{9}"
_LETTER_FIRST = "[a-zA-Z_][a-zA-Z0-9_-]*"

# ai.google.dev/api/caching#Schema; gh:google-gemini/gemini-cli#3178 (format),
# gh:pizza-bot-app/pizza-bot#62 (exclusiveMinimum), gh:huggingface/tau#288
# (additionalProperties), gh:decolua/9router#359 and gh:microsoft/vscode#328147 (enum).
_GEMINI_SCHEMA = SchemaRules(
    keywords=_words(
        "type format title description nullable enum items maxItems minItems properties required "
        "minProperties maxProperties minimum maximum minLength maxLength pattern example anyOf "
        "propertyOrdering default"
    ),
    formats=frozenset({"enum", "date-time"}),
    references=False,
    unions="nullable",
    enums="text",
    typed=True,
)
# gh:MoonshotAI/walle, docs/mfjs-walle-vs-draft-2020-12.md; gh:MoonshotAI/kimi-cli#1595 (type),
# gh:MoonshotAI/kimi-cli#2061 ($ref), gh:vercel/ai#18921 (tuples).
_MOONSHOT_SCHEMA = SchemaRules(
    keywords=_words(
        "type description title default enum items maxItems minItems properties required "
        "additionalProperties minimum maximum minLength maxLength anyOf"
    ),
    references=False,
    unions="any-of",
    enums="alike",
    typed=True,
)
# docs.x.ai/developers/model-capabilities/text/structured-outputs, gh:openclaw/openclaw#32080;
# gh:tailcallhq/forgecode#2809 (null in enum).
_XAI_SCHEMA = SchemaRules(
    refused=frozenset(
        {"minLength", "maxLength", "minItems", "maxItems", "minContains", "maxContains"}
    ),
    enums="alike",
)
# gh:makenotion/notion-mcp-server#102 (allOf), gh:PrefectHQ/fastmcp#2464 (array without items).
_OPENAI_SCHEMA = SchemaRules(refused=frozenset({"allOf", "prefixItems"}))
# gh:ggml-org/llama.cpp#19051 (pattern), gh:flagdizero/jenny-android-ai-agent#2 (repetitions).
_GRAMMAR_SCHEMA = SchemaRules(refused=frozenset({"pattern"}), max_bound=1_000)

_COMMON = Dialect()
# gh:vercel/ai#5171 (ids), gh:ITSpecialist111/ai_automation_suggester#38 (max_tokens),
# gh:PsycherosAI/Psycheros#41 (reasoning_effort of models that do not think);
# openai-python, `ChatCompletionContentPartParam` (documents).
_OPENAI = Dialect(
    max_tokens_field="max_completion_tokens",
    efforts=_NO_EFFORT,
    call_id="[a-zA-Z0-9_-]{1,40}",
    documents=True,
    schema=_OPENAI_SCHEMA,
)
# gh:incidentfox/incidentfox#111 (temperature); openai-python, `ReasoningEffort` (values).
_OPENAI_THINKING = replace(_OPENAI, temperatures=None, efforts=_EFFORT_OR_LOW)
# gh:nomtek/mistralai_client_dart#44 (unknown fields), gh:charmbracelet/crush#1590 (reasoning),
# gh:editor-code-assistant/eca#231 (max_tokens), gh:mistralai/mistral-common#169 (order),
# gh:withceleste/celeste-python#311 (efforts).
_MISTRAL = Dialect(
    efforts=_NO_EFFORT,
    call_id=_SHORT_ID,
    needs=frozenset({"alternate", "answer-results", "one-system"}),
    stream_usage=False,
)
# api-docs.deepseek.com/guides/thinking_mode, gh:rikkahub/rikkahub#1433 (images),
# gh:deepseek-ai/DeepSeek-V3#1376 (tool_choice). The field is left unread in other turns.
_DEEPSEEK = Dialect(
    efforts=_TYPE,
    thinking_choices=_AUTO,
    return_reasoning="all",
    absent_reasoning="",
    needs=frozenset({"text-only"}),
)
# platform.kimi.ai/docs/api/chat; gh:enricoros/big-AGI#1161 (temperature, tool_choice),
# gh:JohnnyZ93/oai-compatible-copilot#140 (reasoning; an empty text counts as absent),
# gh:HKUDS/nanobot#3939 (thinking or reasoning_effort, not both).
_MOONSHOT = Dialect(
    efforts=_NO_EFFORT,
    return_reasoning="calls",
    absent_reasoning=" ",
    tool_name="[a-zA-Z_][a-zA-Z0-9_-]{2,}",
    schema=_MOONSHOT_SCHEMA,
)
_KIMI_THINKING = replace(
    _MOONSHOT, temperatures=None, efforts=_TYPE, thinking_choices=_AUTO_OR_NONE
)
_KIMI_ALWAYS = replace(_KIMI_THINKING, efforts=_NO_EFFORT, tool_choices=_AUTO_OR_NONE)
# docs.z.ai/guides/capabilities/thinking-mode, gh:songquanpeng/one-api#1141 (temperature),
# java.agentscope.io/v2/en/integration/model/glm (tool_choice, stream_options).
_ZHIPU = Dialect(
    temperatures=(0.01, 0.99),
    efforts=_TYPE,
    tool_choices=_AUTO,
    thinking_choices=_AUTO,
    return_reasoning="calls",
    stream_usage=False,
)
# docs.x.ai/developers/model-capabilities/text/reasoning, gh:NousResearch/hermes-agent#23435.
_XAI = Dialect(efforts=_NO_EFFORT, schema=_XAI_SCHEMA)
# console.groq.com/docs/reasoning, gh:earendil-works/pi#1745 (efforts),
# gh:janhq/jan#8136 (reasoning), gh:usestrix/strix#1088 (required without properties).
_GROQ = Dialect(efforts=_NO_EFFORT)
# gh:langchain4j/langchain4j#3974, gh:QuantumNous/new-api#1109 (thinking only in a stream),
# gh:cloudwego/eino#994 (tool_choice).
_DASHSCOPE = Dialect(
    efforts=_FLAG,
    thinking_choices=_AUTO_OR_NONE,
    thinks_unasked=False,
    return_reasoning="calls",
)
# gh:CherryHQ/cherry-studio#14782, gh:CherryHQ/cherry-studio#6642 (which models take the flag).
_SILICONFLOW = Dialect(efforts=_NO_EFFORT, return_reasoning="calls")
# ai.google.dev/gemini-api/docs/openai, gh:kaitranntt/ccs#25 (names).
_GEMINI = Dialect(efforts=_NO_EFFORT, tool_name=_LETTER_FIRST, schema=_GEMINI_SCHEMA)
# ai.google.dev/gemini-api/docs/thought-signatures, gh:JetBrains/koog#1148.
_GEMINI_3 = replace(
    _GEMINI,
    efforts=_EFFORT_OR_LOW,
    unsigned_call={"google": {"thought_signature": "skip_thought_signature_validator"}},
)
# gh:can1357/oh-my-pi#954 (one system message), java.agentscope.io/v2/en/integration/model/minimax
# (max_tokens, tool_choice, thinking); temperature: gh:NirDiamant/RAG_Techniques#184.
_MINIMAX = Dialect(
    max_tokens_field="max_completion_tokens",
    temperatures=(0.01, 1.0),
    efforts=_ADAPTIVE,
    tool_choices=_AUTO,
    thinking_choices=_AUTO,
    needs=frozenset({"one-system"}),
)
# The templates of open models refuse it: gh:vllm-project/vllm#41114, gh:phuetz/code-buddy#75.
_LOCAL = Dialect(needs=frozenset({"one-system"}))
_GRAMMAR = replace(_LOCAL, schema=_GRAMMAR_SCHEMA)

_DIALECTS: Mapping[str, Dialect] = {
    "openai": _OPENAI,
    "openrouter": Dialect(cost_field="cost"),  # openrouter.ai/docs/use-cases/usage-accounting
    "mistral": _MISTRAL,
    "deepseek": _DEEPSEEK,
    "moonshot": _MOONSHOT,
    "zhipu": _ZHIPU,
    # gh:ahmadrosid/nakama#922
    "volcengine": Dialect(efforts=_TYPE, return_reasoning="calls"),
    "dashscope": _DASHSCOPE,
    "siliconflow": _SILICONFLOW,
    "gemini": _GEMINI,
    "groq": _GROQ,
    "xai": _XAI,
    "minimax": _MINIMAX,
    # The model behind these is unknown; servers of open models want it or leave it unread.
    "custom": Dialect(return_reasoning="calls"),
    "vllm": replace(_LOCAL, return_reasoning="calls"),
    "ollama": _LOCAL,
    "llama_cpp": _GRAMMAR,
    "lm_studio": _GRAMMAR,
}
_BEGINNING = "(?:^|/)"
_THINKING_OPENAI = rf"{_BEGINNING}(?:o[134]|gpt-5|gpt-6)"
_VARIANTS: Mapping[str, tuple[tuple[str, Dialect], ...]] = {
    "openai": (
        # Not documented to think.
        (r"gpt-5(?:\.\d+)?-chat", _OPENAI),
        ("gpt-5-pro", replace(_OPENAI_THINKING, efforts=_NO_EFFORT)),
        # gh:openai/openai-openapi#541, gh:BerriAI/litellm#34569.
        (
            r"gpt-5\.(?:[4-9]|\d\d)",
            replace(
                _OPENAI_THINKING, efforts=_EFFORT, effort_with_tools={"reasoning_effort": "none"}
            ),
        ),
        (r"gpt-5\.\d", replace(_OPENAI_THINKING, efforts=_EFFORT)),
        (
            "gpt-5",
            replace(
                _OPENAI_THINKING,
                efforts={**_EFFORT, "none": {"reasoning_effort": "minimal"}},
            ),
        ),
        ("^(?:o[134]|gpt-6)", _OPENAI_THINKING),
    ),
    "aihubmix": ((_THINKING_OPENAI, _OPENAI_THINKING),),
    # gh:ericc-ch/copilot-api#222: ``max_tokens`` is refused for these models.
    "github_copilot": ((_THINKING_OPENAI, _OPENAI_THINKING),),
    "custom": ((_THINKING_OPENAI, replace(_OPENAI_THINKING, return_reasoning="calls")),),
    "mistral": (
        (
            "mistral-(?:small|medium)-(?:latest|26|3-5)|magistral-small",
            replace(_MISTRAL, efforts=_HIGH),
        ),
    ),
    "moonshot": (
        # gh:theopenco/llmgateway#3378, gh:mnfst/modelparams.dev#168; it always hands thinking back.
        (
            "kimi-k3",
            replace(
                _KIMI_THINKING,
                efforts=_LOW_OR_HIGH,
                thinking_choices=_MOONSHOT.thinking_choices,
                return_reasoning="all",
            ),
        ),
        ("kimi-k2.7-code", replace(_KIMI_ALWAYS, return_reasoning="all")),
        (r"kimi-k2\.[56]|kimi-for-coding", _KIMI_THINKING),
        ("kimi-k2-thinking", _KIMI_ALWAYS),
    ),
    # dev.to/aihubmix: GLM-5.3 thinks always.
    "zhipu": ((r"glm-5\.3", replace(_ZHIPU, efforts=_LOW_OR_HIGH)),),
    "groq": (
        ("gpt-oss", replace(_GROQ, efforts=_EFFORT_OR_LOW)),
        ("qwen3", replace(_GROQ, efforts=_DEFAULT)),
    ),
    "xai": (
        (r"grok-4\.3", replace(_XAI, efforts=_EFFORT)),
        (r"grok-4\.[56]", replace(_XAI, efforts=_EFFORT_OR_LOW)),
        ("grok-3-mini", replace(_XAI, efforts=_LOW_OR_HIGH)),
    ),
    "gemini": (
        ("gemini-3", _GEMINI_3),
        (r"gemini-2\.5-pro", replace(_GEMINI, efforts=_EFFORT_OR_LOW)),
        (r"gemini-2\.5", replace(_GEMINI, efforts=_EFFORT)),
    ),
    "dashscope": (
        (
            "qwen3",
            replace(_DASHSCOPE, thinks_unasked=True, whole_answer={"enable_thinking": False}),
        ),
    ),
    "siliconflow": (
        ("instruct|coder|-vl|deepseek-r1", _SILICONFLOW),
        (
            r"qwen3|glm-4\.[5-9]|glm-5|deepseek-v(?:3\.[1-9]|4)",
            replace(_SILICONFLOW, efforts=_FLAG),
        ),
    ),
}
_FAMILIES: tuple[tuple[str, frozenset[Need], str | None], ...] = (
    # The templates of open models enforce Mistral's rules at whatever service runs them:
    # gh:anomalyco/opencode#7488, gh:NousResearch/hermes-agent#20154.
    (
        "mistral|ministral|mixtral|magistral|codestral|devstral|pixtral",
        _MISTRAL.needs,
        _SHORT_ID,
    ),
    # gh:SillyTavern/SillyTavern#4349
    ("gemma", frozenset({"alternate"}), None),
    (r"qwen3\.[5-9]", frozenset({"one-system"}), None),
)
"""Pattern of model names, what their templates demand, and the pattern of ids of calls."""


@lru_cache(maxsize=64)
def dialect_of(provider: str, model: str) -> Dialect:
    """Return the dialect of a vendor for a model; unknown vendors speak the common one."""
    name = model.lower()
    dialect = _DIALECTS.get(provider, _COMMON)
    for pattern, variant in _VARIANTS.get(provider, ()):
        if re.search(pattern, name):
            dialect = variant
            break
    for pattern, needs, call_id in _FAMILIES:
        if re.search(pattern, name):
            dialect = replace(
                dialect, needs=dialect.needs | needs, call_id=call_id or dialect.call_id
            )
    return dialect
