"""The hook by which other packages add search backends."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from nanobot_core import declare_contribution

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_web.backend import SearchBackend


@declare_contribution
def web_search_backends(ctx: PluginContext) -> Iterable[SearchBackend]:
    """Give search backends; ``tools.web.search.provider`` and ``fallback`` choose by name.

    Asked at each search, so make light objects and import libraries in their ``search``. A name
    that nanobot-web or an earlier plugin has is not taken again.
    """
    raise NotImplementedError
