"""The models that can be used now, and what the services themselves list."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from nanobot_core.app.model_table import credible_models
from nanobot_core.errors import (
    FOREIGN_ERRORS,
    AuthenticationFailed,
    BadRequest,
    NanobotError,
    NoProvider,
    ProviderError,
)
from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterator

    from nanobot_core.app.models import ConfiguredModels
    from nanobot_core.config.models import Settings
    from nanobot_core.contracts.provider import ModelInfo
    from nanobot_core.providers.match import ProviderRow

SERVICE_LIMIT_S = 20.0
"""Seconds that a service has to list its models."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedModel:
    """One model by a name that the configuration accepts.

    Attributes:
        name: with its provider before it, or the name of a preset.
        model: what it stands for; the same as `name` unless it is a preset.
        provider: name of its provider; empty if none serves it.
        is_preset: it is an entry of ``models``.
        is_default: it is the configured model.
        info: what is known of it, or ``None``.
        problem: why it cannot be used, or an empty string.
    """

    name: str
    model: str
    provider: str = ""
    is_preset: bool = False
    is_default: bool = False
    info: ModelInfo | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class ServiceList:
    """What a service lists.

    Attributes:
        row: its provider.
        models: the models; empty if it does not list any.
        error: why it did not answer, or an empty string.
        is_refused: it does not accept the key.
    """

    row: ProviderRow
    models: tuple[ModelInfo, ...] = ()
    error: str = ""
    is_refused: bool = False


def usable_rows(models: ConfiguredModels, settings: Settings) -> list[ProviderRow]:
    """Return the providers that can be used: those with a key, a base URL or a sign-in.

    A provider that needs none of these counts if the configuration names a model of it.
    """
    named = set()
    for name in (settings.agents.defaults.model, *settings.models):
        try:
            named.add(models.match(name).row.spec.name if name else "")
        except NoProvider:
            continue
    return [
        row
        for row in models.rows()
        if not row.lacks
        and not row.spec.demo
        and (row.key or row.base or row.sign_in or row.spec.name in named)
    ]


def list_models(models: ConfiguredModels, settings: Settings) -> list[ListedModel]:
    """Return the models that can be used, presets first. Reads files, and no network."""
    default = settings.agents.defaults.model
    names = dict.fromkeys([*settings.models, *([default] if default else [])])
    first = [_named(name, models, settings) for name in names]
    taken = {each.name for each in first}
    found = [
        ListedModel(name=name, model=name, provider=row.spec.name, info=info)
        for row in usable_rows(models, settings)
        for info in models.table.models(row.spec).values()
        if (name := f"{row.spec.name}/{info.name}") not in taken
    ]
    return [*first, *found]


def _named(name: str, models: ConfiguredModels, settings: Settings) -> ListedModel:
    """Return a preset or the configured model."""
    preset, is_default = settings.preset(name), name == settings.agents.defaults.model
    model = preset.model if preset else name
    try:
        match = models.match(name)
    except NoProvider as error:
        return ListedModel(
            name=name,
            model=model,
            is_preset=preset is not None,
            is_default=is_default,
            problem=error.remedy,
        )
    full = f"{match.row.spec.name}/{match.model}"
    return ListedModel(
        name=name if preset else full,
        model=full,
        provider=match.row.spec.name,
        is_preset=preset is not None,
        is_default=is_default,
        info=models.table.find(match.row.spec, match.model),
    )


async def ask_service(models: ConfiguredModels, row: ProviderRow) -> ServiceList:
    """Return what the service of a provider lists; it is not a paid call."""
    try:
        async with asyncio.timeout(SERVICE_LIMIT_S):
            provider = await models.provider(row)
            listed = await provider.list_models()
        return ServiceList(row, await asyncio.to_thread(credible_models, listed))
    except TimeoutError:
        text = f"no answer within {SERVICE_LIMIT_S:g} seconds; check the network"
        return ServiceList(row, error=text)
    except BadRequest as error:
        # Otherwise the service is there, and has no list.
        is_elsewhere = 300 <= (error.status or 0) < 400
        return ServiceList(row, error=error.reason if is_elsewhere else "")
    except ProviderError as error:
        refused = isinstance(error, AuthenticationFailed)
        return ServiceList(row, error=error.reason, is_refused=refused)
    except NanobotError as error:
        return ServiceList(row, error=str(error))
    except FOREIGN_ERRORS as error:
        return ServiceList(row, error=f"plugin '{row.plugin}' failed with {type(error).__name__}")


async def refresh_models(models: ConfiguredModels, rows: list[ProviderRow]) -> list[ServiceList]:
    """Ask all services at the same time, and store what they list."""
    lists = await asyncio.gather(*(ask_service(models, row) for row in rows))
    return [await _stored(models, found) for found in lists]


async def _stored(models: ConfiguredModels, found: ServiceList) -> ServiceList:
    try:
        if found.models:
            await asyncio.to_thread(models.table.store, found.row.spec, found.models)
    except OSError as error:
        reason = f"cannot store its list in '{error.filename2 or error.filename}': {error.strerror}"
        return ServiceList(found.row, error=reason)
    return found


def silent_providers(models: ConfiguredModels, settings: Settings) -> Iterator[str]:
    """Yield the usable providers of which no model is known."""
    for row in usable_rows(models, settings):
        if not models.table.models(row.spec):
            yield row.spec.name
