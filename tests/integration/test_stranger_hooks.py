"""Two third parties' packages, of which one extends the other by the hooks that it declares."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.environments import Environment, build_wheel, make_environment

REPOSITORY = Path(__file__).parents[2]
STRANGERS = REPOSITORY / "tests" / "strangers"
PACKAGES = {"orders": "stranger_orders", "happy_hour": "stranger_happy_hour"}
CONFIG = f"""\
agents: {{defaults: {{model: scripted/one, provider: scripted}}}}
plugins:
  local: [{STRANGERS / "scripted.py"}]
"""


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return {name: build_wheel(STRANGERS / name, tmp_path_factory.mktemp(name)) for name in PACKAGES}


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory, wheels: dict[str, Path]) -> Environment:
    """Both packages, installed."""
    environment = make_environment(tmp_path_factory.mktemp("stranger"))
    environment.configure(CONFIG)
    environment.install(*wheels.values())
    return environment


def order(environment: Environment, dish: str, amount: int) -> str:
    """Return what the model reads when it orders."""
    call = json.dumps({"dish": dish, "amount": amount})
    answer = environment.nanobot("agent", "-m", f"call place_order {call}")
    return answer.partition("The tool said: ")[2].splitlines()[0]


@pytest.mark.promise(47)
def test_a_plugin_is_extended_by_another_one_through_every_kind_of_hook(
    installed: Environment,
) -> None:
    journal = installed.home / "plugins" / "happy-hour" / "orders.txt"

    assert order(installed, "cake", 2) == "2 cake for 3.00", "a contribution, and a chain"
    assert order(installed, "soup", 1) == "1 soup for 4.50"
    assert "the order is refused: there are only ten seats" in order(installed, "soup", 11)
    assert journal.read_text("utf-8") == "2 cake 300\n1 soup 450\n", "what the observer has seen"


@pytest.mark.promise(47)
def test_commands_know_the_hooks_of_plugins(installed: Environment) -> None:
    explained = installed.nanobot("explain", "hook", "orders_rewrite_price")
    ordered = installed.nanobot("plugins", "order", "orders_accept")
    listed = installed.nanobot("plugins", "hooks")
    why = installed.nanobot("plugins", "why", "happy-hour")

    for words in ("chain: ", "the field 'price' of the event", "Change the price", "happy-hour"):
        assert words in explained
    assert "happy-hour" in ordered
    assert "orders_placed" in listed
    assert "starts when another plugin uses its hooks orders_accept" in why


@pytest.mark.promise(47)
def test_each_works_without_the_other(installed: Environment, wheels: dict[str, Path]) -> None:
    without_extension = installed.nanobot(
        "--without", "happy-hour", "agent", "-m", 'call place_order {"dish": "cake", "amount": 1}'
    )
    installed.configure(CONFIG.replace("plugins:", "plugins:\n  disabled: [orders]"))
    alone = installed.nanobot("agent", "-m", "hello")
    why = installed.nanobot("plugins", "why", "happy-hour")
    installed.configure(CONFIG)

    assert "there is no cake, only soup" in without_extension
    assert "You said: hello" in alone
    assert "requires plugin 'orders>=1.4'" in why


@pytest.mark.promise(30, 47)
def test_an_older_version_than_required_is_named(installed: Environment, tmp_path: Path) -> None:
    old = shutil.copytree(STRANGERS / "orders", tmp_path / "orders")
    project = old / "pyproject.toml"
    project.write_text(project.read_text("utf-8").replace("1.4.0", "1.3.0"), "utf-8")
    installed.install(build_wheel(old, tmp_path / "dist"))
    why = installed.nanobot("plugins", "why", "happy-hour")
    installed.install(build_wheel(STRANGERS / "orders", tmp_path / "new"))

    assert "it needs stranger-orders<2,>=1.4, installed is 1.3.0" in why


def test_the_cookbook_shows_their_code() -> None:
    page = (REPOSITORY / "docs" / "plugins" / "cookbook.md").read_text("utf-8")

    for folder, package in PACKAGES.items():
        for file in sorted((STRANGERS / folder / "src" / package).glob("*.py")):
            if code := file.read_text("utf-8"):
                assert f"```python\n# {package}/{file.name}\n{code}```" in page
