"""Starts plugins in a child process, and asks them for their health, before they are kept."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypedDict

from nanobot_core.config.environment import process_environment
from nanobot_core.config.loading import load_config
from nanobot_core.errors import ConfigError, InstallError, PluginError
from nanobot_core.plugins.examine import ANSWER, ask_child, child_environment

HEALTH_LIMIT_S = 10.0


class _Question(TypedDict):
    """What the child is asked.

    Attributes:
        ids: the plugins.
        config: the configuration file, or an empty string for the usual places.
        profile: the overlay, or an empty string.
    """

    ids: Sequence[str]
    config: str
    profile: str


def try_start(ids: Sequence[str], config: Path | None, profile: str | None) -> list[str]:
    """Start plugins as an agent does, ask each for its health, and stop them. Blocks.

    Args:
        ids: the plugins.
        config: the configuration file that the command line names.
        profile: the overlay that the command line names.

    Returns:
        What the owner has to do before a plugin can run, such as a setting; each in a sentence.

    Raises:
        InstallError: one does not start, or is not healthy.
    """
    question: _Question = {
        "ids": list(ids),
        "config": str(config.absolute()) if config else "",
        "profile": profile or "",
    }
    # Unlike an examination, a start may need what the settings name, such as a key.
    environ = {**process_environment(), **child_environment()}
    command = [sys.executable, "-P", "-m", "nanobot_core.install.trial"]
    answer = ask_child(ids[0], command, environ, text=json.dumps(question))
    if "waiting" in answer:
        return [str(sentence) for sentence in answer["waiting"]]
    what = f"plugin '{answer.get('plugin', ids[0])}'"
    raise InstallError(what, str(answer["reason"]), str(answer["remedy"]))


async def _start(question: _Question) -> dict[str, Any]:
    from nanobot_core.app.application import Nanobot  # only the child needs it

    try:
        config = Path(question["config"]) if question["config"] else None
        loaded = load_config(config, profile=question["profile"] or None)
    except ConfigError as error:
        return {"waiting": [f"the configuration has a problem: {error}"]}
    agent = Nanobot(loaded)
    waiting = []
    try:
        for plugin_id in question["ids"]:
            selection = agent.plugins.catalogue.selections.get(plugin_id)
            if selection is not None and not selection.enabled and not selection.wanted:
                continue  # its owner keeps it off
            try:
                active = await agent.plugins.activate(plugin_id)
                async with asyncio.timeout(HEALTH_LIMIT_S):
                    health = await active.check_health()
            except ConfigError as error:
                waiting.append(str(error))
            except PluginError as error:
                remedy = error.remedy
                return {"plugin": plugin_id, "reason": error.reason, "remedy": remedy}
            except TimeoutError:
                reason = f"its check_health did not end within {HEALTH_LIMIT_S:g} s"
                return {"plugin": plugin_id, "reason": reason, "remedy": ""}
            else:
                if not health.ok:
                    reason = f"it started and is not healthy: {health.message}"
                    return {"plugin": plugin_id, "reason": reason, "remedy": ""}
    finally:
        await agent.plugins.stop()
    return {"waiting": waiting}


if __name__ == "__main__":
    answer: str = json.dumps(asyncio.run(_start(json.load(sys.stdin))))
    sys.stdout.write(f"\n{ANSWER}{answer}\n")
