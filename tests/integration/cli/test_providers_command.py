"""``nanobot providers``."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.cli.conftest import CommandLine
from tests.integration.cli.packages import Packages, packages_for

PROVIDERS = """
@on.contribute_providers
def contribute_providers(ctx):
    return [
        ProviderSpec(name="cloud", factory="a:b", keywords=("nimbus",), api_key_env=("CLOUD_KEY",),
                     summary="In the sky."),
        ProviderSpec(name="local", factory="a:b", needs_key=False),
        ProviderSpec(name="near", factory="a:b", needs_key=False, default_base="http://here"),
        ProviderSpec(name="toy", factory="a:b", needs_key=False, demo=True),
    ]
"""


@pytest.fixture
def nanobot(bare: CommandLine, tmp_path: Path) -> CommandLine:
    packages: Packages = packages_for(bare, tmp_path / "packages")
    packages.add("alpha", PROVIDERS)
    packages.nanobot.configure("plugins: {policy: listed, enabled: [alpha]}\n")
    return packages.nanobot


def test_list_tells_which_providers_can_be_used_and_what_is_missing(nanobot: CommandLine) -> None:
    rows = json.loads(nanobot("providers", "list", "--json").stdout)
    table = nanobot("providers", "list").stdout.splitlines()

    assert {row["name"]: row["usable"] for row in rows} == {
        "cloud": "no, set providers.cloud.api_key or CLOUD_KEY",
        "local": "no, set its api_base",
        "near": "yes, needs no key",
        "toy": "yes, without a model",
    }
    assert table[0].split("\t") == ["provider", "plugin", "usable", "about"]
    assert table[1].endswith("\tIn the sky.")


def test_a_key_in_the_environment_makes_a_provider_usable(nanobot: CommandLine) -> None:
    keyed = replace(nanobot, changes={"CLOUD_KEY": "of-the-test"})

    rows = json.loads(keyed("providers", "list", "--json").stdout)
    explained = json.loads(keyed("providers", "explain", "nimbus-2", "--json").stdout)

    assert rows[0]["usable"] == "yes, has a key"
    assert (explained["provider"], explained["plugin"]) == ("cloud", "alpha")
    assert explained["steps"][-1] == "'nimbus' in the model name belongs to 'cloud'"


def test_explain_tells_every_step(nanobot: CommandLine) -> None:
    lines = nanobot("providers", "explain", "near/small").stdout.splitlines()

    assert lines == [
        "1. no provider is set in agents.defaults.provider",
        "2. the model name begins with 'near/'",
        "near/small is served by 'near' of plugin 'alpha', sent as 'small'",
        "  endpoint: http://here",
        "  key: not needed",
        "  limits: 8k tokens of an answer, 65k of a request and its answer",
        "  known: nothing; nanobot models refresh asks the service",
    ]


def test_explain_follows_a_preset_and_its_fallbacks(nanobot: CommandLine) -> None:
    file = nanobot.home / "config.yaml"
    preset = "{model: near/small, max_tokens: 900, fallback_models: [nimbus-2]}"
    file.write_text(file.read_text() + f"models: {{fast: {preset}}}\n")
    keyed = replace(nanobot, changes={"CLOUD_KEY": "of-the-test"})

    explained = json.loads(keyed("providers", "explain", "fast", "--json").stdout)

    assert explained["steps"][0] == "'fast' is a preset of model 'near/small'"
    assert (explained["sent_as"], explained["max_tokens"]) == ("small", 900)
    (fallback,) = explained["fallback_models"]
    assert (fallback["provider"], fallback["key"]) == (
        "cloud",
        "the environment variable CLOUD_KEY",
    )
    assert "of-the-test" not in json.dumps(explained)


def test_another_model_keeps_the_configured_provider(nanobot: CommandLine) -> None:
    file = nanobot.home / "config.yaml"
    file.write_text(file.read_text() + "agents: {defaults: {provider: near, model: small}}\n")

    assert "served by 'near'" in nanobot("providers", "explain", "large").stdout
    assert "served by 'near'" in nanobot("providers", "explain", "cloud/large").stdout
    keyed = replace(nanobot, changes={"CLOUD_KEY": "of-the-test"})
    assert "served by 'cloud'" in keyed("providers", "explain", "cloud/large").stdout


def test_without_a_model_the_demonstration_is_explained(nanobot: CommandLine) -> None:
    assert "any model is served by 'toy'" in nanobot("providers", "explain").stdout


def test_a_model_nobody_serves_fails_with_what_to_set(nanobot: CommandLine) -> None:
    done = nanobot("providers", "explain", "nimbus-2", code=1)
    data = json.loads(nanobot("providers", "explain", "nimbus-2", "--json", code=1).stdout)

    assert "set providers.cloud.api_key or the environment variable CLOUD_KEY" in done.stderr
    assert data["provider"] is None
    assert data["remedy"].startswith("set providers.cloud.api_key")


def test_without_any_provider_list_says_what_to_install(bare: CommandLine) -> None:
    program = (
        "from nanobot_core.plugins import catalogue; "
        "catalogue.load_installed = lambda folder: (); "
        "from nanobot_core.cli import main; main()"
    )
    alone = CommandLine(bare.home, bare.environ, (sys.executable, "-c", program))

    assert "nanobot-core[standard]" in alone("providers", "list", code=1).stderr
