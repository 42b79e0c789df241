"""Secrets by value: which are found in a configuration, and texts without them."""

from __future__ import annotations

import base64
import json
import string
import textwrap
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given, strategies as st
from pydantic import BaseModel, SecretStr

from nanobot_core import Nanobot
from nanobot_core.config.loading import LoadedConfig, load_config
from nanobot_core.config.secrets import MASK, MAX_PIECE_CHARS, Redactor
from nanobot_core.config.validation import validate_section
from nanobot_core.plugins.catalogue import PluginFilter

KEY = "sk-proj-A1b2C3d4/E5f6+G7h8=="
CHARACTERS = string.ascii_letters + string.digits + "-_/+=!é\"'\\ "
KEYS = st.text(CHARACTERS, min_size=11, max_size=600).map("K{}".format)  # no path
SECRETS = st.lists(
    KEYS.filter(lambda key: len(set(key)) > 5 and key == key.strip()), min_size=1, max_size=20
)
AROUND = st.text(max_size=40)


def load(folder: Path, text: str, **environ: str) -> LoadedConfig:
    (folder / "config.yaml").write_text(text)
    return load_config(folder / "config.yaml", environ=environ, home=folder)


@given(secrets=SECRETS, before=AROUND, after=AROUND, data=st.data())
def test_no_secret_is_left_in_any_form(
    secrets: list[str], before: str, after: str, data: st.DataObject
) -> None:
    redactor = Redactor(secrets)
    secret = data.draw(st.sampled_from(secrets))
    plain = f"{before}{secret}{after}"
    for form in (str, quote, quote_plus, lambda text: quote(text, safe="")):
        for text in (redactor.redact, redactor.mask):
            shown = text(before + form(secret) + after)
            assert form(secret) not in shown
    for dumped in (json.dumps(plain), json.dumps(plain, ensure_ascii=False), repr(plain)):
        shown = redactor.redact(dumped)
        assert json.dumps(secret)[1:-1] not in shown
        assert secret not in shown
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        encoded = encode(plain.encode("utf-8", "replace"))
        shown = redactor.redact(encoded.decode("ascii"))
        assert MASK in shown
        decoded = base64.b64decode(shown.partition(MASK)[0] + "====", altchars=b"-_")
        assert secret.encode() not in decoded


@given(secrets=SECRETS, text=st.text())
def test_a_text_without_a_secret_stays_as_it_is(secrets: list[str], text: str) -> None:
    redactor = Redactor(secret + "\0" for secret in secrets)
    assert redactor.redact(text.replace("\0", "")) == text.replace("\0", "")


@given(secrets=SECRETS, text=AROUND)
def test_redacting_twice_changes_nothing_more(secrets: list[str], text: str) -> None:
    redactor = Redactor(secrets)
    once = redactor.redact(text.join(secrets))
    assert redactor.redact(once) == once


def test_of_secrets_that_begin_alike_the_longest_is_replaced() -> None:
    redactor = Redactor(["abcd-1234", "abcd-1234-efgh", "abcd-12345", "xabcd-1234"])
    assert redactor.redact("(abcd-1234-efgh)(abcd-1234)(abcd-12345)(xabcd-1234)") == (
        f"({MASK})" * 4
    )


def test_a_long_secret_goes_as_a_whole() -> None:
    key = "".join(chr(ord("!") + number % 90) for number in range(3 * MAX_PIECE_CHARS + 5))
    shown = Redactor([key]).redact(f"<{key}>")
    assert set(shown) == {"<", "*", ">"}


@pytest.mark.parametrize(
    "value", ["1234567", "changeme", "PASSWORD", "/etc/ssl/private/key.pem", "aaaaaaaa", "abababab"]
)
def test_what_is_short_or_no_secret_stays_in_conversations_and_not_in_logs(value: str) -> None:
    redactor = Redactor([value])
    assert redactor.redact(f"see {value}") == f"see {value}"
    assert redactor.mask(f"see {value}") == f"see {MASK}"


def test_what_is_too_short_to_be_recognised_stays_everywhere() -> None:
    assert Redactor(["abc"]).mask("abc") == "abc"
    assert Redactor().redact("abc") == Redactor().mask("abc") == "abc"


def test_secrets_of_a_configuration_are_known_wherever_they_stand(tmp_path: Path) -> None:
    lines = ["BEGIN PRIVATE KEY", "MIIEvQIBADANBgkq", "hkiG9w0BAQEFAASC", "END PRIVATE KEY"]
    lines = [f"-----{line}-----" if " " in line else line for line in lines]
    (tmp_path / "pem").write_text("\n".join(lines))
    text = f"""
        gateway: {{secret: gateway-secret-1}}
        providers:
          one: {{api_key: {KEY}, extra_headers: {{X-Api-Key: header-key-12, X-Title: a title}}}}
          two: {{note: '${{file:pem}}', base: '${{PLAIN}}'}}
        channels:
          x: {{url: 'https://user:pass-word-1@host/', api: 'https://t.me/bot123456:AAdef-GHI_jklm/x'}}
        tools:
          mcp_servers:
            y: {{url: 'https://mcp.host/s/0f8fad5b-d9cb-469f-a165-70867728950e/mcp'}}
            z: {{url: 'https://mcp.host/s/aB3-xK9_pQ2-rT7_zL5/mcp'}}
        """
    environ = {"PLAIN": "https://plain.host/v1", "MY_TOKEN": "env-token-1"}
    loaded = load(tmp_path, textwrap.dedent(text), **environ)
    for secret in (
        "gateway-secret-1",
        KEY,
        "header-key-12",
        "MIIEvQIBADANBgkq",
        "pass-word-1",
        "123456:AAdef-GHI_jklm",
        "0f8fad5b-d9cb-469f-a165-70867728950e",
        "aB3-xK9_pQ2-rT7_zL5",
        "env-token-1",
    ):
        assert loaded.redactor.redact(f"<{secret}>") == f"<{MASK}>", secret
        assert secret not in json.dumps(loaded.masked())
    plain = "a title, https://plain.host/v1, https://mcp.host/s/, -----BEGIN PRIVATE KEY-----"
    assert loaded.redactor.redact(plain) == plain


@pytest.mark.parametrize(
    "address",
    [
        "https://openrouter.ai/api/v1/models/claude-3-5-sonnet-20241022",
        "https://host/models/Meta-Llama-3.1-8B-Instruct/completions",
        "https://host/openai/deployments/gpt-4o-mini-2024-07-18",
        "https://github.com/astral-sh/ruff-pre-commit/tree/v0.12.3",
        "http://127.0.0.1:8080/some/quite/long-path-of-words/v2beta1",
    ],
)
def test_addresses_made_of_words_are_shown(tmp_path: Path, address: str) -> None:
    loaded = load(tmp_path, f"x: {{url: '{address}'}}\n")
    assert loaded.masked() == {"x": {"url": address}}


class Section(BaseModel):
    """A plugin's settings whose key does not sound like a secret."""

    entrance: SecretStr = SecretStr("")
    doors: dict[str, list[SecretStr]] = {}


def test_what_a_plugin_declares_as_secret_is_known_from_then_on(tmp_path: Path) -> None:
    loaded = load(tmp_path, "x: {entrance: open-sesame, doors: {a: [knock-knock-1]}}\n")
    text = "open-sesame knock-knock-1"
    assert loaded.redactor.redact(text) == text
    validate_section(loaded, "x", Section)
    assert loaded.redactor.redact(text) == f"{MASK} {MASK}"
    assert loaded.masked() == {"x": {"entrance": MASK, "doors": {"a": [MASK]}}}


@pytest.mark.anyio
async def test_a_key_that_was_replaced_stays_masked_after_a_reload(tmp_path: Path) -> None:
    old = load(tmp_path, "providers: {x: {api_key: the-old-key-1}}\n")
    new = load(tmp_path, "providers: {x: {api_key: the-new-key-2}}\n")
    async with Nanobot(old, plugin_filter=PluginFilter(safe=True)) as bot:
        await bot.reconfigure(new, bot.plugins.catalogue)
        redacted = bot.loaded.redactor.redact("the-old-key-1 the-new-key-2")
    assert redacted == f"{MASK} {MASK}"
