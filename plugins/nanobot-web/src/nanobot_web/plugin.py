"""Entry point: the tools, the settings, and the hook for further search backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import LazyTool, PluginFacts, SettingsSection, declare_contribution, on

if TYPE_CHECKING:
    from nanobot_core import ContributionHook, PluginContext
    from nanobot_web.backend import SearchBackend


@declare_contribution
def web_search_backends(ctx: PluginContext) -> Iterable[SearchBackend]:
    """Contribute search backends; ``tools.web.search.provider`` and ``fallback`` choose by name.

    Asked at each search, so make light objects and import libraries in their ``search``. A name
    that nanobot-web or an earlier plugin has is not taken again.
    """
    raise NotImplementedError


@on.describe_plugin
def describe_plugin() -> PluginFacts:
    """Declare what the plugin reaches."""
    return PluginFacts(
        capabilities=(
            "fetches web pages that the model names",
            "sends queries to search services",
            "runs a process that reads PDFs",
        ),
        hosts=(
            "api.search.brave.com",
            "api.tavily.com",
            "html.duckduckgo.com",
            "s.jina.ai",
        ),
    )


@on.contribute_hookspecs
def contribute_hookspecs() -> Iterable[ContributionHook[object]]:
    """Let other packages add search backends."""
    return (web_search_backends,)


@on.contribute_settings
def contribute_settings() -> Iterable[SettingsSection]:
    """Declare the settings section."""
    return (
        SettingsSection(
            "tools.web",
            "nanobot_web.settings:WebSettings",
            environment=("BRAVE_API_KEY", "JINA_API_KEY", "SEARXNG_BASE_URL", "TAVILY_API_KEY"),
        ),
    )


@on.contribute_tools
def contribute_tools(ctx: PluginContext) -> Iterable[LazyTool]:
    """Contribute the two tools unless the owner has switched them off."""
    from nanobot_web.settings import WebSettings

    if not ctx.settings(WebSettings).enable:
        return ()
    return (
        LazyTool("web_fetch", "nanobot_web.web_fetch:WebFetchTool"),
        LazyTool("web_search", "nanobot_web.web_search:WebSearchTool"),
    )
