"""Everything that decides how a model is called, for ``nanobot providers explain``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from nanobot_core.cli.models import describe_info, describe_price, describe_tokens
from nanobot_core.cli.output import run_async
from nanobot_core.errors import NoProvider

if TYPE_CHECKING:
    from nanobot_core.agent.cool_down import CoolDown
    from nanobot_core.app.application import Nanobot
    from nanobot_core.providers.match import ProviderRow


def cool_downs_of(agent: Nanobot) -> list[CoolDown]:
    """Return what the running gateway leaves out; nothing if none runs or answers."""
    from nanobot_core.agent.cool_down import CoolDown
    from nanobot_core.app.client import ControlClient
    from nanobot_core.app.wire import ControlError, from_json

    client = ControlClient(agent.loaded.home / "gateway")
    if not client.is_there:
        return []
    try:
        found = run_async(client.call("cool_downs"))
        return [from_json(CoolDown, each) for each in found] if isinstance(found, list) else []
    except ControlError:  # an older gateway does not know the request
        return []


def explain_model(agent: Nanobot, name: str | None, cooling: Sequence[CoolDown]) -> dict[str, Any]:
    """Return the facts about one model. Reads files.

    Args:
        agent: not started.
        name: name of a model or preset, or ``None`` for the configured one.
        cooling: what the gateway leaves out.

    Raises:
        NoProvider: none serves it.
    """
    models = agent.models
    match, defaults = models.match(name), models.defaults_of(name)
    row, spec = match.row, match.row.spec
    info = models.table.find(spec, match.model)
    limits = models.known_choice(name)
    left_out = [
        each for each in cooling if each.provider == spec.name and each.model in {None, match.model}
    ]
    overrides: dict[str, Any] = {}
    for part, fields in spec.model_overrides:
        if part in match.model:
            overrides |= fields
    return {
        "model": name or agent.loaded.settings.agents.defaults.model,
        "provider": spec.name,
        "plugin": row.plugin,
        "sent_as": match.model,
        "steps": match.steps,
        "endpoint": agent.redact(row.base or spec.default_base or "") or None,
        "key": _key(agent, row),
        "temperature": defaults.temperature,
        "reasoning_effort": defaults.reasoning_effort,
        "max_tokens": limits.max_tokens,
        "context_window_tokens": limits.context_window_tokens,
        "overrides": overrides,
        "known": describe_info(info) if info else None,
        "price": (describe_price(info) if info else "") or None,
        "left_out": str(left_out[0]) if left_out else None,
    }


def explain_fallback(agent: Nanobot, name: str, cooling: Sequence[CoolDown]) -> dict[str, Any]:
    """Return the same for a fallback, which need not have a provider."""
    try:
        return explain_model(agent, name, cooling)
    except NoProvider as error:
        return {"model": name, "provider": None, "error": str(error), "remedy": error.remedy}


def render_model(explained: dict[str, Any]) -> Iterator[str]:
    """Yield the facts about a model as lines."""
    name = explained["model"] or "any model"
    if explained["provider"] is None:
        yield f"{name}: {explained['error']}"
        return
    served = f"{name} is served by '{explained['provider']}' of plugin '{explained['plugin']}'"
    yield f"{served}, sent as '{explained['sent_as']}'"
    yield f"  endpoint: {explained['endpoint'] or 'that of the plugin'}"
    yield f"  key: {explained['key']}"
    limits = (explained["max_tokens"], explained["context_window_tokens"])
    answer, window = map(describe_tokens, limits)
    yield f"  limits: {answer} tokens of an answer, {window} of a request and its answer"
    for label in ("temperature", "reasoning_effort"):
        if explained[label] is not None:
            yield f"  {label.replace('_', ' ')}: {explained[label]}"
    if explained["overrides"]:
        fields = (f"{key}={value}" for key, value in explained["overrides"].items())
        yield f"  always sent: {', '.join(fields)}"
    yield f"  known: {_known(explained)}"
    if explained["left_out"]:
        yield f"  {explained['left_out']}"


def _key(agent: Nanobot, row: ProviderRow) -> str:
    if row.spec.login:
        return "that of the sign-in"
    return agent.models.key_source(row) or ("missing" if row.spec.needs_key else "not needed")


def _known(explained: dict[str, Any]) -> str:
    known = explained["known"]
    if known is None:
        return "nothing; nanobot models refresh asks the service"
    window, abilities = known["window_tokens"], known["abilities"]
    parts = [
        f"window of {describe_tokens(window)} tokens" if window else "",
        f"{explained['price']} for a million tokens" if explained["price"] else "",
        f"can do {', '.join(abilities)}" if abilities else "",
    ]
    return ", ".join(filter(None, parts)) or "only its name"
