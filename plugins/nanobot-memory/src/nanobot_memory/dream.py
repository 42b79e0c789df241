"""Dream: works new history into the memory files, as a job or on request."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from nanobot_core import (
    AgentTask,
    AuthenticationFailed,
    Message,
    NanobotError,
    NoProvider,
    Overloaded,
    RateLimited,
    Unreachable,
    finish_in_thread,
    prompt,
)
from nanobot_memory.batch import (
    Aside,
    DreamBusy,
    DreamState,
    FileChange,
    Pending,
    dream_lock,
    load_state,
    save_state,
)
from nanobot_memory.compaction import compact_daily
from nanobot_memory.draft import Draft, Snapshot
from nanobot_memory.dream_tools import tools_for
from nanobot_memory.findings import Findings, FindingsInvalid, parse_findings
from nanobot_memory.passages import estimate_tokens
from nanobot_memory.review import (
    admit,
    render_files,
    render_findings,
    render_history,
    render_request,
    take_snapshot,
)
from nanobot_memory.settings import MemorySettings
from nanobot_memory.versions import (
    CURSOR,
    ENTRIES,
    EditedMeanwhile,
    apply,
    finish_pending,
    keep_edits,
)

if TYPE_CHECKING:
    from nanobot_core import PluginContext, TaskOutcome, Tool
    from nanobot_memory.files import MemoryFiles
    from nanobot_memory.history import HistoryEntry

ATTEMPTS: Final = 3
"""Failures after which a batch is set aside."""
BACK_OFF_S: Final = 900.0
"""Seconds before the second attempt; the third one waits four times as long."""
PHASE_LIMIT_S = 600.0
"""Seconds for each phase."""
_ITERATIONS = 10


class DreamFailed(Exception):
    """A run did not end normally."""


class DreamPostponed(Exception):
    """A run cannot be made now."""


class DreamBlocked(Exception):
    """A run would remove much; the owner decides."""


_TEMPORARY = (
    *(Unreachable, RateLimited, Overloaded, AuthenticationFailed, NoProvider),
    *(EditedMeanwhile, DreamPostponed, RuntimeError),
)
"""Failures that no batch can cause; they are retried without end."""
_FAILURES = (*_TEMPORARY, DreamFailed, FindingsInvalid, NanobotError)


@dataclass(frozen=True, slots=True)
class Batch:
    """What a run reads.

    Attributes:
        entries: of the history, oldest first.
        snapshot: of the files.
        state: before the run.
        aside: the given-up batch that these entries are, or ``None`` for new ones.
        left: how many unread entries remain.
    """

    entries: tuple[HistoryEntry, ...]
    snapshot: Snapshot
    state: DreamState
    aside: Aside | None = None
    left: int = 0


async def dream(ctx: PluginContext, files: MemoryFiles, *, retry: bool = False) -> str:
    """Work the new history of one memory into its files.

    Args:
        ctx: the plugin's context.
        files: the memory.
        retry: read the batches that were set aside, with the owner's consent to remove much.

    Returns:
        A report for people, in Markdown.
    """
    work = Dream(ctx, files)
    try:
        with contextlib.ExitStack() as held:
            await finish_in_thread(lambda: held.enter_context(dream_lock(files)))
            report = await (work.retry() if retry else work.run())
    except DreamBusy as error:
        return f"{error}."
    except OSError as error:
        return work.report_unusable(error)
    await work.compact()
    return report


class Dream:
    """Runs of Dream for one memory. The caller of `run` and `retry` holds `dream_lock`.

    Args:
        ctx: the plugin's context.
        files: the memory.
    """

    def __init__(self, ctx: PluginContext, files: MemoryFiles) -> None:
        self._ctx = ctx
        self._log = ctx.logger
        self._files = files
        self._settings = ctx.settings(MemorySettings)

    async def run(self) -> str:
        """Work in the next entries; return a report."""
        batch = await finish_in_thread(self._next)
        if not batch.entries:
            return f"No new history.{_asides(batch.state)}"
        try:
            return await self._work(batch)
        except DreamBlocked as error:
            reason = str(error)
            return await finish_in_thread(lambda: self._set_aside(batch, reason, is_blocked=True))
        except _FAILURES as error:
            reason, counts = str(error), not isinstance(error, _TEMPORARY)
            return await finish_in_thread(lambda: self._failed(batch, reason, counts=counts))

    async def retry(self) -> str:
        """Read the batches that were set aside; return a report."""
        state = await finish_in_thread(lambda: load_state(self._files))
        if not state.aside:
            return "No batch is set aside."
        reports = []
        for aside in state.aside:
            batch = await finish_in_thread(partial(self._again, aside))
            if not batch.entries:
                await finish_in_thread(partial(self._drop, aside))
                continue
            try:
                reports.append(await self._work(batch))
            except (DreamBlocked, *_FAILURES) as error:
                reports.append(
                    f"The history {_numbers(aside.first, aside.last)} failed again: {error}."
                )
        return "\n".join(reports) or "The entries that were set aside do not exist any more."

    async def compact(self) -> int:
        """Move old history to the archive, at most once a day; return how many entries that are.

        A failure is logged.
        """
        now = self._ctx.clock.now()
        try:
            moved = await finish_in_thread(lambda: compact_daily(self._files, self._settings, now))
        except OSError as error:
            self._log.warning("{} cannot be archived: {}", self._files.folder, error)
            return 0
        if moved:
            self._log.info("archived {} history entries of {}", moved, self._files.folder)
        return moved

    def report_unusable(self, error: OSError) -> str:
        """Log that the files cannot be used, and return it as a report."""
        self._log.warning("Dream cannot use the memory files: {}", error)
        return f"Dream cannot use the memory files: {error}."

    async def _work(self, batch: Batch) -> str:
        findings = await self._find(batch)
        draft = Draft(
            self._files,
            batch.snapshot,
            findings,
            self._settings,
            is_allowed=batch.aside is not None,
        )
        if findings.items:
            await self._edit(batch, findings, draft)
            if draft.blocked:
                raise DreamBlocked(draft.blocked)
        return await finish_in_thread(lambda: self._keep(batch, draft))

    async def _find(self, batch: Batch) -> Findings:
        """Compare the entries with the files: the first phase."""
        shown = self._shown(batch.snapshot, "History", render_history(batch.entries))
        outcome = await self._ask("dream-find", shown)
        findings = admit(self._files, parse_findings(outcome.content), batch.entries)
        if findings.rejected:
            self._log.info("Dream: {} lines are not findings", findings.rejected)
        return findings

    async def _edit(self, batch: Batch, findings: Findings, draft: Draft) -> None:
        """Carry out the findings in the draft: the second phase."""
        shown = self._shown(batch.snapshot, "Findings", render_findings(findings))
        tools = tools_for(self._files, draft, is_owners="USER.md" in self._files.names)
        await self._ask("dream-edit", shown, tools, is_blocked=lambda: bool(draft.blocked))

    async def _ask(
        self,
        text: str,
        shown: str,
        tools: tuple[Tool, ...] = (),
        is_blocked: Callable[[], bool] = lambda: False,
    ) -> TaskOutcome:
        system = await asyncio.to_thread(prompt, self._ctx, f"nanobot_memory:{text}")
        task = AgentTask(
            purpose="dream",
            messages=(Message(role="system", content=system), Message(role="user", content=shown)),
            tools=tools,
            model=self._settings.dream.model or self._settings.model,
            max_iterations=_ITERATIONS,
        )
        try:
            async with asyncio.timeout(PHASE_LIMIT_S):
                outcome = await self._ctx.agent.run(task)
        except TimeoutError as error:
            raise DreamFailed(f"the model took more than {PHASE_LIMIT_S:g} seconds") from error
        if outcome.stop_reason == "budget":
            raise DreamPostponed("a budget is used up")
        if outcome.stop_reason != "completed" and not is_blocked():
            raise DreamFailed(f"the model's run ended early ({outcome.stop_reason})")
        return outcome

    def _shown(self, snapshot: Snapshot, heading: str, rest: str) -> str:
        shown = render_files(self._files, snapshot, self._settings.file_tokens)
        return render_request(self._ctx.clock.now(), shown, heading, rest)

    def _next(self) -> Batch:
        files, now = self._files, self._ctx.clock.now()
        finish_pending(files, now)
        keep_edits(files, now)
        snapshot = take_snapshot(files)
        unread = files.all_entries(files.dream_cursor)
        room = self._ctx.agent.context_budget() // 2
        room -= sum(estimate_tokens(text) for text in snapshot.texts.values())
        taken: list[HistoryEntry] = []
        for entry in unread[: self._settings.dream.batch]:
            room -= estimate_tokens(entry.content)
            if taken and room < 0:
                break
            taken.append(entry)
        left, state = len(unread) - len(taken), load_state(files)
        if taken:
            # Written before the model is asked: a full disk costs no tokens.
            state = state.model_copy(update={"next_at": 0.0})
            save_state(files, state)
        return Batch(tuple(taken), snapshot, state, left=left)

    def _again(self, aside: Aside) -> Batch:
        files, now = self._files, self._ctx.clock.now()
        finish_pending(files, now)
        keep_edits(files, now)
        found = files.all_entries(aside.first - 1)
        entries = tuple(entry for entry in found if entry.cursor <= aside.last)
        return Batch(entries, take_snapshot(files), load_state(files), aside)

    def _drop(self, aside: Aside) -> None:
        state = load_state(self._files)
        kept = tuple(each for each in state.aside if each != aside)
        save_state(self._files, state.model_copy(update={"aside": kept}))

    def _keep(self, batch: Batch, draft: Draft) -> str:
        now, changed = self._ctx.clock.now(), draft.changed()
        first, last = batch.entries[0].cursor, batch.entries[-1].cursor
        state = DreamState(aside=tuple(each for each in batch.state.aside if each != batch.aside))
        cursor = last if batch.aside is None else None
        title = f"dream: {now:%Y-%m-%d %H:%M}, {len(changed)} change(s)"
        message = f"{title}\n\n{ENTRIES}: {first}-{last}\n{CURSOR}: {last}\n"
        changes = {
            path: FileChange(before=before, after=after)
            for path, (before, after) in changed.items()
        }
        pending = Pending(changes=changes, message=message, cursor=cursor, state=state)
        made = apply(self._files, pending, now)
        read = f"Read the history {_numbers(first, last)}"
        what = f"changed {', '.join(sorted(changes))}" if changes else "nothing to change"
        which = f" (`/dream-log {made[:7]}`)" if made else ""
        left = f" Not read yet: {batch.left}; dream again." if batch.left else ""
        return f"{read}: {what}{which}.{left}{_asides(state)}"

    def _failed(self, batch: Batch, reason: str, *, counts: bool) -> str:
        attempts = batch.state.attempts + counts
        if attempts >= ATTEMPTS:
            return self._set_aside(batch, reason, is_blocked=False)
        delay_s = BACK_OFF_S * 4 ** max(attempts - 1, 0)
        next_at = self._ctx.clock.now().timestamp() + delay_s
        state = batch.state.model_copy(update={"attempts": attempts, "next_at": next_at})
        save_state(self._files, state)
        self._log.info("Dream failed and will try again: {}", reason)
        return f"Dream failed: {reason}. The next run after {delay_s / 60:.0f} minutes tries again."

    def _set_aside(self, batch: Batch, reason: str, *, is_blocked: bool) -> str:
        first, last = batch.entries[0].cursor, batch.entries[-1].cursor
        aside = Aside(first=first, last=last, reason=reason, is_blocked=is_blocked)
        kept = [each for each in batch.state.aside if each.last != last]
        state = DreamState(aside=(*kept, aside))
        save_state(self._files, state)
        self._files.dream_cursor = last
        report = (
            f"The history {_numbers(first, last)} is set aside: {reason}. `/dream retry` reads "
            + ("it again and allows that" if is_blocked else "it again")
        )
        self._log.warning("{}", report)
        return f"{report}."


def _asides(state: DreamState) -> str:
    if not state.aside:
        return ""
    numbers = ", ".join(_numbers(each.first, each.last) for each in state.aside)
    return f" Set aside: the history {numbers}; `/dream retry` reads it again."


def _numbers(first: int, last: int) -> str:
    return f"entry {first}" if first == last else f"entries {first} to {last}"
