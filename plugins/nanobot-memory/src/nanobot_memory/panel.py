"""Panel ``memory``: the memory files, their versions and differences, for the owner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from nanobot_core import (
    OWNERS_MEMORY,
    Panel,
    PanelAction,
    PanelDiff,
    PanelError,
    PanelLink,
    PanelRow,
    PanelTable,
    PanelText,
    PanelView,
    finish_in_thread,
)
from nanobot_memory.files import Memories
from nanobot_memory.repository import RepositoryDamaged, Version, VersionUnknown
from nanobot_memory.versions import REFUSALS, revert, show_diff, versions_of

if TYPE_CHECKING:
    from nanobot_core import PluginContext
    from nanobot_memory.files import MemoryFiles

T = TypeVar("T")

MAX_VERSIONS = 50
MAX_MEMORIES = 200
MAX_FILE_CHARS = 100_000


def memory_panel(ctx: PluginContext) -> Panel:
    """Return the panel.

    Its views are ``memory SCOPE``, ``file NAME SCOPE`` and ``version HASH SCOPE``; the first one
    is the owner's memory.
    """

    async def show(view: str) -> PanelView:
        return await asyncio.to_thread(_show, ctx.shared(Memories), view)

    async def act(name: str, subject: str) -> str:
        sha, _, scope = subject.partition(" ")
        if name != "restore" or not sha:
            raise PanelError(f"the memory has no action {name!r}")
        files = await asyncio.to_thread(_files, ctx.shared(Memories), scope)
        now = ctx.clock.now()
        # It holds a lock and writes files: a request that ends meanwhile does not leave it half.
        return await finish_in_thread(
            lambda: _explained(lambda: revert(files, sha, now), "nothing was reverted: ")
        )

    return Panel(
        id="memory",
        title="Memory",
        show=show,
        act=act,
        summary="What the agent remembers, and how that has changed.",
    )


def _show(memories: Memories, view: str) -> PanelView:
    """Return a view. Blocks."""
    kind, _, rest = (view or f"memory {OWNERS_MEMORY}").partition(" ")
    if kind == "memory":
        files = _files(memories, rest)
        return _explained(lambda: _show_memory(memories, files))
    name, _, scope = rest.partition(" ")
    files = _files(memories, scope)
    if kind == "file":
        return _explained(lambda: _show_file(files, name))
    if kind == "version":
        return _explained(lambda: _show_version(files, name))
    raise PanelError(f"the memory has no view {kind!r}")


def _show_memory(memories: Memories, files: MemoryFiles) -> PanelView:
    scope, scopes = files.scope, memories.scopes()
    names = [*files.names, *files.topics()]
    texts = {name: files.read(name) for name in names}
    kept = PanelTable(
        title="Files",
        columns=("File", "Lines", "Characters"),
        rows=tuple(
            PanelRow(
                cells=(name, f"{len(text.splitlines()):,}", f"{len(text):,}"),
                links=(PanelLink(label="Show", view=f"file {name} {scope}"),),
            )
            for name, text in texts.items()
        ),
    )
    changes = PanelTable(
        title="Changes",
        columns=("Time (UTC)", "By", "Files", "Change"),
        rows=tuple(_version_row(version, scope) for version in versions_of(files, MAX_VERSIONS)),
        empty="The memory files have not changed yet.",
    )
    others = [each for each in scopes if each != scope][:MAX_MEMORIES]
    return PanelView(
        parts=(PanelText(text=f"Memory: {_name(scope)}."), kept, changes),
        links=tuple(PanelLink(label=_name(each), view=f"memory {each}") for each in others),
    )


def _version_row(version: Version, scope: str) -> PanelRow:
    return PanelRow(
        cells=(
            f"{version.time:%Y-%m-%d %H:%M}",
            version.author,
            ", ".join(version.files),
            version.title,
        ),
        links=(PanelLink(label="Difference", view=f"version {version.id} {scope}"),),
        actions=(_restore(version, scope),),
    )


def _restore(version: Version, scope: str) -> PanelAction:
    return PanelAction(
        name="restore",
        label="Revert",
        subject=f"{version.id} {scope}",
        question=(
            f"Revert the change {version.id[:7]} of {version.time:%Y-%m-%d %H:%M} in "
            f"{', '.join(version.files)}? Later changes of other lines stay."
        ),
    )


def _show_file(files: MemoryFiles, name: str) -> PanelView:
    if name not in (*files.names, *files.topics()):
        raise PanelError(f"this memory has no file {name!r}")
    text = files.read(name)
    if (left := len(text) - MAX_FILE_CHARS) > 0:
        text = f"{text[:MAX_FILE_CHARS]}\n[… {left:,} more characters]"
    shown = PanelText(title=name, text=text or "(empty)", preformatted=True)
    return PanelView(parts=(shown,), links=(_back(files.scope),))


def _show_version(files: MemoryFiles, name: str) -> PanelView:
    version, diff = show_diff(files, name)
    title = f"{version.id[:7]}, {version.time:%Y-%m-%d %H:%M} UTC, by {version.author}"
    return PanelView(
        parts=(
            PanelText(title=title, text=version.message.strip(), preformatted=True),
            PanelDiff(title=", ".join(version.files), text=diff),
        ),
        actions=(_restore(version, files.scope),),
        links=(_back(files.scope),),
    )


def _back(scope: str) -> PanelLink:
    return PanelLink(label=f"Memory: {_name(scope)}", view=f"memory {scope}")


def _name(scope: str) -> str:
    return "the owner's" if scope == OWNERS_MEMORY else scope


def _files(memories: Memories, scope: str) -> MemoryFiles:
    """Return the files of a memory that exists. Blocks."""
    if scope not in _explained(memories.scopes):
        raise PanelError(f"there is no memory {scope!r}")
    return memories.files(scope)


def _explained(work: Callable[[], T], consequence: str = "") -> T:
    """Return what `work` returns; its errors become a `PanelError`."""
    try:
        return work()
    except (VersionUnknown, RepositoryDamaged, *REFUSALS) as error:
        raise PanelError(f"{consequence}{error}") from error
    except OSError as error:
        raise PanelError(f"{consequence}the memory cannot be used: {error}") from error
