"""GatewayOperations: what an owner does with the gateway, for plugins such as a web page."""

from __future__ import annotations

import asyncio
import hashlib
import os
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, TypeAdapter

from nanobot_core.app.checks import find_problems
from nanobot_core.app.installing import PluginInstaller
from nanobot_core.app.reloading import describe
from nanobot_core.config.editing import change_values
from nanobot_core.config.environment import process_environment, resolve_config_path
from nanobot_core.config.models import Settings
from nanobot_core.config.secrets import MASK, mask_tree
from nanobot_core.config.tree import fold, overlay, parse_path, resolve
from nanobot_core.contracts.operation import Configuration, OpenQuestion, PluginEntry, SettingsForm
from nanobot_core.errors import ConfigInvalid, ConfigProblem, ConfigUnreadable
from nanobot_core.plugins.health import QUIET_STATES

if TYPE_CHECKING:
    from nanobot_core.app.gateway import Gateway
    from nanobot_core.config.loading import LoadedConfig
    from nanobot_core.contracts.bus import DeadLetter
    from nanobot_core.contracts.login import LoginPrompt
    from nanobot_core.contracts.operation import InstallPlan, PluginChange
    from nanobot_core.contracts.provider import ProviderSpec
    from nanobot_core.messages import JsonObject, JsonValue
    from nanobot_core.plugins.catalogue import Catalogue

MAX_LOG_BYTES: Final = 512 * 1024
"""Of the end of the log that is read at once."""
_CHANGED = "it was changed meanwhile; load the settings again and repeat the change"


class GatewayOperations:
    """The `Operations` of a gateway.

    Args:
        gateway: the gateway.
        options: options of the command line before its command.
    """

    def __init__(self, gateway: Gateway, options: Sequence[str]) -> None:
        self._gateway = gateway
        self._installer = PluginInstaller(gateway.bot.loaded.home, options)
        self._configuring = asyncio.Lock()

    def questions(self) -> Sequence[OpenQuestion]:
        """Return the tool calls that wait for an approval, the oldest first."""
        return self._gateway.questions()

    async def answer_question(self, question_id: str, *, allowed: bool, by: str) -> bool:
        """Answer a question; False if it is not open any more."""
        return await self._gateway.approvals.resolve(question_id, allowed=allowed, by=by)

    async def stop_turn(self, session_key: str) -> bool:
        """Stop the turn of a session and the work for it."""
        return await self._gateway.stop_turn(session_key)

    async def dead_letters(self) -> Sequence[DeadLetter]:
        """Return the messages that were given up."""
        return await self._gateway.bus.dead_letters()

    async def retry(self, letter_id: str) -> bool:
        """Try a dead letter again."""
        return await self._gateway.bus.revive(letter_id)

    async def drop(self, letter_id: str) -> bool:
        """Delete a dead letter."""
        return await self._gateway.bus.drop(letter_id)

    def plugins(self) -> Sequence[PluginEntry]:
        """Return the condition of every plugin, without those that the program itself registers."""
        plugins = self._gateway.bot.plugins
        return [
            PluginEntry(
                id=report.id,
                state=report.state,
                is_quiet=report.state in QUIET_STATES,
                reason=report.reason,
                remedy=report.remedy,
                version=report.version,
                distribution=report.distribution,
                summary=report.summary,
                gives=tuple(f"{kind}: {', '.join(each)}" for kind, each in report.gives.items()),
                capabilities=tuple(report.capabilities),
                calls=sum(hook.calls for hook in report.hooks),
                errors=sum(hook.errors + hook.timeouts for hook in report.hooks),
                total_s=sum(hook.total_s for hook in report.hooks),
                blocked_s=report.costs.blocked_s,
                tool_tokens=report.tool_tokens,
            )
            for report in plugins.reports()
            if report.id in plugins.catalogue.selections
        ]

    def providers(self) -> Sequence[ProviderSpec]:
        """Return the providers of models that enabled plugins give."""
        return [row.spec for row in self._gateway.bot.models.rows()]

    async def change_plugin(self, plugin_id: str, change: PluginChange) -> str:
        """Enable, disable or reload a plugin."""
        words = {
            "enable": ["enable", plugin_id],
            "disable": ["disable", plugin_id],
            "disable-cascade": ["disable", plugin_id, "--cascade"],
            "reload": ["reload", plugin_id],
        }
        return await self._gateway.change_plugin(words[change])

    async def sign_in(self, channel: str, prompt: LoginPrompt) -> str:
        """Sign in to the platform of a channel, and start the channel again."""
        return await self._gateway.channels.sign_in(channel, prompt)

    async def plan_install(self, requirement: str) -> InstallPlan:
        """Return what installing a plugin would change."""
        return await self._installer.plan(requirement)

    async def install(self, plan: InstallPlan) -> Sequence[str]:
        """Install what the owner has agreed to, and reload the gateway."""
        return await self._installer.install(plan)

    async def configuration(self) -> Configuration:
        """Return what can be configured, with the values that the file and other sources have."""
        return await asyncio.to_thread(self._read, self._gateway.bot.plugins.catalogue)

    async def configure(self, changes: Mapping[str, JsonValue], revision: str) -> str:
        """Change values in the configuration file, and apply them."""
        async with self._configuring:
            await asyncio.to_thread(partial(self._write, changes, revision))
            return describe(await self._gateway.reloader.reload())

    async def log(self, lines: int) -> Sequence[str]:
        """Return the last lines of the log."""
        file = self._gateway.bot.loaded.home / "logs" / "nanobot.log"
        found = await asyncio.to_thread(_tail, file)
        return found[-lines:] if lines > 0 else []

    def _file(self) -> Path:
        loaded = self._gateway.bot.loaded
        return loaded.path or resolve_config_path(None, process_environment(), loaded.home)

    def _read(self, catalogue: Catalogue) -> Configuration:
        """Read the file, whether or not the gateway uses its content already."""
        file, used = self._file(), self._gateway.bot.loaded
        revision = _revision(file)
        loaded = used.read_again()
        problems = find_problems(loaded, catalogue)  # learns the secrets of sections, too
        for found in loaded.findings:
            if found.level == "error" and not found.path:  # there are no values
                raise ConfigUnreadable(str(file), found.expected, found.line)
        if _revision(file) != revision:
            raise ConfigUnreadable(str(file), _CHANGED)
        return Configuration(
            file=str(file),
            revision=revision,
            forms=tuple(_forms(loaded, catalogue)),
            problems=tuple(problems),
            is_applied=loaded.tree == used.tree,
        )

    def _write(self, changes: Mapping[str, JsonValue], revision: str) -> None:
        """Check the changes, and write them in one step."""
        file, bot = self._file(), self._gateway.bot
        if wrong := [path for path, value in changes.items() if _has_mask(value)]:
            expected = "expected a new secret, not the mask that stands for the present one"
            raise ConfigInvalid([ConfigProblem(path, expected) for path in wrong])
        if _revision(file) != revision:
            raise ConfigUnreadable(str(file), _CHANGED)
        given = {path: value for path, value in changes.items() if value is not None}
        removed = changes.keys() - given.keys()
        loaded = bot.loaded.read_again(given)
        found = find_problems(loaded, bot.plugins.catalogue)
        errors = [each for each in found if each.level == "error"]
        concerned = [each for each in errors if any(_is_within(each.path, at) for at in given)]
        # The gateway refuses a file with other findings of the core, too.
        refused = [each for each in loaded.findings if each.level != "warning"]
        refused = [each for each in refused if not any(_is_within(each.path, at) for at in removed)]
        if concerned or refused:
            raise ConfigInvalid(concerned or refused)
        if _revision(file) != revision:
            raise ConfigUnreadable(str(file), _CHANGED)
        if changes:
            change_values(file, changes)


def _forms(loaded: LoadedConfig, catalogue: Catalogue) -> Iterator[SettingsForm]:
    values = mask_tree(loaded.settings.model_dump(mode="json"), loaded.redactor)
    overlay(values, loaded.masked(), {}, {})

    def form(path: str, owner: str, schema: JsonObject) -> SettingsForm:
        found, value = resolve(values, parse_path(path))
        is_set = len(found) == len(parse_path(path)) and isinstance(value, dict)
        start = f"{fold(path)}."
        return SettingsForm(
            path=path,
            owner=owner,
            schema=schema,
            values=value if is_set and isinstance(value, dict) else {},
            fixed={
                at: origin.source
                for at, origin in loaded.origins.items()
                if fold(at).startswith(start) and origin.source != str(loaded.path)
            },
        )

    for name, info in Settings.model_fields.items():
        if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel):
            schema = TypeAdapter(info.annotation).json_schema(by_alias=False)
            yield form(name, "", schema)
    for selection in catalogue.selections.values():
        manifest = selection.plugin.manifest
        for section in manifest.settings if manifest else ():
            yield form(section.path, selection.plugin.id, section.schema)


def _is_within(problem: str, path: str) -> bool:
    """Whether a problem is about what is set at `path`, or about a section around it."""
    problem, path = fold(problem), fold(path)
    return f"{problem}.".startswith((f"{path}.", f"{path}[")) or f"{path}.".startswith(
        f"{problem}."
    )


def _has_mask(value: JsonValue) -> bool:
    if isinstance(value, dict):
        return any(map(_has_mask, value.values()))
    if isinstance(value, list):
        return any(map(_has_mask, value))
    return isinstance(value, str) and MASK in value


def _revision(file: Path) -> str:
    try:
        return hashlib.sha256(file.read_bytes()).hexdigest()
    except FileNotFoundError:
        return "absent"
    except OSError as error:
        raise ConfigUnreadable(str(file), error.strerror or str(error)) from error


def _tail(file: Path) -> list[str]:
    try:
        with file.open("rb") as opened:
            size = opened.seek(0, os.SEEK_END)
            opened.seek(max(0, size - MAX_LOG_BYTES))
            lines = opened.read().decode("utf-8", errors="replace").splitlines()
    except OSError:
        return []
    return lines[1:] if size > MAX_LOG_BYTES else lines
