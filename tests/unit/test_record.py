"""Frozen dataclasses of the core behave as the standard ones do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
from dataclasses import FrozenInstanceError, asdict, field, replace
from typing import TYPE_CHECKING, ClassVar

import pytest

from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True)
class Ours:
    """A record."""

    kind: ClassVar[str] = "record"

    name: str
    count: int = 1
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False, kw_only=True)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """The same by the standard decorator."""

    kind: ClassVar[str] = "record"

    name: str
    count: int = 1
    tags: list[str] = field(default_factory=list, compare=False)
    note: str = field(default="", repr=False, kw_only=True)
    size: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", len(self.name))


@dataclass(frozen=True, slots=True)
class Other(Ours):
    """Equal to nothing else."""


BOTH = pytest.mark.parametrize("made", [Ours, Theirs])


@BOTH
def test_fields_defaults_and_post_init(made: type[Ours]) -> None:
    record = made("ab", note="n")
    assert asdict(record) == {"name": "ab", "count": 1, "tags": [], "note": "n", "size": 2}
    assert made("ab").tags is not record.tags
    assert repr(record) == f"{made.__name__}(name='ab', count=1, tags=[], size=2)"
    assert not hasattr(record, "__dict__")
    assert made.kind == "record"
    match record:
        case made(name, 1):
            assert name == "ab"
        case _:
            pytest.fail("positional patterns do not match")


@BOTH
def test_equality_and_hash_follow_the_compared_fields(made: type[Ours]) -> None:
    assert made("a", 1, ["x"]) == made("a", 1, ["y"])
    assert hash(made("a")) == hash(made("a", 1, ["y"]))
    assert made("a") != made("b")
    assert made("a") != Other("a")


@BOTH
def test_copies_replaces_and_pickles(made: type[Ours]) -> None:
    record = made("ab", 2, ["x"], note="n")
    assert replace(record, name="abc").size == 3
    pickled = pickle.loads(pickle.dumps(record))  # noqa: S301 - our own
    for twin in (copy.copy(record), copy.deepcopy(record), pickled):
        assert asdict(twin) == asdict(record)


@BOTH
def test_refuses_changes_and_wrong_arguments(made: Callable[..., object]) -> None:
    record = made("a")
    with pytest.raises(FrozenInstanceError, match="cannot assign to field 'name'"):
        setattr(record, "name", "b")  # noqa: B010 - the type checker would refuse it too
    with pytest.raises(FrozenInstanceError, match="cannot delete field 'name'"):
        delattr(record, "name")
    with pytest.raises(TypeError, match=rf"{type(record).__name__}.__init__\(\) missing"):
        made()
    with pytest.raises(TypeError, match="positional argument"):
        made("a", 1, [], "n")


def test_inherits_both_ways() -> None:
    @dataclass(frozen=True, slots=True)
    class Child(Ours):
        """Ours of ours."""

        extra: int = 0

    @dataclasses.dataclass(frozen=True)
    class Plugin(Ours):
        """A plugin's own."""

        extra: int = 0

    assert Child("a", extra=3).extra == Plugin("a", extra=3).extra == 3
    assert Child("ab").size == 2
