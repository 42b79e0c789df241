"""The configuration of a backup has no secrets, and is the same otherwise."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given, strategies as st

from nanobot_core.config.secrets import Redactor
from nanobot_core.moving.redacted import without_secrets

SECRETS = st.text("abcXYZ0189-_'\"\\: #{}", min_size=8, max_size=40).map(str.strip)
NAMES = st.text("abcdef", min_size=1, max_size=5)


@given(
    secrets=st.lists(SECRETS.filter(lambda text: len(text) >= 8), min_size=1, max_size=4),
    plain=st.dictionaries(NAMES, st.one_of(st.integers(), st.text("ghij \n", max_size=8))),
    style=st.sampled_from(["block", "flow", "json"]),
)
def test_no_secret_stays_and_nothing_else_changes(
    secrets: list[str], plain: dict[str, int | str], style: str
) -> None:
    tree = {"plain": plain, "list": [{"api_key": secret} for secret in secrets]}
    tree["channels"] = {"telegram": {"token": secrets[0], "enabled": True, "proxy": None}}
    if style == "json":
        text = json.dumps(tree, indent=2)
    else:
        text = yaml.safe_dump(tree, default_flow_style=style == "flow", sort_keys=False)
    found = without_secrets(text, Redactor(secrets))

    assert found is not None
    result, names = found
    expected = {f"list[{number}].api_key" for number in range(len(secrets))}
    assert set(names) == expected | {"channels.telegram.token"}
    after = yaml.safe_load(result)
    assert after["plain"] == yaml.safe_load(text)["plain"]
    assert after["channels"]["telegram"] == {
        "token": "${CHANNELS_TELEGRAM_TOKEN}",
        "enabled": True,
        "proxy": None,
    }
    values = [each["api_key"] for each in after["list"]]
    assert values == [f"${{LIST_{number}_API_KEY}}" for number in range(len(secrets))]


@pytest.mark.parametrize(
    "text",
    [
        "a: [",
        "first: &one secret-value-1\nsecond: *one\n",
    ],
)
def test_a_text_whose_secrets_cannot_be_separated_is_refused(text: str) -> None:
    assert without_secrets(text, Redactor(["secret-value-1"])) is None


def test_comments_stay_without_what_resembles_a_secret() -> None:
    text = "# old: sk-0123456789abcdefABCDEF\nname: Ada  # the first\n"
    found = without_secrets(text, Redactor())

    assert found == ("# old: ********\nname: Ada  # the first\n", {})


def test_names_of_variables_differ() -> None:
    text = "a: {b_token: secret-value-1}\na.b: {token: secret-value-2}\n"
    found = without_secrets(text, Redactor())

    assert found is not None
    assert sorted(found[1].values()) == ["A_B_TOKEN", "A_B_TOKEN_2"]
