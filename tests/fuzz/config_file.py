"""Configuration files: read as they are meant, or refused with an error of ours."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import yaml

from nanobot_core.config.editing import set_value
from nanobot_core.config.loading import load_config
from nanobot_core.config.models import ChannelSettings, ProviderSettings
from nanobot_core.config.sections import unknown_sections
from nanobot_core.config.source import parse_source, parse_value
from nanobot_core.config.tree import fold
from nanobot_core.config.validation import validate_section
from nanobot_core.errors import ConfigError
from tests.fuzz.choices import Choices, fresh_folder

TOKENS: Final = (
    b"agents:\n  defaults:\n    ", b"model: ", b"workspace: ", b"tools:\n  ", b"providers:\n  ",
    b"api_key: ", b"${HOME}", b"${file:secret}", b"${NAME:-x}", b"$${", b"*a", b"&a ", b"<<: *a",
    b"? ", b"- ", b"!!float ", b"!!int ", b"|\n  ", b">-\n", b"%YAML 1.1\n---\n", b"...\n",
    b"\xef\xbb\xbf",
    b'{"agents": {"defaults": {', b"\\ud83d\\ude00", b"\\ud800", b"1e999", b".inf", b"9" * 400,
    b"channels:\n  webhook:\n    ", b"allow_from: [", b"owner: ", b"profiles:\n  p:\n    ",
    b"plugins:\n  ", b"enabled: true\n", b"gateway:\n  port: ", b"\xc2\x85", b"\xe2\x80\xa8", b"#",
)  # fmt: skip
_SECRET: Final = "sk-0123456789abcdefghij"


def fuzz_one(data: bytes) -> None:
    """Load a file with any content, look at it, change it and load it again."""
    choices = Choices(data)
    shape = choices.byte()
    is_json = bool(shape & 1)
    variable = choices.take(choices.byte() % 64) if shape & 2 else b""
    content = choices.rest()
    with fresh_folder() as folder:
        path = folder / ("config.json" if is_json else "config.yaml")
        path.write_bytes(content)
        (folder / "secret").write_text(_SECRET, "utf-8")
        if is_json:
            _check_json(content)
        environ = {"HOME": str(folder), "NAME": "value"}
        if shape & 4:
            environ["NANOBOT_PROFILE"] = "p"
        if variable:
            environ["NANOBOT_AGENTS__DEFAULTS__MODEL"] = _text(variable)
        _load(path, environ)
        _edit(path, choices.byte(), _text(variable))


def seeds() -> Iterator[bytes]:
    """Yield files in both forms, with placeholders, aliases and mistakes."""
    yaml_text = (
        b"# mine\nagents:\n  defaults: &d\n    model: gpt-5  # best\n    workspace: ~/work\n"
        b"owner: [telegram:1]\nproviders:\n  openai:\n    api_key: ${file:secret}\n"
        b"channels:\n  webhook:\n    enabled: true\n    allow_from: ['*']\n"
        b"profiles:\n  p:\n    agents:\n      defaults:\n        <<: *d\n"
        b"        model: ${NAME:-x}\n"
        b"tools:\n  approval:\n    - {tool: exec, action: ask}\n"
    )
    json_text = (
        b'{\n  "agents": {"defaults": {"model": "gpt-5", "temperature": 0.5}},\n'
        b'  "providers": {"openai": {"apiKey": "${OPENAI}", "extraHeaders": {"a": "\\ud83d"}}},'
        b'\n  "channels": {"sendProgress": true, "telegram": {"enabled": false}}\n}\n'
    )
    yield b"\x00" + yaml_text
    yield b"\x04" + yaml_text
    yield b"\x06\x03a:b" + yaml_text
    yield b"\x01" + json_text
    yield b"\x03\x02{}" + json_text
    yield b'\x01{"a": "\\ud83d\\ude00"}'
    yield b"\x00a: &a [*a]\n"
    yield b"\x00agents: {defaults: {max_tokens: -1, modle: x}}\n"


def _load(path: Path, environ: dict[str, str]) -> None:
    try:
        loaded = load_config(path, environ=environ, home=path.parent)
    except ConfigError as error:
        reason = str(error)
        assert _SECRET not in reason, "an error shows a secret"
        return
    shown = json.dumps(loaded.masked())
    if _SECRET in loaded.secrets:
        assert _SECRET not in shown, "a secret is shown"
    _ = loaded.workspace, loaded.is_empty, loaded.protected_paths
    list(unknown_sections(loaded, ["channels.webhook", "providers.openai"], lambda: {"x": "y"}))
    for section, model in (
        ("channels.webhook", ChannelSettings),
        ("providers.openai", ProviderSettings),
    ):
        try:
            validate_section(loaded, section, model, owner="x", on_warning=lambda problem: None)
        except ConfigError as error:
            reason = str(error)
            assert _SECRET not in reason, "an error shows a secret"


def _edit(path: Path, choice: int, text: str) -> None:
    key = ("agents.defaults.model", "channels.webhook.enabled", "a", "owner", "profiles.p.x")[
        choice % 5
    ]
    before = path.read_bytes()
    try:
        tree = _tree(path)
        set_value(path, key, parse_value(text))
    except ConfigError:
        assert path.read_bytes() == before or _tree(path) is not None
        return
    after = _tree(path)
    for name, value in tree.items():
        if fold(name) != key.partition(".")[0]:
            assert _same(after[name], value), f"an edit changed '{name}'"


def _tree(path: Path) -> dict[str, object]:
    text = path.read_bytes().decode("utf-8-sig", "replace")
    return dict(parse_source(text, path.name, is_json=path.suffix == ".json").tree)


def _check_json(content: bytes) -> None:
    """What JSON is for every parser means the same here."""
    try:
        text = content.decode("utf-8-sig")
        pairs = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse)
        json.dumps(pairs, ensure_ascii=False).encode()
    except (ValueError, RecursionError):
        return
    if not isinstance(pairs, dict):
        return
    try:
        found = parse_source(text, "config.json", is_json=True).tree
    except ConfigError as error:
        raised = str(error)
        assert "nested" in raised or "levels" in raised or "<<" in raised, raised
        return
    assert _same(found, pairs), f"{found} is not {pairs}"


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(pairs)
    if len(found) != len(pairs):
        msg = "a key twice"
        raise ValueError(msg)
    return found


def _refuse(name: str) -> None:
    raise ValueError(name)


def _same(one: object, other: object) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return type(one) is type(other) and one == other


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace").replace("\0", "")


assert yaml.__with_libyaml__, "the parser that users have"
