"""The provider of a model is found step by step, and every step is reported."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime

import pytest
from hypothesis import given, strategies as st

from nanobot_core import NoProvider, ProviderSpec, SignIn
from nanobot_core.cli.login import describe_sign_in
from nanobot_core.providers.match import ProviderMatch, ProviderRow, match_provider, wire_model

SPECS = {
    spec.name: spec
    for spec in (
        ProviderSpec(
            name="openai", factory="f", keywords=("gpt",), api_key_env=("OPENAI_API_KEY",)
        ),
        ProviderSpec(name="anthropic", factory="f", keywords=("claude",)),
        ProviderSpec(
            name="openrouter",
            factory="f",
            is_gateway=True,
            key_prefixes=("sk-or-",),
            add_prefix="openrouter/",
        ),
        ProviderSpec(
            name="relay", factory="f", is_gateway=True, base_keywords=("relay",), strip_prefix=True
        ),
        ProviderSpec(name="local_llm", factory="f", needs_key=False, is_local=True),
        ProviderSpec(name="login", factory="f", keywords=("gpt",), login="l", needs_key=False),
        ProviderSpec(name="login_gate", factory="f", login="l", is_gateway=True),
        ProviderSpec(name="offline", factory="f", keywords=("gpt",), needs_key=False, demo=True),
    )
}
Access = tuple[str, str]
"""Key and base URL of a provider."""
KEY: Access = ("k", "")
BASE: Access = ("", "http://local.example")


def find(
    model: str | None,
    *,
    forced: str | None = None,
    access: Mapping[str, Access] | None = None,
    only: tuple[str, ...] = tuple(SPECS),
) -> ProviderMatch:
    known = access or {}
    rows = [
        ProviderRow(SPECS[name], f"nanobot-{name}", *known.get(name, ("", ""))) for name in only
    ]
    return match_provider(model, forced, rows)


@pytest.mark.parametrize(
    ("model", "forced", "access", "provider", "step"),
    [
        ("gpt-5", "anthropic", {}, "anthropic", "agents.defaults.provider is 'anthropic'"),
        ("anthropic/x", None, {"anthropic": KEY}, "anthropic", "begins with 'anthropic/'"),
        ("local-llm/x", None, {"local_llm": BASE}, "local_llm", "begins"),
        ("claude-9", None, {"anthropic": KEY}, "anthropic", "'claude' in the model name"),
        ("llama", None, {"local_llm": BASE}, "local_llm", "base URL"),
        ("llama", None, {"relay": KEY}, "relay", "gateway 'relay' has a key"),
        (
            "llama",
            None,
            {"relay": KEY, "openrouter": KEY},
            "openrouter",
            "gateway 'openrouter'",
        ),
        (
            "llama",
            None,
            {
                "openrouter": KEY,
                "relay": ("k", "https://relay.example"),
            },
            "relay",
            "gateway 'relay'",
        ),
        (
            "llama",
            None,
            {"relay": KEY, "openrouter": ("sk-or-1", "")},
            "openrouter",
            "gateway 'openrouter'",
        ),
        (None, None, {}, "offline", "no model is configured, so 'offline' answers"),
        ("login/gpt", None, {"login": BASE}, "login", "begins with"),
        ("offline/x", None, {}, "offline", "begins with 'offline/'"),
    ],
)
def test_the_first_step_that_fits_decides(
    model: str | None,
    forced: str | None,
    access: dict[str, Access],
    provider: str,
    step: str,
) -> None:
    found = find(model, forced=forced, access=access)

    assert found.row.spec.name == provider
    assert found.row.plugin == f"nanobot-{provider}"
    assert step in found.steps[-1]


def test_every_step_that_was_tried_is_told() -> None:
    found = find("openai/gpt-5", access={"relay": KEY})

    assert found.steps == (
        "no provider is set in agents.defaults.provider",
        "the model name begins with 'openai/', but 'openai' has no key",
        "'gpt' belongs to 'openai', which has no key",
        "no configured provider has a keyword in the model name",
        "no local provider has a base URL",
        "gateway 'relay' has a key",
    )


@pytest.mark.parametrize(
    ("model", "forced", "only", "remedy"),
    [
        ("gpt-5", None, ("openai",), "set providers.openai.api_key or the environment variable"),
        ("anthropic/x", None, ("anthropic",), "set providers.anthropic.api_key"),
        ("local_llm/x", None, ("local_llm",), "set providers.local_llm.api_base"),
        ("x", None, ("openai", "offline"), "use the provider 'offline'"),
        ("x", None, ("openai",), "nanobot onboard"),
        ("x", None, (), "pip install 'nanobot-core[standard]'"),
        (None, None, (), "pip install 'nanobot-core[standard]'"),
        ("x", "openia", ("openai",), "did you mean openai?"),
        ("x", "zzz", ("openai",), "install its plugin"),
    ],
)
def test_what_to_set_is_told_when_nothing_fits(
    model: str | None, forced: str | None, only: tuple[str, ...], remedy: str
) -> None:
    with pytest.raises(NoProvider, match=re.escape(remedy)):
        find(model, forced=forced, only=only)


@pytest.mark.parametrize(("model", "forced"), [("x", "openai"), ("openai/x", None)])
def test_a_provider_that_two_plugins_claim_is_refused_when_it_is_asked_for(
    model: str, forced: str | None
) -> None:
    rows = [ProviderRow(SPECS["openai"], "b", "k"), ProviderRow(SPECS["openai"], "a", "k")]

    with pytest.raises(NoProvider, match="claimed by plugins 'a' and 'b'; disable one of them"):
        match_provider(model, forced, rows)


def test_a_contested_provider_is_never_chosen_by_itself() -> None:
    rows = [
        ProviderRow(SPECS["openai"], "a", "k"),
        ProviderRow(SPECS["openai"], "b", "k"),
        ProviderRow(SPECS["relay"], "c", "k"),
    ]

    assert match_provider("gpt-5", None, rows).row.plugin == "c"


access_rows = st.tuples(
    st.sampled_from(["", "k", "sk-or-1"]),
    st.sampled_from(["", "http://local.example", "https://relay.example"]),
)


@given(
    model=st.sampled_from(["gpt-5", "claude-9", "llama", "openai/gpt", "vendor/x", "x/y/z"]),
    access=st.dictionaries(st.sampled_from(list(SPECS)), access_rows),
    only=st.lists(st.sampled_from(list(SPECS)), unique=True),
)
def test_nobody_is_logged_in_and_no_stand_in_answers_unless_it_is_asked_for(
    model: str, access: dict[str, Access], only: list[str]
) -> None:
    try:
        found = find(model, access=access, only=tuple(only))
    except NoProvider:
        return

    spec = found.row.spec
    assert not spec.login
    assert not spec.demo
    assert found.model


@pytest.mark.parametrize(
    ("provider", "model", "sent"),
    [
        ("openai", "openai/gpt-5", "gpt-5"),
        ("openai", "gpt-5", "gpt-5"),
        ("local_llm", "local-llm/x", "x"),
        ("openrouter", "vendor/x", "openrouter/vendor/x"),
        ("openrouter", "openrouter/vendor/x", "openrouter/vendor/x"),
        ("relay", "vendor/x", "x"),
    ],
)
def test_the_model_is_sent_by_the_name_that_the_service_knows(
    provider: str, model: str, sent: str
) -> None:
    assert wire_model(SPECS[provider], model) == sent


SIGNED_IN = ProviderSpec(name="a_plan", factory="f", login="l", needs_key=False)
UNTIL = datetime(2030, 1, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("sign_in", "condition"),
    [
        (None, "no, run nanobot providers login a-plan"),
        (SignIn(problem="it is damaged"), "no, it is damaged; then run nanobot providers login a-"),
        (SignIn(), "yes, signed in"),
        (
            SignIn(account="me", ends_at=UNTIL),
            f"yes, signed in as me until {UNTIL.astimezone():%Y-}",
        ),
    ],
)
def test_a_provider_with_a_sign_in_is_used_only_if_it_is_named(
    sign_in: SignIn | None, condition: str
) -> None:
    row = ProviderRow(SIGNED_IN, "plans", sign_in=sign_in)
    openai = ProviderRow(SPECS["openai"], "openai", *KEY)
    # Without a sign-in, its own error names the command; another provider would cost money.
    for model, forced in (("a-plan/gpt-5", None), ("gpt-5", "a-plan"), ("gpt-5", "a_plan")):
        assert match_provider(model, forced, [openai, row]).row is row

    assert match_provider("gpt-5", None, [openai, row]).row is openai
    assert bool(row.lacks) is condition.startswith("no, ")
    assert describe_sign_in(row).startswith(condition)
