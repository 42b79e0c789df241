"""The page on which a newcomer chooses a model service, pastes its key, and chooses a model."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import quote

from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from nanobot_core import ConfigError, login_command
from nanobot_page.access import read_form
from nanobot_page.pages import render

if TYPE_CHECKING:
    from starlette.requests import Request

    from nanobot_core import GatewayAccess, PluginContext, ProviderSpec

MAX_KEY_CHARS: Final = 1_000


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
        """Ask for the service and its key, or for the model once that is known."""
        return await self._page(request, request.query_params.get("provider", ""), "")

    async def save(self, request: Request) -> Response:
        """Save the key or the model, and apply it."""
        fields = await read_form(request)
        provider, key, model = (
            next(iter(fields.get(name, [])), "").strip() for name in ("provider", "key", "model")
        )
        service = self._services().get(provider)
        if service is None:
            raise HTTPException(400, "this service is not known; its plugin may be missing")
        if problem := _problem(service, key, model):
            return await self._page(request, provider, problem)
        if not key and not model:
            return RedirectResponse(f"/setup?provider={quote(provider)}&saved=0", 303)
        changes = (
            {f"providers.{provider}.api_key": key}
            if key
            else {"agents.defaults.model": _name_of(service, model)}
        )
        operations = self._gateway.operations
        try:
            revision = (await operations.configuration()).revision
            await operations.configure(dict(changes), revision)
        except ConfigError as error:
            return await self._page(request, provider, str(error).replace(key or "\0", "…"))
        return RedirectResponse(f"/setup?provider={quote(provider)}&saved=1" if key else "/", 303)

    async def _page(self, request: Request, provider: str, problem: str) -> Response:
        services = self._services()
        chosen = services.get(provider)
        models = await self._gateway.client.models() if chosen else []
        saved = request.query_params.get("saved", "")
        is_done = saved == "1" or (saved == "0" and chosen is not None and not _needs_key(chosen))
        fitting = [name for name in models if name.startswith(f"{provider}/")]
        if not fitting and chosen and _needs_key(chosen):
            fitting = list(models)
        return render(
            request,
            "setup.html",
            status=400 if problem else 200,
            chosen=chosen,
            keyed=[each for each in services.values() if _needs_key(each)],
            keyless=[each for each in services.values() if not (each.needs_key or each.login)],
            logins=[each for each in services.values() if each.login],
            login_command=login_command,
            asks_model=chosen is not None and is_done,
            is_saved=saved == "1",
            models=fitting[:2_000],
            problem=problem,
        )

    def _services(self) -> dict[str, ProviderSpec]:
        """Return the model services by name, without stand-ins."""
        found = {each.name: each for each in self._gateway.operations.providers() if not each.demo}
        return dict(sorted(found.items()))

    @property
    def _gateway(self) -> GatewayAccess:
        if self._ctx.gateway is None:
            msg = "the page runs in a gateway only"
            raise RuntimeError(msg)
        return self._ctx.gateway


def _needs_key(service: ProviderSpec) -> bool:
    return service.needs_key and not service.login


def _name_of(service: ProviderSpec, model: str) -> str:
    """Return the name of a model by which the configuration finds its service.

    Without a key, a service is found only by its name before that of the model.
    """
    prefix = model.partition("/")[0].replace("-", "_")
    is_found = _needs_key(service) or prefix == service.name.replace("-", "_")
    return model if is_found else f"{service.name}/{model}"


def _problem(service: ProviderSpec, key: str, model: str) -> str:
    """Return why what was sent cannot be saved; empty if it can."""
    if key and service.login:
        return f"{service.name} has no key; run {login_command(service.name)}"
    if not key and not model and _needs_key(service):
        return f"{service.name} needs a key"
    if len(key) > MAX_KEY_CHARS or not key.isprintable() or (key and model):
        return "the key cannot be one; copy it again"
    return ""
