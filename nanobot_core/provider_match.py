"""Which provider serves a model: a table of data, read in a fixed order, every step told."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from nanobot_core.contracts.provider import ProviderSpec
from nanobot_core.errors import NoProvider
from nanobot_core.record import dataclass
from nanobot_core.text import nearest


@dataclass(frozen=True, slots=True)
class ProviderAccess:
    """What the configuration says of one provider.

    Attributes:
        has_key: its section or one of its environment variables has a key.
        has_base: its section names a base URL.
        key_hint: first characters of the key, for recognising gateways; may be empty.
        base: the base URL of its section, or an empty string.
    """

    has_key: bool = False
    has_base: bool = False
    key_hint: str = ""
    base: str = ""


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One row of the table: a specification and the plugin that it comes from."""

    spec: ProviderSpec
    plugin: str


@dataclass(frozen=True, slots=True)
class ProviderMatch:
    """The provider of a model.

    Attributes:
        row: the chosen row.
        model: the model's name as the service wants it.
        steps: what was tried, in order, each in one sentence.
    """

    row: ProviderRow
    model: str
    steps: tuple[str, ...]


def match_provider(
    model: str | None,
    forced: str | None,
    rows: Sequence[ProviderRow],
    access: Callable[[ProviderSpec], ProviderAccess],
) -> ProviderMatch:
    """Return the provider that serves `model`.

    Args:
        model: model name as configured, or ``None`` when nothing is configured.
        forced: provider that the configuration names, or ``None``.
        rows: all known providers in table order.
        access: what the configuration says of each.

    Raises:
        NoProvider: none can serve it; the error names what to set.
    """
    return _Search(model, forced, rows, access).run()


class _Search:
    def __init__(
        self,
        model: str | None,
        forced: str | None,
        rows: Sequence[ProviderRow],
        access: Callable[[ProviderSpec], ProviderAccess],
    ) -> None:
        self.model = model
        self.forced = forced
        owners: dict[str, list[str]] = {}
        for row in rows:
            owners.setdefault(row.spec.name, []).append(row.plugin)
        self.contested = {name: who for name, who in owners.items() if len(who) > 1}
        self.rows = {row.spec.name: row for row in rows if row.spec.name not in self.contested}
        self.access: Mapping[str, ProviderAccess] = {
            row.spec.name: access(row.spec) for row in self.rows.values()
        }
        self.steps: list[str] = []

    def run(self) -> ProviderMatch:
        for step in (self._named, self._prefix, self._keyword, self._local, self._gateway):
            row = step()
            if row is not None:
                return ProviderMatch(row, wire_model(row.spec, self.model or ""), tuple(self.steps))
        row = self._demonstration()
        if row is not None:
            return ProviderMatch(row, self.model or row.spec.name, tuple(self.steps))
        raise NoProvider(self.model, self._remedy())

    def _named(self) -> ProviderRow | None:
        if not self.forced:
            self._tell("no provider is set in agents.defaults.provider")
            return None
        row = self.rows.get(self.forced)
        self._refuse_contested(self.forced)
        if row is None:
            close = nearest(self.forced, self.rows)
            hint = f"did you mean {' or '.join(close)}?" if close else "install its plugin"
            raise NoProvider(self.model, f"provider '{self.forced}' is not installed; {hint}")
        self._tell(f"agents.defaults.provider is '{self.forced}'")
        return row

    def _prefix(self) -> ProviderRow | None:
        prefix, slash, _ = (self.model or "").partition("/")
        row = self.rows.get(prefix) or self.rows.get(prefix.replace("-", "_"))
        self._refuse_contested(prefix)
        if not slash or row is None:
            self._tell("the model name begins with no provider's name")
            return None
        if self._usable(row.spec):
            self._tell(f"the model name begins with '{prefix}/'")
            return row
        lacks = "key" if row.spec.needs_key else "base URL"
        self._tell(f"the model name begins with '{prefix}/', but '{prefix}' has no {lacks}")
        return None

    def _keyword(self) -> ProviderRow | None:
        name = (self.model or "").lower()
        for row in self.rows.values():
            word = next((word for word in row.spec.keywords if word in name), None)
            if not name or word is None or _only_on_request(row.spec):
                continue
            if self._usable(row.spec):
                self._tell(f"'{word}' in the model name belongs to '{row.spec.name}'")
                return row
            lacks = "key" if row.spec.needs_key else "base URL"
            self._tell(f"'{word}' belongs to '{row.spec.name}', which has no {lacks}")
        self._tell("no configured provider has a keyword in the model name")
        return None

    def _local(self) -> ProviderRow | None:
        for row in self.rows.values():
            spec = row.spec
            serves_any = not spec.needs_key and self.access[spec.name].has_base
            if self.model and serves_any and not _only_on_request(spec):
                self._tell(f"'{spec.name}' has a base URL and serves any model")
                return row
        self._tell("no local provider has a base URL")
        return None

    def _gateway(self) -> ProviderRow | None:
        gateways = [
            row
            for row in self.rows.values()
            if row.spec.is_gateway and not _only_on_request(row.spec)
        ]
        recognised = [row for row in gateways if self._recognised(row.spec)]
        for row in (*recognised, *gateways):
            if self.model and self.access[row.spec.name].has_key:
                self._tell(f"gateway '{row.spec.name}' has a key")
                return row
        self._tell("no gateway has a key")
        return None

    def _demonstration(self) -> ProviderRow | None:
        if self.model:
            return None
        for row in self.rows.values():
            if row.spec.demo:
                self._tell(f"no model is configured, so '{row.spec.name}' answers")
                return row
        return None

    def _refuse_contested(self, name: str) -> None:
        if owners := self.contested.get(name):
            claimants = " and ".join(f"'{owner}'" for owner in sorted(owners))
            raise NoProvider(
                self.model,
                f"provider '{name}' is claimed by plugins {claimants}; disable one of them",
            )

    def _recognised(self, spec: ProviderSpec) -> bool:
        access = self.access[spec.name]
        by_key = any(access.key_hint.startswith(prefix) for prefix in spec.key_prefixes)
        by_base = any(word in access.base for word in spec.base_keywords)
        return (bool(access.key_hint) and by_key) or (bool(access.base) and by_base)

    def _usable(self, spec: ProviderSpec) -> bool:
        if spec.needs_key:
            return self.access[spec.name].has_key
        has_base = spec.default_base is not None or self.access[spec.name].has_base
        return has_base or not spec.is_local

    def _tell(self, step: str) -> None:
        self.steps.append(step)

    def _remedy(self) -> str:
        name = (self.model or "").lower()
        prefix = name.partition("/")[0]
        wanted = [
            row.spec
            for row in self.rows.values()
            if row.spec.name == prefix or any(word in name for word in row.spec.keywords)
        ]
        demo = next((row.spec.name for row in self.rows.values() if row.spec.demo), None)
        parts = []
        if wanted:
            spec = wanted[0]
            variables = (
                f" or the environment variable {spec.api_key_env[0]}" if spec.api_key_env else ""
            )
            key = f"api_key{variables}" if spec.needs_key else "api_base"
            parts.append(f"set providers.{spec.name}.{key}")
        elif self.rows:
            parts.append(
                "set the key of a provider (nanobot onboard), such as providers.openai.api_key"
            )
        else:
            parts.append("install a provider: pip install 'nanobot-core[standard]'")
        if demo:
            parts.append(f"to try things without a key, use the provider '{demo}'")
        return "; ".join(parts)


def _only_on_request(spec: ProviderSpec) -> bool:
    """Whether a provider is never chosen by itself: one that logs in, and a stand-in."""
    return spec.is_oauth or spec.demo


def wire_model(spec: ProviderSpec, model: str) -> str:
    """Return `model` as the service of `spec` knows it."""
    own = f"{spec.name}/"
    if model.startswith((own, own.replace("_", "-"))):
        model = model[len(own) :]
    if spec.strip_prefix and "/" in model:
        model = model.rsplit("/", 1)[-1]
    if spec.add_prefix and not model.startswith(spec.add_prefix):
        model = spec.add_prefix + model
    return model
