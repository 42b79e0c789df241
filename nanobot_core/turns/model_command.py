"""The command ``/model``: shows the model of a session, or chooses another one."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from nanobot_core.errors import NoProvider
from nanobot_core.text import nearest

if TYPE_CHECKING:
    from nanobot_core.contracts.plugin import CommandCall
    from nanobot_core.contracts.provider import ModelInfo
    from nanobot_core.providers.match import ProviderMatch
    from nanobot_core.sessions.session import Session, Sessions

DEFAULT = "default"
"""The name with which a session returns to the configured model."""
MAX_NAME_CHARS = 300
KEY = "model"
"""Where the metadata of a session names its model."""


class KnownModels(Protocol):
    """The models of the configuration."""

    @property
    def default(self) -> str | None:
        """The configured model or preset."""

    @property
    def presets(self) -> Mapping[str, str]:
        """The name of each preset with that of its model."""

    def match(self, name: str | None) -> ProviderMatch:
        """Return which provider serves a model or preset; ``None`` means the configured default.

        Raises:
            NoProvider: none can.
        """

    async def info(self, name: str | None) -> ModelInfo | None:
        """Return what is known of a model or preset, or ``None``."""

    async def names(self) -> Sequence[str]:
        """Return the names of presets and of all known models that can be used."""


class ModelCommand:
    """Answers ``/model``.

    Args:
        models: the models of the configuration.
        sessions: stores the choice with the session, so that it survives a restart.
    """

    def __init__(self, models: KnownModels, sessions: Sessions) -> None:
        self._models = models
        self._sessions = sessions

    async def answer(self, call: CommandCall, session: Session) -> str:
        """Show the model and the presets, or choose the model of the session."""
        name = call.text
        if not name:
            presets = [f"- {name}: {model}" for name, model in self._models.presets.items()]
            listed = ["", "Presets (/model NAME):", *presets] if presets else []
            return "\n".join([f"Model: {self.current(session)}", *listed])
        if not call.is_owner:
            return "Only the owner can choose the model of a conversation."
        if name == DEFAULT:
            await self._store(session, None)
            return f"This conversation uses the configured model again: {self.current(session)}."
        if len(name) > MAX_NAME_CHARS or not name.isprintable():
            return f"The name of a model is one line of at most {MAX_NAME_CHARS} characters."
        try:
            match = self._models.match(name)
        except NoProvider as error:
            return f"{name} cannot be used: {error}.{await self._suggestion(name)}"
        await self._store(session, name)
        model = self._models.presets.get(name)
        return (
            f"This conversation now uses {name}{f' ({model})' if model else ''}, served by "
            f"{match.row.spec.name}{await self._facts(name)}"
        )

    def current(self, session: Session) -> str:
        """Return the model of a session in words."""
        chosen, default = session.state.metadata.get(KEY), self._models.default
        name = chosen if isinstance(chosen, str) and chosen else default
        if name and (model := self._models.presets.get(name)):
            return f"{name} ({model})"
        try:
            model = self._models.match(name).model
        except NoProvider as error:
            return str(error)
        return name or model

    async def _store(self, session: Session, name: str | None) -> None:
        metadata = {key: value for key, value in session.state.metadata.items() if key != KEY}
        if name is not None:
            metadata[KEY] = name
        await self._sessions.append(session, metadata=metadata)

    async def _facts(self, name: str) -> str:
        """Return the end of the sentence that confirms a choice."""
        info = await self._models.info(name)
        if info is None:
            return f".{await self._suggestion(name)}"
        if info.input_usd is None or info.output_usd is None:
            return "."
        return (
            f", for ${info.input_usd:g} per million tokens of requests and ${info.output_usd:g} "
            "per million of answers."
        )

    async def _suggestion(self, name: str) -> str:
        known = await self._models.names()
        # A gateway lists thousands of names, and comparing spellings takes a while.
        close = [] if name in known else await asyncio.to_thread(nearest, name, known)
        return f" Did you mean {' or '.join(close)}?" if close else ""
