"""Sizes stay below the limits of the one table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.rules import limits
from tests.rules.checks.sample import write_tree
from tests.rules.checks.sizes import size_findings

HERE = "nanobot_core/agent/loop.py"
PLUGIN = "plugins/nanobot-a/src/nanobot_a/plugin.py"


def lines(count: int) -> str:
    return "x = 1\n" * count


def body(count: int) -> str:
    return "    x = 1\n" * count


def parameters(count: int, prefix: str = "p") -> str:
    return ", ".join(f"{prefix}{number}" for number in range(count))


def test_nothing_is_larger_than_its_limit(repository: Path) -> None:
    assert size_findings(repository) == []


@pytest.mark.parametrize(
    ("path", "text", "finding"),
    [
        (PLUGIN, lines(501), f"{PLUGIN}: file has 501, the limit is 500"),
        (
            "nanobot_core/contracts/bus.py",
            lines(231),
            "nanobot_core/contracts/bus.py: file has 231, the limit is 230",
        ),
        (HERE, f"def f():\n{body(50)}", f"{HERE}::f: function has 51, the limit is 50"),
        (
            HERE,
            f"class A:\n    class B:\n        def f(self, {parameters(7)}): ...\n",
            f"{HERE}::A.B.f: parameters has 7, the limit is 6",
        ),
        (
            HERE,
            f"def f({parameters(6)}, *, {parameters(3, 'k')}): ...\n",
            f"{HERE}::f: all-parameters has 9, the limit is 8",
        ),
        (HERE, f"class A:\n{body(300)}", f"{HERE}::A: class has 301, the limit is 300"),
        (
            HERE,
            "class A:\n" + "".join(f"    def m{n}(self): ...\n" for n in range(16)),
            f"{HERE}::A: methods has 16, the limit is 15",
        ),
        (
            "nanobot_core/surprise.py",
            "",
            "nanobot_core/surprise: has no limit; add one to tests/rules/limits.py",
        ),
    ],
)
def test_what_is_too_large_is_reported(tmp_path: Path, path: str, text: str, finding: str) -> None:
    assert size_findings(write_tree(tmp_path, {path: text})) == [finding]


def test_a_class_counts_with_its_bases_in_the_product(tmp_path: Path) -> None:
    methods = "".join(f"    def m{n}(self): ...\n" for n in range(9))
    more = "".join(f"    def n{n}(self): ...\n" for n in range(7))
    files = {
        HERE: f"class Base:\n{methods}{body(190)}",
        PLUGIN: f"from nanobot_core import Base\nclass A(Base[int]):\n{more}{body(100)}",
    }

    found = size_findings(write_tree(tmp_path, files))

    assert found == [
        f"{PLUGIN}::A: class has 308, the limit is 300",
        f"{PLUGIN}::A: methods has 16, the limit is 15",
    ]


def test_many_classes_in_little_code_are_reported(tmp_path: Path) -> None:
    classes = "".join(f"class A{n}: ...\n" for n in range(21))

    found = size_findings(write_tree(tmp_path, {HERE: classes}))

    assert found == ["nanobot_core: classes has 21, the limit is 20"]


def test_a_package_is_measured_with_all_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(limits.MODULES, "text", limits.Size(250, 400))
    files = {f"nanobot_core/text/part{number}.py": lines(101) for number in range(4)}

    found = size_findings(write_tree(tmp_path, files))

    assert found == ["nanobot_core/text: module has 404, the limit is 400"]


def test_the_core_is_measured_without_cli_and_testing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "CORE", 10)
    files = {"cli/a.py": lines(9), "testing/a.py": lines(9), "text.py": lines(11)}
    write_tree(tmp_path, {f"nanobot_core/{name}": text for name, text in files.items()})

    assert size_findings(tmp_path) == ["nanobot_core: core has 11, the limit is 10"]


def test_docstrings_blank_lines_and_self_are_not_counted(tmp_path: Path) -> None:
    docstring = '    """Say.\n' + "\n    more\n" * 60 + '    """\n\n\n'
    method = f"class A:\n    def f(self, {parameters(6)}): ...\n"
    write_tree(tmp_path, {HERE: f"def f():\n{docstring}{body(49)}\n{method}"})

    assert size_findings(tmp_path) == []


def test_a_raised_limit_holds_for_its_place_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(limits.RAISED, ("parameters", f"{HERE}::f"), 7)
    text = f"def f({parameters(7)}): ...\ndef g({parameters(7)}): ...\n"

    found = size_findings(write_tree(tmp_path, {HERE: text}))

    assert found == [f"{HERE}::g: parameters has 7, the limit is 6"]
