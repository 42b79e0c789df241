"""The kinds of hooks: the kind of a hook decides its order, its time limit and its failure."""

from __future__ import annotations

from enum import Enum

from nanobot_core.record import dataclass


class Kind(Enum):
    """How a hook is called."""

    CONTRIBUTE = "contribute"
    OWN = "own"
    OBSERVE = "observe"
    DETACHED = "detached"
    CHAIN = "chain"
    GATE = "gate"
    FIRST = "first"
    GATHER = "gather"
    WRAP = "wrap"


@dataclass(frozen=True, slots=True)
class KindRule:
    """What a kind promises to callers and implementers.

    Attributes:
        summary: the rule in one sentence, as the hook reference prints it.
        limit_s: seconds one implementation may take.
    """

    summary: str
    limit_s: float


RULES: dict[Kind, KindRule] = {
    Kind.CONTRIBUTE: KindRule(
        "called once per activation, collects; after a failure the whole plugin is left out", 30.0
    ),
    Kind.OWN: KindRule("called on the plugin itself", 30.0),
    Kind.OBSERVE: KindRule("in order, result ignored; a failure is logged and counted", 4.0),
    Kind.DETACHED: KindRule(
        "from a bounded queue per plugin, later and in order; overflow drops the oldest", 30.0
    ),
    Kind.CHAIN: KindRule(
        "in order, each sees the result of the one before; None means unchanged; a failure is "
        "skipped unless the implementation is marked critical",
        4.0,
    ),
    Kind.GATE: KindRule(
        "in order, strongest answer wins (deny, ask, rewrite, allow); a failure denies", 15.0
    ),
    Kind.FIRST: KindRule("in order, first answer that is not None; a failure asks the next", 4.0),
    Kind.GATHER: KindRule("concurrently, collects; what fails contributes nothing", 3.0),
    Kind.WRAP: KindRule(
        "middleware, call_next usable once, its time not counted; a failure before it is skipped, "
        "after it the inner result is used",
        4.0,
    ),
}
