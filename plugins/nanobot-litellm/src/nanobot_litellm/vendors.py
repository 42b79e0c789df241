"""The table of providers: services that need LiteLLM, and LiteLLM itself."""

from __future__ import annotations

from nanobot_core import ProviderSpec

_FACTORY = "nanobot_litellm.provider:build_provider"
_SETTINGS = "nanobot_litellm.settings:LiteLLMSettings"

VENDORS: tuple[ProviderSpec, ...] = (
    ProviderSpec(
        name="litellm",
        factory=_FACTORY,
        settings=_SETTINGS,
        summary="any model that LiteLLM knows, as litellm/<service>/<model>",
        api_key_env=("LITELLM_API_KEY",),
        # LiteLLM finds the address of each service, and its key in that service's own variable.
        default_base="",
        needs_key=False,
        prompt_cache=True,
    ),
    ProviderSpec(
        name="bedrock",
        factory=_FACTORY,
        settings=_SETTINGS,
        summary="Amazon Bedrock, with the credentials of the AWS tools",
        keywords=("bedrock",),
        api_key_env=("AWS_BEARER_TOKEN_BEDROCK",),
        default_base="",
        needs_key=False,
        add_prefix="bedrock/",
        prompt_cache=True,
    ),
    ProviderSpec(
        name="vertex_ai",
        factory=_FACTORY,
        settings=_SETTINGS,
        summary="Google Vertex AI, with Google's application default credentials",
        keywords=("vertex",),
        # The credentials are a file, which Google's library finds.
        default_base="",
        needs_key=False,
        add_prefix="vertex_ai/",
        prompt_cache=True,
    ),
    ProviderSpec(
        name="azure",
        factory=_FACTORY,
        settings=_SETTINGS,
        summary="Azure OpenAI; set api_base, and options.api_version",
        keywords=("azure",),
        api_key_env=("AZURE_API_KEY", "AZURE_OPENAI_API_KEY"),
        add_prefix="azure/",
    ),
    ProviderSpec(
        name="cohere",
        factory=_FACTORY,
        settings=_SETTINGS,
        summary="Cohere, Command models",
        keywords=("cohere", "command-"),
        api_key_env=("COHERE_API_KEY", "CO_API_KEY"),
        default_base="",
        add_prefix="cohere/",
    ),
)
"""Every provider of the plugin."""
