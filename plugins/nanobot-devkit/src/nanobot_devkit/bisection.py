"""``nanobot plugins bisect``: which plugin makes a command fail."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from shutil import which
from typing import Annotated, BinaryIO

import typer

from nanobot_core import NanobotError
from nanobot_devkit.culprit import Names, Verdict, smallest_failing
from nanobot_devkit.program import answer_of, root_options

SKIP = 125
"""Exit code of a command that cannot tell, as in ``git bisect run``."""
DISABLED = "NANOBOT_PLUGINS__DISABLED"
REQUIRED = "NANOBOT_PLUGINS__REQUIRED"
_RUNS = frozenset({"enabled", "isolated"})
_TAIL_BYTES = 4_000
_TAIL_CHARS = 160


class BisectImpossible(NanobotError):
    """Nothing can be learned from the command; the message says why."""


@dataclass(frozen=True, slots=True)
class Step:
    """One try.

    Attributes:
        enabled: the third-party plugins that were enabled.
        verdict: what it has shown.
        how: exit code and last line of the output of a try that did not pass.
    """

    enabled: Names
    verdict: Verdict
    how: str


@dataclass(frozen=True, slots=True)
class Candidates:
    """The plugins in question, and what the configuration says about the others.

    Attributes:
        names: enabled third-party plugins.
        disabled: the plugins that do not run.
        required: the plugins without which nothing starts.
    """

    names: Names
    disabled: Names
    required: Names


def bisect(
    ctx: typer.Context,
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND…", help="What fails.")],
    repeat: Annotated[
        int, typer.Option(min=1, max=100, help="Runs per step; one that fails is enough.")
    ] = 1,
    timeout: Annotated[
        float, typer.Option(min=1, metavar="SECONDS", help="A longer run counts as failed.")
    ] = 300.0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the third-party plugin, or the combination, with which a command fails.

    Runs the command with one half of the plugins, then the other, and so on. The configuration is
    not changed: each run gets the plugins to leave out through the variable
    NANOBOT_PLUGINS__DISABLED, which every command of nanobot and programs with its SDK read. Exit
    code 125 says that a run cannot tell. Exits 1 if no plugin is the cause.

    Example: nanobot plugins bisect -- nanobot agent -m "What time is it?"
    """
    candidates = _candidates(root_options(ctx))
    steps: list[Step] = []

    def tell(step: Step) -> None:
        steps.append(step)
        if not as_json:
            typer.echo(_line(len(steps), step, candidates.names))

    cause = find_cause(candidates, Trial(command, repeat, timeout, candidates), tell)
    if as_json:
        listed = [
            {"enabled": each.enabled, "result": each.verdict.value, "how": each.how}
            for each in steps
        ]
        typer.echo(json.dumps({"cause": cause, "steps": listed}, indent=2, ensure_ascii=False))
        return
    names = " and ".join(f"'{name}'" for name in cause)
    together = " together" if len(cause) > 1 else ""
    typer.echo(f"The command fails because of {names}{together}. Next:\n")
    typer.echo(f"  nanobot plugins inspect {cause[-1]}")
    typer.echo(f"  nanobot plugins disable {cause[-1]}")


def find_cause(
    candidates: Candidates, judge: Callable[[Names], Step], tell: Callable[[Step], None]
) -> Names:
    """Return the smallest combination of plugins with which a command fails.

    Args:
        candidates: the plugins in question.
        judge: runs the command with some of them.
        tell: called with each step.

    Raises:
        BisectImpossible: the command does not fail, or also without them, or it is not certain.
    """

    def verdict(names: Names) -> Verdict:
        step = judge(names)
        tell(step)
        return step.verdict

    if not candidates.names:
        raise BisectImpossible("no third-party plugin is enabled, so none can be the cause")
    if (found := verdict(candidates.names)) is not Verdict.FAILS:
        reason = f"with all plugins, the command {found.value}"
        raise BisectImpossible(f"{reason}; if it fails only at times, use --repeat")
    if (found := verdict(())) is not Verdict.PASSES:
        reason = f"without any third-party plugin, the command {found.value}"
        raise BisectImpossible(f"{reason}, so none of them is the only cause")
    cause = smallest_failing(candidates.names, verdict)
    rest = tuple(name for name in candidates.names if name not in cause)
    if rest and verdict(rest) is Verdict.FAILS:
        message = (
            f"the command fails with {', '.join(cause)} and also without: there is a second "
            "cause, or it fails only at times; disable these and run this again, or use --repeat"
        )
        raise BisectImpossible(message)
    return cause


class Trial:
    """Runs the command with some of the plugins.

    Args:
        command: program and arguments.
        repeat: runs at most; the first one that does not pass decides.
        limit_s: seconds after which a run counts as failed.
        candidates: the plugins in question.
    """

    def __init__(
        self, command: Sequence[str], repeat: int, limit_s: float, candidates: Candidates
    ) -> None:
        self._command = list(command)
        self._repeat = repeat
        self._limit_s = limit_s
        self._candidates = candidates

    def __call__(self, names: Names) -> Step:
        """Return what a run with `names` shows; all other third-party plugins are left out.

        Raises:
            BisectImpossible: the command cannot be started.
        """
        if which(self._command[0]) is None:
            message = f"cannot start '{self._command[0]}': there is no such program"
            raise BisectImpossible(message)
        variables = narrowed(self._candidates, names)
        command = ["env", *map("=".join, variables.items()), *self._command]
        for _ in range(self._repeat):
            with tempfile.TemporaryFile() as output:
                code = self._run(command, output)
                how = _describe(code, output, self._limit_s)
            if code == SKIP:
                return Step(names, Verdict.SKIPPED, how)
            if code != 0:
                return Step(names, Verdict.FAILS, how)
        return Step(names, Verdict.PASSES, "")

    def _run(self, command: Sequence[str], output: BinaryIO) -> int | None:
        """Return the exit code; ``None`` if the command did not end in time."""
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        try:
            return child.wait(self._limit_s)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also what it has started, and at Ctrl-C.
            _end_group(child)


def narrowed(candidates: Candidates, names: Collection[str]) -> dict[str, str]:
    """Return the variables with which only `names` of the candidates are enabled."""
    out = [name for name in candidates.names if name not in names]
    required = [name for name in candidates.required if name not in out]
    return {
        DISABLED: json.dumps([*candidates.disabled, *out]),
        REQUIRED: json.dumps(required),
    }


def _end_group(child: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all have ended
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _describe(code: int | None, output: BinaryIO, limit_s: float) -> str:
    """Return how a run ended, with the last line of its output."""
    if code == 0:
        return ""
    output.seek(0, os.SEEK_END)
    output.seek(max(0, output.tell() - _TAIL_BYTES))
    lines = output.read().decode("utf-8", errors="replace").split("\n")
    last = next((line.strip() for line in reversed(lines) if line.strip()), "")
    if code is None:
        how = f"no end within {limit_s:g} s"
    else:
        how = f"exit code {code}" if code >= 0 else f"signal {-code}"
    return f"{how}: {last[:_TAIL_CHARS]}" if last else how


def _line(number: int, step: Step, names: Names) -> str:
    if step.enabled == names:
        which = f"all {len(names)} plugins"
    elif not step.enabled:
        which = "no third-party plugin"
    else:
        which = ", ".join(step.enabled)
    how = f" ({step.how})" if step.how else ""
    return f"{number}. with {which}: {step.verdict.value}{how}"


def _candidates(options: Sequence[str]) -> Candidates:
    """Ask the command line which plugins are enabled, and which of them are not nanobot's.

    Raises:
        BisectImpossible: a gateway runs, which has its plugins and would answer for the command.
    """
    if answer_of("gateway", "status") is not None:
        message = (
            "a gateway runs here, with plugins that do not change from step to step; stop it with "
            "nanobot gateway stop, or name another home with NANOBOT_HOME"
        )
        raise BisectImpossible(message)
    every, safe = _states(options), _states([*options, "--safe"])
    enabled = {name for name, state in every.items() if state in _RUNS}
    found: object = json.loads(_ask(*options, "config", "get", "plugins.required", "--json"))
    return Candidates(
        names=tuple(sorted(name for name in enabled if safe.get(name) not in _RUNS)),
        disabled=tuple(sorted(every.keys() - enabled)),
        required=tuple(map(str, found)) if isinstance(found, list) else (),
    )


def _states(options: Sequence[str]) -> dict[str, str]:
    data = json.loads(_ask(*options, "plugins", "list", "--json"))
    return {each["id"]: each["state"] for each in data["plugins"]}


def _ask(*words: str) -> str:
    def refuse(reason: str) -> None:
        raise BisectImpossible(reason)

    return answer_of(*words, explain=refuse) or ""
