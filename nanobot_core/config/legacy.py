"""Configurations of the original nanobot: moves values to the keys that this core reads.

The original writes all its keys into the file. A value with a counterpart here moves to that key.
A value without one is left out, and a warning gives the reason.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import product
from typing import TypeGuard

from nanobot_core.config.tree import (
    Origin,
    Origins,
    nest,
    overlay,
    parse_path,
    render_path,
    resolve,
)
from nanobot_core.errors import ConfigProblem
from nanobot_core.messages import JsonObject, JsonValue

_BY_TOKENS = "sessions are shortened by tokens, see agents.defaults.context_window_tokens"
_NO_WEBHOOK = "the long connection of Feishu needs none"
_ONE_APP = "the channel has one app"
_NO_REMOTE_MEDIA = "the channel sends local files only"
_MEDIA = "received files are kept and limited as those of all channels"
_TERMINAL = "the terminal has no such setting"
RETIRED_KEYS = {
    "agents.defaults.max_messages": _BY_TOKENS,
    "agents.defaults.memory_window": _BY_TOKENS,
    "agents.defaults.context_block_limit": _BY_TOKENS,
    "agents.defaults.consolidation_ratio": _BY_TOKENS,
    "agents.defaults.idle_compact_after_minutes": _BY_TOKENS,
    "agents.defaults.idle_compact_check_interval_seconds": _BY_TOKENS,
    "agents.defaults.session_ttl_minutes": _BY_TOKENS,
    "agents.defaults.dream": "set memory.dream of nanobot-memory instead",
    "agents.defaults.max_concurrent_subagents": "there are no subagents",
    "agents.defaults.fail_on_tool_error": "the model sees the error of a tool and continues",
    "agents.defaults.provider_retry_mode": "requests are retried as the service's answer allows",
    "agents.defaults.tool_hint_max_length": _TERMINAL,
    "agents.defaults.bot_name": _TERMINAL,
    "agents.defaults.bot_icon": _TERMINAL,
    "agents.defaults.timezone_mode": "agents.defaults.timezone alone decides",
    "agents.defaults.unified_session": "each chat has its own session",
    "channels.dingtalk.allow_remote_media_redirects": _NO_REMOTE_MEDIA,
    "channels.dingtalk.remote_media_redirect_allowed_hosts": _NO_REMOTE_MEDIA,
    "channels.feishu.encrypt_key": _NO_WEBHOOK,
    "channels.feishu.verification_token": _NO_WEBHOOK,
    "channels.feishu.done_emoji": "the answer itself shows that the work is done",
    "channels.feishu.tool_hint_prefix": "tool hints have no prefix",
    "channels.feishu.instance_id": _ONE_APP,
    "channels.feishu.name": _ONE_APP,
    "channels.feishu.identity_key": _ONE_APP,
    "channels.qq.ack_message": "QQ takes only five answers to each message",
    "channels.qq.media_dir": _MEDIA,
    "channels.qq.download_chunk_size": _MEDIA,
    "channels.qq.download_max_bytes": _MEDIA,
    "channels.send_max_retries": "messages are sent again as the platform's answer allows",
    "channels.show_reasoning": "chats get no reasoning",
    "channels.extract_document_text": "the model reads documents with read_file",
    "gateway.heartbeat.keep_recent_messages": "each beat begins with an empty session",
    "gateway.restart_mode": "systemd or launchd restarts the gateway, see install-service",
    "tools.my": "there is no tool with which the agent inspects itself",
    "tools.my_enabled": "there is no tool with which the agent inspects itself",
    "tools.my_set": "there is no tool with which the agent inspects itself",
    "tools.max_session_messages_per_minute": "set rate_limit of a channel instead",
    "tools.webui_allow_local_service_access": "there is no web interface",
    "tools.webui_allow_remote_package_install": "there is no web interface",
    "tools.allow_local_preview_access": "there is no web interface",
    "tools.exec.path_prepend": "folders are added behind PATH only; use tools.exec.path_append",
    "tools.web.fetch.use_jina_reader": "pages are read without a service in between",
    "transcription.max_duration_sec": "recordings are limited by transcription.max_bytes",
}
"""Keys of the original without a counterpart, with the reason."""

_MOVED = {
    "agents.defaults.disabled_skills": "skills.disabled",
    "agents.defaults.max_tool_result_chars": "tools.max_tool_result_chars",
    "channels.transcription_provider": "transcription.provider",
    "channels.transcription_language": "transcription.language",
    "tools.exec.restrict_to_workspace": "tools.restrict_to_workspace",
}
_SWITCHES = {
    "tools.exec.enable": ("exec", "exec_session"),
    "tools.file.enable": (
        *("read_file", "write_file", "edit_file", "apply_patch"),
        *("list_dir", "glob", "grep", "notebook_edit"),
    ),
}
"""Switch to the tools that ``false`` denies."""
_CHANNELS = (
    "dingtalk discord email feishu matrix mattermost mochat msteams napcat qq signal slack "
    "websocket wecom weixin whatsapp"
)
_PROVIDERS = (
    "ant_ling assemblyai atomic_chat azure_openai bedrock byteplus byteplus_coding_plan "
    "edenai github_copilot huggingface kimi_coding lm_studio longcat minimax_anthropic modelscope "
    "novita nvidia openai_codex opencode opencode_go opencode_zen orcarouter ovms qianfan skywork "
    "stepfun volcengine_coding_plan xai_grok xiaomi_mimo"
)
SECTIONS = frozenset(
    (
        *(f"channels.{name}" for name in _CHANNELS.split()),
        *(f"providers.{name}" for name in _PROVIDERS.split()),
        *("api", "gateway.heartbeat", "tools.cli_apps", "tools.image_generation"),
    )
)
"""Sections of the original that may have no plugin here."""

_TRANSCRIBERS = ("groq", "openai", "custom")
_ANY_ADDRESS = ("0.0.0.0", "::")  # noqa: S104 - compared, not listened on
_OPENROUTER = "sk-or-"
_LONGEST_COMMAND_S = 600
_EMPTY: tuple[JsonValue, ...] = (None, "", [], {})
_EFFORTS = {
    "minimal": "low",
    "minimum": "low",
    "xhigh": "high",
    "max": "high",
    "adaptive": None,
    "": None,
}


def none_if_empty(value: object) -> object:
    """Read the original's empty texts as no value."""
    return None if value == "" else value


def none_if_automatic(value: object) -> object:
    """Read the original's ``provider: auto`` as no choice."""
    return None if value in ("", "auto") else value


def known_effort(value: object) -> object:
    """Read the original's other reasoning efforts as the nearest that all services support."""
    return _EFFORTS.get(value, value) if isinstance(value, str) else value


def migrate(tree: JsonObject, origins: Origins) -> list[ConfigProblem]:
    """Move values of the original to the keys that this core reads, in place.

    Args:
        tree: the content of a file, placeholders not expanded.
        origins: key path to origin, changed accordingly.

    Returns:
        A warning for each value that has no counterpart.
    """
    original = _Original(tree, origins)
    original.convert_presets()
    for old, new in _MOVED.items():
        original.move(old, new)
    original.convert_tools()
    original.convert_transcription()
    for path, reason in RETIRED_KEYS.items():
        original.retire(path, reason)
    return original.warnings


def migrate_expanded(tree: JsonObject, origins: Origins) -> list[ConfigProblem]:
    """Do the same for values that depend on placeholders and on all layers."""
    original = _Original(tree, origins)
    original.recognise_openrouter()
    original.close_gateway()
    return original.warnings


class _Original:
    """A tree with keys of the original, and warnings about values that cannot be moved."""

    def __init__(self, tree: JsonObject, origins: Origins) -> None:
        self.warnings: list[ConfigProblem] = []
        self._tree, self._origins = tree, origins

    def get(self, path: str) -> JsonValue:
        """Return the value at `path`, or ``None``."""
        steps = parse_path(path)
        found, value = resolve(self._tree, steps)
        return value if len(found) == len(steps) else None

    def take(self, path: str) -> tuple[JsonValue, Origin | None]:
        """Remove the value at `path`, and return it with its origin."""
        steps = parse_path(path)
        found, value = resolve(self._tree, steps)
        if len(found) < len(steps):
            return None, None
        _, holder = resolve(self._tree, found[:-1])
        if isinstance(holder, dict):
            del holder[str(found[-1])]
        return value, self._origins.get(render_path(found))

    def put(self, path: str, value: JsonValue, origin: Origin | None) -> None:
        """Set the value at `path`; missing mappings around it are created."""
        steps = parse_path(path)
        found = {render_path(steps): origin} if origin else {}
        overlay(self._tree, nest(steps, value), self._origins, found)

    def move(self, old: str, new: str) -> None:
        """Move a value, unless the new key has one."""
        value, origin = self.take(old)
        if value not in _EMPTY and self.get(new) is None:
            self.put(new, value, origin)

    def extend(self, path: str, items: Sequence[str], origin: Origin | None) -> None:
        """Add `items` to a list."""
        former = self.get(path)
        kept = former if isinstance(former, list) else []
        self.put(path, [*kept, *(item for item in items if item not in kept)], origin)

    def retire(self, path: str, reason: str) -> None:
        """Remove a value without a counterpart; an empty value causes no warning."""
        value, origin = self.take(path)
        if value not in _EMPTY:
            self.warn(path, "this setting of the original has no effect", origin, reason)

    def warn(self, path: str, expected: str, origin: Origin | None, remedy: str) -> None:
        """Add a warning."""
        place = origin or Origin("configuration")
        self.warnings.append(
            ConfigProblem(path, expected, place.source, place.line, None, remedy, "warning")
        )

    def convert_presets(self) -> None:
        """Turn model presets into entries of ``models``, and the selected one into the model."""
        chosen, origin = self.take("agents.defaults.model_preset")
        found, place = self.take("model_presets")
        presets = found if isinstance(found, dict) else {}
        for name, preset in presets.items():
            if isinstance(preset, dict):
                kept = {key: value for key, value in preset.items() if key != "label"}
                self.put("models", {name: kept}, place)
        if chosen in presets:
            self.put("agents.defaults.model", chosen, origin)
        fallback = self.get("agents.defaults.fallback_models")
        if isinstance(fallback, list):
            fallback[:] = map(_model_of, fallback)

    def convert_tools(self) -> None:
        """Turn switches into denied tools, and add values that the original derives."""
        for path, names in _SWITCHES.items():
            value, origin = self.take(path)
            if value is False:
                self.extend("tools.deny", names, origin)
        self.take("tools.file")
        if self.get("tools.exec.sandbox") == "":
            self.take("tools.exec.sandbox")
        self.convert_patterns("tools.exec.denyPatterns", "deny_patterns")
        self.convert_patterns("tools.exec.allowPatterns", "allow_patterns")
        if self.get("tools.exec.timeout") == 0:
            _, origin = self.take("tools.exec.timeout")
            self.put("tools.exec.timeout", _LONGEST_COMMAND_S, origin)
            expected = f"a command runs for at most {_LONGEST_COMMAND_S} seconds"
            self.warn("tools.exec.timeout", expected, origin, "0 is read as this limit")
        if self.get("tools.web.search.api_key") and not self.get("tools.web.search.provider"):
            self.put("tools.web.search.provider", "brave", None)
        servers = self.get("tools.mcp_servers")
        for server in servers.values() if isinstance(servers, dict) else ():
            for key in list(server) if isinstance(server, dict) else ():
                if isinstance(server, dict) and server[key] in ("", None):
                    del server[key]

    def convert_patterns(self, path: str, ours: str) -> None:
        """Turn regular expressions of a JSON file, as the original writes them, into globs."""
        patterns = self.get(path)
        found, _ = resolve(self._tree, parse_path(path))
        origin = self._origins.get(render_path(found))
        is_original = render_path(found) == path and origin and origin.source.endswith(".json")
        if not is_original or not isinstance(patterns, list):
            return
        globs: list[JsonValue] = []
        for pattern in patterns:
            try:
                globs += globs_of(str(pattern))
            except ValueError:
                expected = f"no glob means the same as the regular expression {pattern!r}"
                remedy = "exec and exec_session are denied; write globs under"
                self.warn(path, expected, origin, f"{remedy} {ours} and delete this key")
                self.extend("tools.deny", _SWITCHES["tools.exec.enable"], origin)
        self.put(path, globs, origin)

    def convert_transcription(self) -> None:
        """Give transcription the key of its provider, and keep it disabled if it was."""
        enabled, origin = self.take("transcription.enabled")
        megabytes, at = self.take("transcription.max_upload_mb")
        if isinstance(megabytes, int):
            self.put("transcription.max_bytes", megabytes * 1_000_000, at)
        if (provider := self.get("transcription.provider")) is None:
            provider = _TRANSCRIBERS[0]
        if provider not in _TRANSCRIBERS:
            _, origin = self.take("transcription.provider")
            expected = f"expected one of {', '.join(_TRANSCRIBERS)}"
            remedy = "recordings are not transcribed until you choose one of them"
            self.warn("transcription.provider", expected, origin, remedy)
            enabled = False
        if enabled is False:
            self.extend("plugins.disabled", ["transcription"], origin)
        elif not (self.get("transcription.api_key") or self.get("transcription.api_base")):
            for key in ("api_key", "api_base"):
                if value := self.get(f"providers.{provider}.{key}"):
                    self.put(f"transcription.{key}", value, None)

    def recognise_openrouter(self) -> None:
        """Move an OpenRouter key that is in the section of another provider."""
        sections = self.get("providers")
        if not isinstance(sections, dict) or self.get("providers.openrouter.api_key"):
            return
        for name in list(sections):
            key = self.get(f"providers.{name}.api_key")
            if _is_text(key) and key.startswith(_OPENROUTER) and not self._has_base(name):
                _, origin = self.take(f"providers.{name}.api_key")
                self.put("providers.openrouter.api_key", key, origin)
                expected = f"a key that begins with '{_OPENROUTER}' belongs to OpenRouter"
                remedy = "it is used for providers.openrouter; move it there"
                self.warn(f"providers.{name}.api_key", expected, origin, remedy)
                return

    def _has_base(self, provider: str) -> bool:
        return bool(self.get(f"providers.{provider}.api_base"))

    def close_gateway(self) -> None:
        """Listen on this machine only, unless a secret is configured."""
        if self.get("gateway.host") in _ANY_ADDRESS and not self.get("gateway.secret"):
            host, origin = self.take("gateway.host")
            expected = f"'{host}' lets other machines connect, and gateway.secret is not set"
            self.warn("gateway.host", expected, origin, "127.0.0.1 is used until you set a secret")


def _is_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str)


def _model_of(candidate: JsonValue) -> JsonValue:
    """Return the name of a fallback model, with its provider as a prefix if it has one."""
    if not isinstance(candidate, dict):
        return candidate
    model, provider = candidate.get("model"), candidate.get("provider")
    if _is_text(model) and _is_text(provider) and provider not in ("", "auto"):
        return model if model.startswith(f"{provider}/") else f"{provider}/{model}"
    return model


_TOKEN = re.compile(
    r"\\s\+? | \ \+? | \.[*+] | \\[dw] | \[\^?[\w./-]+\] | \\[^\w\s] | [^\\[\](){}*+?|^$\s]",
    re.VERBOSE,
)
_GLOBS = {r"\d": "[0-9]", r"\w": "[a-z0-9_]", ".*": "*", ".+": "?*", ".": "?"}
_SPANNING = frozenset("|&;<>\n")
"""Separators of a shell. Globs are compared with one command, the original's with the line."""


def globs_of(expression: str) -> Iterator[str]:
    """Yield globs that match the same commands as a regular expression that is searched in them.

    Raises:
        ValueError: there are none, or the expression takes more than the usual forms.
    """
    for branch in expression.split("|"):
        body = branch.removeprefix("^").removesuffix("$")
        inner = body.removeprefix(r"\b").removesuffix(r"\b")
        tokens = _TOKEN.findall(inner)
        if not inner or "".join(tokens) != inner or branch.endswith(r"\$"):
            raise ValueError(expression)
        glob = "".join(map(_glob_of, tokens))
        before = ["", "*[!a-z0-9_]"] if body.startswith(r"\b") else ["*"]
        after = ["", "[!a-z0-9_]*"] if body.endswith(r"\b") else ["*"]
        for start, end in product(
            [""] if branch.startswith("^") else before, [""] if branch.endswith("$") else after
        ):
            yield start + glob + end


def _glob_of(token: str) -> str:
    """Return the glob for one part of a regular expression."""
    if token in _GLOBS:
        return _GLOBS[token]
    if token.startswith((" ", r"\s")):
        return " "
    if token.startswith("["):
        return token.replace("[^", "[!")
    character = token[-1]
    if character in _SPANNING:
        raise ValueError(token)
    return f"[{character}]" if character in "*?[.$" else character
