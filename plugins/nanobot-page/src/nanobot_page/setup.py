"""The page on which a newcomer pastes a key and chooses a model."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nanobot_core import ConfigError
from nanobot_page.access import read_form
from nanobot_page.pages import render

if TYPE_CHECKING:
    from starlette.requests import Request

    from nanobot_core import GatewayAccess, PluginContext

_PROVIDER: Final = re.compile(r"[a-z][a-z0-9_-]{0,40}")
MAX_KEY_CHARS: Final = 1_000
OFFLINE: Final = "offline"
"""The provider that needs no key."""


class Setup:
    """Writes ``providers.<name>.api_key`` and ``agents.defaults.model``."""

    def __init__(self, ctx: PluginContext) -> None:
        self._ctx = ctx

    def routes(self) -> list[Route]:
        """Return its routes."""
        return [
            Route("/setup", self.show, methods=["GET"]),
            Route("/setup", self.save, methods=["POST"]),
        ]

    async def show(self, request: Request) -> Response:
        """Ask for the key, or for the model once there is a key."""
        return await self._page(request, request.query_params.get("provider", ""), "")

    async def save(self, request: Request) -> Response:
        """Save the key or the model, and apply it."""
        fields = await read_form(request)
        provider, key, model = (
            next(iter(fields.get(name, [])), "").strip() for name in ("provider", "key", "model")
        )
        if provider not in self._providers():
            raise HTTPException(400, "this service is not known; its plugin may be missing")
        if len(key) > MAX_KEY_CHARS or not key.isprintable() or bool(key) == bool(model):
            return await self._page(request, provider, "the key cannot be one; copy it again")
        changes = (
            {f"providers.{provider}.api_key": key} if key else {"agents.defaults.model": model}
        )
        operations = self._gateway.operations
        try:
            revision = (await operations.configuration()).revision
            await operations.configure(dict(changes), revision)
        except ConfigError as error:
            return await self._page(request, provider, str(error).replace(key or "\0", "…"))
        return RedirectResponse(f"/setup?provider={provider}&saved=1" if key else "/", 303)

    async def _page(self, request: Request, provider: str, problem: str) -> Response:
        names = self._providers()
        known = provider if _PROVIDER.fullmatch(provider) and provider in names else ""
        models = await self._gateway.client.models() if known else []
        fitting = [name for name in models if name.startswith(f"{known}/")] or list(models)
        return render(
            request,
            "setup.html",
            status=400 if problem else 200,
            provider=known,
            providers=sorted(names),
            key_saved=bool(known and request.query_params.get("saved")),
            models=fitting[:2_000],
            problem=problem,
        )

    def _providers(self) -> set[str]:
        """Return the model services that installed plugins know."""
        return {
            name
            for plugin in self._gateway.operations.plugins()
            for kind, _, listed in (line.partition(": ") for line in plugin.gives)
            if kind == "providers"
            for name in listed.split(", ")
        } - {OFFLINE}

    @property
    def _gateway(self) -> GatewayAccess:
        if self._ctx.gateway is None:
            msg = "the page runs in a gateway only"
            raise RuntimeError(msg)
        return self._ctx.gateway
