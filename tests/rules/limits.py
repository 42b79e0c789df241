"""How large things may be: the one table. Raising a figure is a line in a diff, with its reason.

Modules, classes and functions are counted in lines of code, without blank lines, comments and
docstrings; a file, which is what one reads in one sitting, in all lines but the blank ones. The aim
tells authors what to strive for; only the limit fails.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Size(NamedTuple):
    """Lines to strive for, and lines that fail when exceeded."""

    aim: int
    limit: int


CORE: Final = 19_100
"""Lines of `nanobot_core` without the modules in `OUTSIDE_CORE`.

Raised for what an obedient model made necessary: one door to the workspace, guests, approvals that
tools ask for, limits on answers, repair of text, damage that is found, limits of all hooks, gates
that stay closed, and the record of consent.
"""

OUTSIDE_CORE: Final = frozenset({"cli", "testing"})

MODULES: Final = {
    "__init__": Size(250, 350),
    "__main__": Size(5, 10),
    "_version": Size(5, 10),
    # Approvals that tools ask for, calls that are allowed for good, limits on an answer.
    "agent": Size(1100, 1750),
    "app": Size(1500, 2250),  # a log that no failure can flood
    "cli": Size(2300, 3150),  # commands on what was allowed for good, answers that a gateway owes
    "bus": Size(1000, 1450),  # a log is checked and salvaged frame by frame
    "channels": Size(900, 1200),
    "clock": Size(250, 400),
    "config": Size(900, 1400),  # secrets are found by value, in every form
    "disk": Size(30, 90),  # the one place that makes folders of our own
    "errors": Size(250, 400),
    "folder": Size(150, 250),
    "events": Size(150, 250),
    # Raised by 150: every call is waited for in bounded time, and every hook says what it reaches.
    "hooks": Size(800, 1200),
    "media": Size(120, 220),
    "messages": Size(300, 450),
    "ids": Size(10, 30),
    "net": Size(450, 650),
    "paths": Size(250, 400),
    # Raised by 250: gates of plugins that do not run, and what the owner has agreed to.
    "plugins": Size(2700, 3950),
    "sessions": Size(600, 1050),  # one door for files, which trusts no name
    "testing": Size(1800, 2400),
    "text": Size(250, 400),
    "thoughts": Size(150, 200),
    "threads": Size(50, 80),
    "tools": Size(600, 900),
    "turns": Size(650, 1150),  # what a sender may reach
}
"""Modules of the core, a package counted with all its files. A new one must be entered here."""

FILES_OF: Final = {"contracts": Size(120, 220)}
"""Packages whose files are limited one by one, and whose sum is not: one contract, one file."""

FILE: Final = Size(150, 400)
FUNCTION: Final = Size(25, 50)
"""Without its docstring and its decorators."""
CLASS: Final = Size(150, 250)

PARAMETERS: Final = 6
"""Those that can be given by position, `self` and `cls` left out."""
PARAMETERS_WITH_KEYWORDS: Final = 8
"""The same together with those given by keyword only."""
PUBLIC_METHODS: Final = 12

RAISED: Final[dict[tuple[str, str], int]] = {
    # One typed field for each thing the host lends; the alternative is to hand over the host.
    ("methods", "nanobot_core/contracts/context.py::PluginContext"): 18,
    ("methods", "nanobot_core/plugins/context.py::HostContext"): 18,
    # A test gives what it is about, by name, and leaves out the rest.
    ("all-parameters", "nanobot_core/testing/context.py::FakePluginContext.__init__"): 9,
    # One name for each thing that is done to a file, all of them without following links.
    ("methods", "nanobot_core/folder.py::Folder"): 13,
    # Two queues and their dead letters, each with what takes a message in, out, back and away.
    ("methods", "nanobot_core/contracts/bus.py::Bus"): 14,
    ("methods", "nanobot_core/bus/queues.py::LedgerBus"): 14,
    # The changes of a running host, each a few steps that belong together.
    ("class", "nanobot_core/plugins/host.py::PluginHost"): 270,
    # A contract suite has one test for each promise of the contract.
    ("methods", "nanobot_core/testing/bus.py::BusContract"): 20,
    ("class", "nanobot_core/testing/bus.py::BusContract"): 380,
    ("file", "nanobot_core/testing/bus.py"): 500,
    ("methods", "nanobot_core/testing/channel.py::ChannelContract"): 13,
    ("methods", "nanobot_core/testing/provider.py::ProviderContract"): 13,
    ("methods", "nanobot_core/testing/tool.py::ToolContract"): 14,
}
"""Exceptions: (rule, place) to the limit that holds there, with the reason beside it.

The rule is a key such as `file`, `function`, `class`, `methods`, `parameters`; the place is what
the finding prints, such as `nanobot_core/cli/agent.py::run`.
"""
