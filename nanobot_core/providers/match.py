"""Which provider serves a model: a table of providers, searched in a fixed order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field

from nanobot_core.contracts.provider import ProviderSpec
from nanobot_core.errors import NoProvider
from nanobot_core.record import dataclass
from nanobot_core.sign_in import SignIn, login_command
from nanobot_core.text import nearest


@dataclass(frozen=True, slots=True)
class ProviderRow:
    """One row of the table.

    Attributes:
        spec: the provider.
        plugin: id of the plugin that contributes it.
        key: its key, from its section or one of its environment variables; may be empty.
        base: the base URL of its section, or an empty string.
        sign_in: who is signed in, for a provider with `ProviderSpec.login`; ``None`` without one.
    """

    spec: ProviderSpec
    plugin: str
    key: str = field(default="", repr=False)
    base: str = field(default="", repr=False)
    sign_in: SignIn | None = None

    @property
    def lacks(self) -> str:
        """What it needs before it can be used, or an empty string."""
        if self.spec.login:
            return "" if self.sign_in and not self.sign_in.problem else "sign-in"
        if self.spec.needs_key:
            return "" if self.key else "key"
        has_base = self.spec.default_base is not None or self.base
        return "" if has_base or not self.spec.is_local else "base URL"

    @property
    def only_if_named(self) -> bool:
        """Whether it is never chosen by itself: one that needs a login, and the demonstration."""
        return bool(self.spec.login) or self.spec.demo

    @property
    def is_recognised(self) -> bool:
        """Whether its key or its base URL is one of this gateway."""
        return self.key.startswith(self.spec.key_prefixes) or any(
            word in self.base for word in self.spec.base_keywords
        )


@dataclass(frozen=True, slots=True)
class ProviderMatch:
    """The provider of a model.

    Attributes:
        row: the chosen row.
        model: the model's name as the service expects it.
        steps: what was tried, in order, each in one sentence.
    """

    row: ProviderRow
    model: str
    steps: tuple[str, ...]


def match_provider(
    model: str | None, forced: str | None, rows: Sequence[ProviderRow]
) -> ProviderMatch:
    """Return the provider that serves `model`.

    Args:
        model: model name as configured, or ``None`` if none is configured.
        forced: provider that the configuration names, or ``None``.
        rows: all known providers in table order.

    Raises:
        NoProvider: none can serve it; the error names what to set.
    """
    return _Search(model, forced, rows).run()


class _Search:
    def __init__(self, model: str | None, forced: str | None, rows: Sequence[ProviderRow]) -> None:
        self.model = model
        self.forced = forced
        owners: dict[str, list[str]] = {}
        for row in rows:
            owners.setdefault(row.spec.name, []).append(row.plugin)
        self.contested = {name: who for name, who in owners.items() if len(who) > 1}
        self.rows = {row.spec.name: row for row in rows if row.spec.name not in self.contested}
        self.steps: list[str] = []

    def run(self) -> ProviderMatch:
        for step in (self._named, self._prefix, self._keyword, self._local, self._gateway):
            row = step()
            if row is not None:
                return ProviderMatch(row, wire_model(row.spec, self.model or ""), tuple(self.steps))
        demo = self._demo()
        if demo and not self.model:
            self.steps.append(f"no model is configured, so '{demo.spec.name}' answers")
            return ProviderMatch(demo, demo.spec.name, tuple(self.steps))
        raise NoProvider(self.model, self._remedy())

    def _named(self) -> ProviderRow | None:
        if not self.forced:
            self.steps.append("no provider is set in agents.defaults.provider")
            return None
        row = self.rows.get(self.forced) or self.rows.get(self.forced.replace("-", "_"))
        self._refuse_contested(self.forced)
        if row is None:
            close = nearest(self.forced, self.rows)
            hint = f"did you mean {' or '.join(close)}?" if close else "install its plugin"
            raise NoProvider(self.model, f"provider '{self.forced}' is not installed; {hint}")
        self.steps.append(f"agents.defaults.provider is '{self.forced}'")
        return row

    def _prefix(self) -> ProviderRow | None:
        prefix, slash, _ = (self.model or "").partition("/")
        row = self.rows.get(prefix) or self.rows.get(prefix.replace("-", "_"))
        self._refuse_contested(prefix)
        if not slash or row is None:
            self.steps.append("the model name does not begin with the name of a provider")
            return None
        lacks = f", but '{prefix}' has no {row.lacks}" if row.lacks else ""
        self.steps.append(f"the model name begins with '{prefix}/'{lacks}")
        # The error of the call says how to sign in; another provider would cost the person money.
        return None if lacks and not row.spec.login else row

    def _keyword(self) -> ProviderRow | None:
        name = (self.model or "").lower()
        for row in self.rows.values():
            word = next((word for word in row.spec.keywords if word in name), None)
            if not name or word is None or row.only_if_named:
                continue
            if not row.lacks:
                self.steps.append(f"'{word}' in the model name belongs to '{row.spec.name}'")
                return row
            self.steps.append(f"'{word}' belongs to '{row.spec.name}', which has no {row.lacks}")
        self.steps.append("no configured provider has a keyword in the model name")
        return None

    def _local(self) -> ProviderRow | None:
        for row in self.rows.values():
            serves_any = not row.spec.needs_key and row.base
            if self.model and serves_any and not row.only_if_named:
                self.steps.append(f"'{row.spec.name}' has a base URL and serves any model")
                return row
        self.steps.append("no local provider has a base URL")
        return None

    def _gateway(self) -> ProviderRow | None:
        gateways = [
            row for row in self.rows.values() if row.spec.is_gateway and not row.only_if_named
        ]
        for row in sorted(gateways, key=lambda row: not row.is_recognised):
            if self.model and row.key:
                self.steps.append(f"gateway '{row.spec.name}' has a key")
                return row
        self.steps.append("no gateway has a key")
        return None

    def _demo(self) -> ProviderRow | None:
        return next((row for row in self.rows.values() if row.spec.demo), None)

    def _refuse_contested(self, name: str) -> None:
        if owners := self.contested.get(name):
            claimants = " and ".join(f"'{owner}'" for owner in sorted(owners))
            raise NoProvider(
                self.model,
                f"provider '{name}' is claimed by plugins {claimants}; disable one of them",
            )

    def _remedy(self) -> str:
        name = (self.model or "").lower()
        prefix = name.partition("/")[0]
        wanted = [
            row.spec
            for row in self.rows.values()
            if row.spec.name == prefix or any(word in name for word in row.spec.keywords)
        ]
        if wanted:
            spec = wanted[0]
            if spec.login:
                return f"run {login_command(spec.name)}"
            variable = (
                f" or the environment variable {spec.api_key_env[0]}" if spec.api_key_env else ""
            )
            remedy = f"set providers.{spec.name}." + (
                f"api_key{variable}" if spec.needs_key else "api_base"
            )
        elif any(not row.spec.demo for row in self.rows.values()):
            remedy = "set the key of a provider (nanobot onboard), such as providers.openai.api_key"
        else:
            remedy = "install a provider: pip install 'nanobot-core[standard]'"
        if demo := self._demo():
            remedy += f"; to try things without a key, use the provider '{demo.spec.name}'"
        return remedy


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
