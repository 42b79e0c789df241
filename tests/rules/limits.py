"""The size limits, in one table. Raising a figure is a line in a diff, with its reason.

Modules, classes and functions are counted in lines of code: blank lines, comments and docstrings
are left out. A class counts together with its base classes in this repository, so that dividing it
by inheritance does not make it smaller. A file counts every line that is not blank, because a
reader reads all of them. Tests check the limit; the aim is a guide for authors.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Size(NamedTuple):
    """The size to aim for, and the size above which the test fails."""

    aim: int
    limit: int


CORE: Final = 26_070
"""Lines of `nanobot_core` without the modules in `OUTSIDE_CORE`."""

CLASSES: Final = 20
"""Classes per 1,000 lines of the same code. The aim is 15."""

# `chat` is for channel plugins: nothing in the core imports it.
OUTSIDE_CORE: Final = frozenset({"chat", "cli", "install", "moving", "testing"})

MODULES: Final = {
    # Deprecated names are reported; clients, operations, panels and gathered work are public.
    "__init__": Size(250, 467),
    "__main__": Size(5, 10),
    "_version": Size(5, 10),
    # Passages share a budget, images are scaled, texts can be replaced, tokens are counted, a run
    # can have to end with an object; failed providers cool down; who changes the beginning of
    # requests is charged for it.
    "assignment": Size(40, 60),
    "agent": Size(1100, 2405),
    # The only installed memory backend or transcriber is used; an answer can be an object;
    # presets, and what is known of models, within bounds of what services may list.
    # What editors, APIs and pages need: sessions, turns and tool calls of programs, operations.
    # Channels can prove who the owner is.
    # What a gateway refuses is reported, and settings without an effect.
    "app": Size(1500, 3720),  # answers and confirmations of events beside each other
    # Restart, installation, sign-in to providers, models and their choice, local servers; a move;
    # backups; explanations name the defaults that plugins have; packages that are not installed.
    "cli": Size(2300, 4590),
    "bus": Size(1000, 1290),  # the type of assignments is built once
    # Drafts wait for earlier replies; account and traffic of each; refused credentials.
    "channels": Size(900, 1230),
    # What ten channels share: Markdown, pieces, drafts, retries, order, six kinds of markup, HTTP.
    "chat": Size(1100, 2390),
    "clock": Size(20, 30),
    # The keys of each channel of the original that have no counterpart.
    "config": Size(900, 1875),  # with the keys of all formats of the original; temporary files
    "deprecation": Size(40, 60),
    # Names of files survive a power failure, for backups too.
    "disk": Size(30, 63),
    "errors": Size(120, 160),
    "folder": Size(150, 181),
    "events": Size(150, 246),
    # A single implementation that gathers takes no task; plugins declare hooks of four kinds;
    # calls are announced, to be recorded.
    "hooks": Size(800, 1405),
    # Three ways to name a plugin, two installers, checks of wheels, undo, index and lock; who
    # published a release, and where an installed one comes from.
    "install": Size(1500, 2110),
    "lazy": Size(20, 30),
    "media": Size(80, 90),
    "messages": Size(200, 260),
    "ids": Size(5, 10),
    # What nanobot-ai left and where it goes; backups.
    "moving": Size(700, 1260),
    "net": Size(450, 735),  # clients of plugins, for declared hosts,
    "paths": Size(200, 260),
    # What plugins contribute to others is checked, and their own hooks are called; a scan parses
    # little, and that once; indexes are read.
    # Generations of hooks are compared, and deprecated hooks reported; a durable store for each.
    # Which commands a package that is not installed would add.
    "plugins": Size(2700, 4270),
    "private_file": Size(100, 134),
    "prompts": Size(100, 110),
    # One HTTP client, event streams, errors and answers for all providers behind HTTP.
    "providers": Size(1000, 1225),
    "record": Size(60, 90),
    # One session is found without listing all.
    "sessions": Size(600, 1020),
    # Gathered work in one block, such as a transaction.
    "tasks": Size(150, 182),
    # Contracts of hooks, memory, services and transcription; the behaviour of installed plugins.
    # Stand-ins of chat platforms, and a day of a gateway on each of them.
    # A strict service for each protocol of models; results as files for programs; recordings.
    "testing": Size(1800, 6510),
    "text": Size(120, 145),
    "thoughts": Size(150, 175),
    # Stored, and renewed by one process of several.
    "sign_in": Size(200, 220),
    # Findings of pydantic in our words, the original's form of tools and fragments, strict schemas.
    "tools": Size(600, 1070),
    # Memory; processes that share a session; answers that are objects; work without a message;
    # answers name the passages that were read; sessions name the folder of their turns.
    "turns": Size(650, 1910),
}
"""Modules of the core; a package counts with all its files. Every module needs an entry."""

FILES_OF: Final = {"contracts": Size(120, 230)}
"""Packages with a limit for each file instead of one for the package."""

FILE: Final = Size(300, 500)
FUNCTION: Final = Size(25, 50)
"""Without its docstring and decorators."""
CLASS: Final = Size(150, 300)
"""Together with its base classes in this repository."""

PARAMETERS: Final = 6
"""Parameters that can be passed by position, without `self` and `cls`."""
PARAMETERS_WITH_KEYWORDS: Final = 8
"""All parameters, those passed by keyword only included."""
PUBLIC_METHODS: Final = 15
"""Together with those of its base classes in this repository."""

RAISED: Final[dict[tuple[str, str], int]] = {
    # One typed field for each thing that the host provides; the alternative is to pass the host.
    ("methods", "nanobot_core/contracts/context.py::PluginContext"): 26,
    ("methods", "nanobot_core/plugins/context.py::HostContext"): 24,
    # One for each fact of a declaration.
    ("all-parameters", "nanobot_core/hooks/markers.py::HookPoint.__init__"): 9,
    # A test names the parts that it needs and leaves out the others.
    ("all-parameters", "nanobot_core/testing/context.py::FakePluginContext.__init__"): 9,
    # One for each option of the terminal.
    ("all-parameters", "nanobot_core/cli/onboard.py::onboard"): 12,
    ("all-parameters", "plugins/nanobot-cron/src/nanobot_cron/commands.py::add"): 14,
    ("methods", "nanobot_core/testing/context.py::FakePluginContext"): 16,
    ("all-parameters", "plugins/nanobot-api/src/nanobot_api/commands.py::add"): 9,
    # The contract of a bus, and `open`.
    ("methods", "nanobot_core/bus/sqlite.py::SqliteBus"): 17,
    # A contract suite has one test for each guarantee of the contract.
    ("methods", "nanobot_core/testing/bus.py::BusContract"): 23,
    # Its methods are those of three contracts: for plugins, slash commands and the runner.
    ("methods", "nanobot_core/app/gateway.py::Gateway"): 18,
    ("methods", "nanobot_core/testing/http_provider.py::HTTPProviderContract"): 16,
    ("class", "nanobot_core/testing/bus.py::BusContract"): 400,
    ("methods", "nanobot_core/testing/bus.py::DurableBusContract"): 25,
    ("class", "nanobot_core/testing/bus.py::DurableBusContract"): 444,
}
"""Exceptions: (rule, place) to the limit that applies there, with the reason above it.

The rule is a key such as `file`, `function`, `class`, `methods` or `parameters`; the place is the
one in the finding, such as `nanobot_core/cli/agent.py::run`.
"""
