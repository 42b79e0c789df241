"""Templates, and the files that pages load."""

from __future__ import annotations

import hashlib
import mimetypes
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.responses import HTMLResponse, Response

from nanobot_page.access import TOKEN_FIELD, Login

if TYPE_CHECKING:
    from jinja2 import Environment
    from starlette.requests import Request

    from nanobot_core import PluginContext

_FOLDER: Final = Path(__file__).parent


class Pages:
    """The templates and static files of one application; get it with ``ctx.shared(Pages)``.

    The files are few and small, and stay in memory. Their address contains a hash of all of them,
    so that browsers may keep them for good.
    """

    def __init__(self, ctx: PluginContext) -> None:
        self._files = {
            file.name: file.read_bytes() for file in sorted((_FOLDER / "static").iterdir())
        }
        digest = hashlib.sha256()
        for name, content in self._files.items():
            digest.update(f"{name} {len(content)}\n".encode())
            digest.update(content)
        self.base: str = f"/static/{digest.hexdigest()[:16]}"

    @cached_property
    def _environment(self) -> Environment:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(
            loader=FileSystemLoader(_FOLDER / "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        environment.globals["static"] = lambda name: f"{self.base}/{name}"
        environment.filters["visible"] = visible
        return environment

    def html(self, template: str, **values: object) -> str:
        """Return a template with its values."""
        return self._environment.get_template(template).render(**values)

    def file(self, request: Request) -> Response:
        """Return a static file.

        Raises:
            HTTPException: 404, there is none of that name.
        """
        name = request.path_params["name"]
        content = self._files.get(name)
        if content is None:
            raise HTTPException(404)
        is_current = request.url.path == f"{self.base}/{name}"
        cache = "public, max-age=31536000, immutable" if is_current else "no-cache"
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        kind = "text/javascript" if name.endswith(".js") else kind
        return Response(content, media_type=kind, headers={"cache-control": cache})


def render(
    request: Request,
    template: str,
    *,
    status: int = 200,
    headers: Mapping[str, str] | None = None,
    **values: object,
) -> HTMLResponse:
    """Return a page.

    Besides `values` a template has ``token_field``, the hidden field of every form; ``token``;
    ``login``, a `Login` or ``None``; and ``path``, that of the request.
    """
    pages: Pages = request.app.state.pages
    login: Login | None = getattr(request.state, "login", None)
    context: dict[str, Any] = {
        "login": login,
        "token": login.token if login else "",
        "token_field": token_field(login),
        "path": request.url.path,
        **values,
    }
    return HTMLResponse(pages.html(template, **context), status, dict(headers or {}))


def token_field(login: Login | None) -> Markup:
    """Return the hidden field that `nanobot_page.access.read_form` checks."""
    if login is None:
        return Markup("")
    return Markup('<input type="hidden" name="{}" value="{}">').format(TOKEN_FIELD, login.token)


def visible(text: object) -> str:
    """Return `text` with invisible and bidirectional control characters escaped."""
    return "".join(
        char if char.isprintable() or char in "\n\t" else f"\\u{ord(char):04x}"
        for char in str(text)
    )
