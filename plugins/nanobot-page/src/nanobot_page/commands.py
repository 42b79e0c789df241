"""``/web-login``: a link for the terminal with which a browser signs in."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_page.codes import Codes

if TYPE_CHECKING:
    from nanobot_core import CommandCall, PluginContext


async def answer_login(ctx: PluginContext, call: CommandCall) -> str:
    """Return the link; only the terminal of this machine gets one."""
    if call.turn.source != "cli" or not call.is_owner:
        return "This works in the terminal only: run `nanobot web`."
    if ctx.gateway is None:
        return "No gateway is running; start one with: nanobot gateway"
    url = await asyncio.to_thread(_base_url, ctx)
    if not url:
        return "The gateway's HTTP server is not running; see: nanobot gateway status"
    return f"{url}/login#code={ctx.shared(Codes).issue()}"


def _base_url(ctx: PluginContext) -> str:
    """Return where the server listens, as this machine reaches it; empty if it does not run."""
    # nanobot-http keeps its base URL in its data folder while it runs, see its README.
    try:
        url = (ctx.data_dir.parent / "http" / "address").read_text("utf-8").strip()
    except OSError:
        return ""
    # Browsers do not share the cookies of different names: it is always this one.
    for everywhere in ("//0.0.0.0:", "//[::]:"):
        url = url.replace(everywhere, "//127.0.0.1:")
    return url
