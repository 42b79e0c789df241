"""What the plugin gives its host, and when it imports LiteLLM."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from nanobot_core.testing import FakePluginContext
from nanobot_litellm import plugin


def test_models_keep_the_prefix_that_litellm_wants(tmp_path: Path) -> None:
    specs = {spec.name: spec for spec in plugin.contribute_providers(FakePluginContext(tmp_path))}
    prefixes = {name: spec.add_prefix for name, spec in specs.items()}
    assert prefixes == {
        # Its models begin with the name of the service behind it.
        "litellm": "",
        "bedrock": "bedrock/",
        "vertex_ai": "vertex_ai/",
        "azure": "azure/",
        "cohere": "cohere/",
    }
    assert not any(spec.strip_prefix or spec.is_gateway or spec.is_local for spec in specs.values())


def test_litellm_is_imported_by_the_first_use_of_a_model_and_not_before() -> None:
    program = (
        "import pathlib, sys\n"
        "from nanobot_core.testing import FakePluginContext\n"
        "from nanobot_litellm import plugin\n"
        "from nanobot_litellm.provider import build_provider\n"
        "from nanobot_litellm.settings import LiteLLMSettings\n"
        "ctx = FakePluginContext(pathlib.Path('.'))\n"
        "for spec in plugin.contribute_providers(ctx):\n"
        "    build_provider(ctx, spec, LiteLLMSettings(api_key='k'))\n"
        "print(sorted({'litellm', 'openai', 'httpx', 'aiohttp'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=True,
        timeout=30,
        env={"PYTHONPATH": ":".join(sys.path)},
    )
    assert (done.stdout, done.stderr) == ("[]\n", "")


@pytest.mark.parametrize("version", ["1.82.7", "1.82.8"])
def test_releases_that_stole_credentials_are_not_installed(version: str) -> None:
    file = Path(__file__).parents[1] / "pyproject.toml"
    wanted = map(Requirement, tomllib.loads(file.read_text("utf-8"))["project"]["dependencies"])
    (litellm,) = (requirement for requirement in wanted if requirement.name == "litellm")
    assert not litellm.specifier.contains(version)
