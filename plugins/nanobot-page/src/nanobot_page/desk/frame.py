"""Frame: what all pages of the desk have, such as the menu, notices and questions."""

from __future__ import annotations

import re
from collections import OrderedDict
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlencode

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response

from nanobot_core import NanobotError, Panel, PanelError, on
from nanobot_page.access import MAX_LOGINS, require_owner
from nanobot_page.pages import render

if TYPE_CHECKING:
    from collections.abc import Awaitable, Mapping

    from starlette.requests import Request

    from nanobot_core import Contributed, GatewayAccess, PluginContext

Form = dict[str, list[str]]
ResultT = TypeVar("ResultT")
CONFIRMED: Final = "confirmed"
"""Field of a form whose question the owner has answered."""
MAX_NOTICE_CHARS: Final = 4_000
MAX_TITLE_CHARS: Final = 60
_PARENTS: Final = {
    "/desk/install": "/desk/plugins",
    "/desk/section": "/desk/settings",
    "/desk/sign-in": "/desk",
}
"""Pages that are not in the menu, and the place that is marked for them."""
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9_~.-]+)+/?")
_PLACES: Final = (
    ("Overview", "/desk"),
    ("Approvals", "/desk/approvals"),
    ("Plugins", "/desk/plugins"),
    ("Settings", "/desk/settings"),
    ("Dead letters", "/desk/letters"),
    ("Log", "/desk/log"),
)


class Frame:
    """The frame of one application.

    Args:
        ctx: the context of the plugin.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx
        self._notices: OrderedDict[str, tuple[str, bool]] = OrderedDict()

    @property
    def gateway(self) -> GatewayAccess:
        """The gateway.

        Raises:
            HTTPException: 503, the page is not served by a gateway.
        """
        if self._ctx.gateway is None:
            raise HTTPException(503, "no gateway is running; start one with nanobot gateway")
        return self._ctx.gateway

    async def panels(self) -> list[Contributed[Panel]]:
        """Return the panels of all plugins by title."""
        found = await self._ctx.contributed(on.contribute_panels)
        return sorted(found, key=lambda each: (each.value.title, each.plugin))

    def _plugin_pages(self) -> list[tuple[str, str]]:
        """Return titles and addresses of the pages that plugins serve themselves, by title."""
        mounts = [route.mount for route in self.gateway.routes()]
        return sorted(
            (mount.title[:MAX_TITLE_CHARS], mount.path)
            for mount in mounts
            # With two slashes, browsers take the path for the name of a host.
            if mount.title and _PATH.fullmatch(mount.path)
        )

    async def page(
        self, request: Request, template: str, *, status: int = 200, **values: object
    ) -> Response:
        """Return a page with the menu and the notice of the last change."""
        login = require_owner(request)
        notice = self._notices.pop(login.id, None)
        panels = [
            (each.value.title, panel_path(each.plugin, each.value.id))
            for each in await self.panels()
        ]
        here = f"{request.url.path}?{request.url.query}"
        place = _PARENTS.get(request.url.path, request.url.path)
        menu = [
            (label, path, here.startswith(path) if "?" in path else path == place)
            for label, path in (*_PLACES, *panels, *self._plugin_pages())
        ]
        shown: dict[str, object] = {"menu": menu, "notice": notice, **values}
        return render(request, f"desk/{template}", status=status, headers=None, **shown)

    async def ask(self, request: Request, form: Form, question: str, back: str) -> Response:
        """Return a page that asks before the same form is done, without script."""
        fields = [(name, value) for name, values in form.items() for value in values]
        return await self.page(
            request, "question.html", question=question, fields=fields, back=back
        )

    async def foreign(self, plugin: str, work: Awaitable[ResultT]) -> ResultT:
        """Return the result of another plugin's code.

        Raises:
            NanobotError: it fails; `PanelError` if the plugin does not say why.
        """
        try:
            return await work
        except NanobotError:
            raise
        except Exception as error:  # isolation point: the code of another plugin
            self._ctx.logger.opt(exception=error).error("the plugin '{}' failed", plugin)
            msg = f"the plugin '{plugin}' failed: {type(error).__name__}; the log says where"
            raise PanelError(msg) from error

    async def done(self, request: Request, work: Awaitable[str], back: str) -> Response:
        """Do `work`, and lead back to a page that shows what was done, or why not."""
        try:
            text, failed = await work, False
        except NanobotError as error:
            text, failed = str(error), True
        return self.lead_back(request, text, back, failed=failed)

    def lead_back(
        self, request: Request, text: str, back: str, *, failed: bool = False
    ) -> Response:
        """Lead to a page that shows a notice once."""
        login = require_owner(request)
        self._notices[login.id] = (text[:MAX_NOTICE_CHARS], failed)
        while len(self._notices) > MAX_LOGINS:
            self._notices.popitem(last=False)
        return RedirectResponse(back, 303)


def panel_path(plugin: str, panel: str, view: str = "") -> str:
    """Return the address of a view of a panel."""
    shown: Mapping[str, str] = {"view": view} if view else {}
    return f"/desk/panel?{urlencode({'plugin': plugin, 'id': panel, **shown})}"


def one(form: Form, name: str) -> str:
    """Return the only value of a field; empty if it is missing."""
    return next(iter(form.get(name, ())), "")
