"""Looks for secrets in what the command line prints."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.security.leaks.canaries import PLANTED
from tests.security.leaks.probe import Probe, commands
from tests.security.leaks.world import GatewayHome

LEVELS = ("TRACE", "DEBUG", "INFO", "WARNING", "ERROR")
_CRASH = """
import sys
from nanobot_core.cli import root
from nanobot_core.config.loading import LoadedConfig
def crash(loaded):
    raise RuntimeError(f"cannot use {loaded.tree}")
LoadedConfig.masked = crash
sys.argv = ["nanobot", *sys.argv[1:]]
root.run()
"""
_TATTLER = """
import json, os, pathlib, sys
from nanobot_core import CliGroup, on
pathlib.Path(%r, f"{os.getpid()}.txt").write_text(f"{sys.argv} {json.dumps(dict(os.environ))}")
@on.contribute_cli
def contribute_cli():
    return [CliGroup("tattle", "Tattle.", "tattler:app")]
"""

SHOWN = {
    "config show --json": "custom/obedient",
    "config get providers.groq.extra_headers --json": "Helicone-Auth",
    "config get tools --json": "ssrf_whitelist",
    "config get gateway.secret": "***",
    "config check --json": "{",
    "config schema": "properties",
    "doctor --json": "bubblewrap",
    "plugins list --json": "nanobot-openai",
    "plugins inspect telegram --json": "telegram",
    "plugins why webhook": "webhook",
    "plugins status --json": "openai",
    "status": "obedient",
    "channels status --json": "telegram",
    "gateway status --json": "webhook",
    "gateway logs": "level",
    "explain setting providers.custom.api_key --json": "config.yaml",
    "explain tool web_search --json": "web@",
    "deadletters list --json": "refused",
    "usage --json": "obedient",
    "--debug channels login telegram": "token",
}
SHOWN_TOO = {
    "config show": "custom/obedient",
    "config get providers": "extra_headers",
    "config get providers.deepseek.proxy": "@127.0.0.1",
    "config get tools.mcp_servers": "tattler",
    "config get channels": "telegram",
    "config get channels.webhook.callback_url": "/hook/",
    "config get profiles": "work",
    "config check": "",
    "--debug config check": "",
    "doctor": "model",
    "--debug doctor": "model",
    "plugins inspect mcp": "mcp",
    "plugins order finalize_content": "usage",
    "providers list --json": "custom",
    "providers explain groq/any": "groq",
    "status --json": "obedient",
    "gateway install-service --show": "gateway",
    "explain setting providers.groq --json": "extra_headers",
    "explain setting tools.mcp_servers": "tattler",
    "explain setting channels.webhook.callback_url": "webhook@",
    "explain setting providers.mistral.api_key": "NANOBOT_PROVIDERS__MISTRAL__API_KEY",
    "explain hook finalize_content": "usage",
    "sessions list --json": "[",
    "mcp list --json": "tattler",
    "--profile work config show": "work",
    "pairing list": "",
}
"""Close to the others; for the long form."""


def _completion(world: GatewayHome) -> str:
    seen = [
        world.nanobot(
            _NANOBOT_COMPLETE="complete_bash",
            COMP_WORDS=words,
            COMP_CWORD=str(len(words.split())),
        )
        for words in ("nanobot con", "nanobot config get ", "nanobot plugins enable ")
    ]
    return "\n".join(seen)


def _misplaced(world: GatewayHome) -> str:
    """Keys where numbers, mappings and names belong, shown by each command that reads the file."""
    home = world.other()
    original = (home.path / "config.yaml").read_text()
    key = PLANTED["key in the file"]
    seen = []
    for line in (
        f"gateway: {{port: {key}}}",
        f"agents: {key}",
        f"providers: {{custom: {{timeout_s: {key}}}}}",
        f"logging: {{level: {key}}}",
        f"channels: {{webhook: {{secret: {key}}}}}",
        f"tools: {{exec: {{sandbox: {key}}}}}",
        f"owner: {{a: {key}}}",
    ):
        home.write(line)
        seen += [home.nanobot("config", "check"), home.nanobot("status")]
    home.write(original)
    return "\n".join(seen)


def _unparsable(world: GatewayHome) -> str:
    home = world.other()
    key, seen = PLANTED["key in the file"], []
    for text in (
        f'providers: {{custom: {{api_key: "{key}}}}}\n',
        f"providers:\n  custom:\n    api_key: {key}: {key}\n  - {key}\n",
        f"providers: [{key}\n",
        f"a: *{key}\n",
        f"a: !{key} 1\n",
        f"a: &{key} 1\nb: {{a: 1, a: {key}}}\n",
    ):
        home.write(text)
        seen += [home.nanobot("config", "check"), home.nanobot("--debug", "config", "show")]
    return "\n".join(seen)


def _set_wrongly(world: GatewayHome) -> str:
    home, key = world.other(), PLANTED["key in the file"]
    return "\n".join(
        home.nanobot("config", "set", name, key)
        for name in ("gateway.port", "providers.custom.timeout_s", "logging.level")
    )


def _examined(world: GatewayHome) -> str:
    """A plugin that nothing describes is imported in a child to be described."""
    told = world.folder / "tattled"
    told.mkdir(exist_ok=True)
    plugin = world.folder / "tattler.py"
    plugin.write_text(_TATTLER % str(told))
    home = world.other(plugins={"policy": "direct", "local": [str(plugin)], "enabled": []})
    home.nanobot("explain", "tool", "tattle")
    return "\n".join(path.read_text() for path in told.iterdir())


def _agent(world: GatewayHome, models: tuple[str, ...], *options: str, **sections: object) -> str:
    home = world.other(**sections)
    seen = []
    for model in models:
        home.nanobot("config", "set", "agents.defaults.model", model)
        seen.append(home.nanobot(*options, "agent", "-m", "say hello"))
    return "\n".join([*seen, home.written("logs/*", "workspace/**/*").decode(errors="replace")])


def _logged(level: str, *, as_json: bool) -> Probe:
    def look(world: GatewayHome) -> str:
        home = world.other(logging={"level": level, "json": as_json})
        shown = home.python("-m", "tests.security.leaks.speaker", level)
        return shown + home.written("logs/*").decode()

    kind = "JSON" if as_json else "text"
    is_long = level in {"DEBUG", "INFO", "WARNING", "ERROR"}
    return Probe(f"everything logged at {level} as {kind}", look, "the end", is_long=is_long)


def _open_files(world: GatewayHome) -> str:
    """Files that hold keys and that others than the owner may read, after changes."""
    home = world.other()
    home.nanobot("config", "set", "agents.defaults.model", "groq/any")
    home.nanobot("plugins", "disable", "usage")
    files = [path for path in home.path.rglob("*") if path.is_file()]
    found = [path for path in files if path.stat().st_mode & 0o077]
    kept: list[Path] = [path for path in found if path.name not in {"model.key", ".env"}]
    return "looked\n" + "\n".join(path.read_text(errors="replace") for path in kept)


PROBES = (
    *commands(SHOWN),
    *(replace(probe, is_long=True) for probe in commands(SHOWN_TOO)),
    Probe(
        "nanobot mcp tools",
        lambda world: world.nanobot("mcp", "tools", "--json"),
        "mcp_tattler_tell",
        # The server itself shows its key, as the default of an argument.
        ("variable of an MCP server",),
    ),
    Probe("shell completion", _completion, "config"),
    Probe("errors about keys in the wrong place", _misplaced, "gateway.port", is_long=True),
    Probe("errors about a file that cannot be parsed", _unparsable, "config.yaml"),
    Probe("config set with a key in the wrong place", _set_wrongly, "gateway.port"),
    Probe("child that examines a plugin", _examined, "PATH"),
    Probe(
        "crash of nanobot itself",
        lambda world: world.python("-c", _CRASH, "config", "show"),
        "RuntimeError",
    ),
    Probe(
        "crash of nanobot itself with --debug",
        lambda world: world.python("-c", _CRASH, "--debug", "config", "show"),
        "Traceback",
    ),
    Probe(
        "model that fails, at the terminal", lambda world: _agent(world, ("groq/any",)), "HTTP 400"
    ),
    Probe(
        "model that fails, with --debug and everything logged",
        lambda world: _agent(
            world,
            ("groq/any", "deepseek/any"),
            "--debug",
            logging={"level": "TRACE", "json": False},
        ),
        "HTTP 400",
    ),
    *(_logged(level, as_json=as_json) for level in LEVELS for as_json in (False, True)),
    Probe("files that others may read", _open_files, "looked"),
)
