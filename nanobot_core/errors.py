"""Every exception of nanobot, in one tree whose families say who must act.

::

    NanobotError
    ├── ConfigError                  the owner edits the configuration
    │   ├── ConfigInvalid            values that do not fit, all of them at once
    │   ├── ConfigUnreadable         a file that cannot be read or parsed
    │   └── NoProvider               no provider can serve the model
    ├── PluginError                  the plugin's author, or the owner who installed it
    │   ├── PluginNotFound           named but not installed
    │   ├── PluginLoadFailed         its code does not import or start
    │   ├── PluginRejected           what it contributes breaks a rule
    │   ├── StateFull                its small store has no room
    │   └── NameConflict             two plugins claim one name
    ├── InstallError                 what to install, its author, or the environment
    ├── HookError                    a failed implementation refuses its action
    ├── ProviderError                the model service
    │   ├── ProviderTimeout
    │   ├── RateLimited              retry_after_s
    │   ├── Overloaded               retry_after_s
    │   ├── Unreachable
    │   ├── ProviderProtocolError    an unusable answer
    │   │   └── AnswerTooLong        it exceeds a limit of size or time
    │   ├── AuthenticationFailed
    │   ├── BadRequest
    │   └── ContextTooLong
    ├── ToolError                    the model reads it
    │   ├── ToolInputError           it may correct its call
    │   ├── ToolFailed               final for this call
    │   ├── ToolDenied               a policy said no
    │   └── ToolTimeout
    ├── ChannelError                 the channel's supervisor
    │   └── DeliveryError            retryable, retry_after_s
    ├── SessionError                 the session store
    ├── BusError                     the message queue
    │   └── BusFull                  too many messages wait
    ├── PanelError                   the owner, who looks at a page of a plugin
    └── LimitError                   a budget or limit that the owner set
        └── BudgetExceeded

A class takes fields and builds its message: what was expected, what was found, what to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

from nanobot_core.record import dataclass

if TYPE_CHECKING:
    from collections.abc import Sequence


FOREIGN_ERRORS: Final = (Exception, SystemExit, KeyboardInterrupt)
"""What code of plugins and libraries may raise, besides the cancellation of its task.

Caught only at isolation points, where the host calls such code: the failure becomes an error of
ours, or is reported, and the host continues.
"""


class NanobotError(Exception):
    """Base of all errors raised on purpose."""


class ConfigError(NanobotError):
    """The configuration must change."""


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A finding about one value of the configuration.

    Attributes:
        path: key path such as ``tools.exec.timeout_s``.
        expected: what would be accepted, in words.
        file: file that holds the value, or the name of another source such as ``environment``.
        line: line in that file, from 1; ``None`` if the source has no lines.
        found: the value as text; ``None`` if it is absent or may be a secret.
        remedy: what to do; empty if ``expected`` suffices.
        level: an ``error`` forbids every use; ``missing`` is a placeholder without a value, which
            forbids the use of this value; a ``warning`` is a key without effect.
    """

    path: str
    expected: str
    file: str | None = None
    line: int | None = None
    found: str | None = None
    remedy: str = ""
    level: Literal["error", "missing", "warning"] = "error"

    def __str__(self) -> str:
        place = self.file or "configuration"
        if self.line is not None:
            place = f"{place}:{self.line}"
        subject = f"{place}: {self.path}" if self.path else place
        found = "" if self.found is None else f", found {self.found}"
        remedy = f"; {self.remedy}" if self.remedy else ""
        return f"{subject}: {self.expected}{found}{remedy}"


class ConfigInvalid(ConfigError):
    """Values that cannot be used, all of them at once."""

    def __init__(self, problems: Sequence[ConfigProblem]) -> None:
        self.problems: tuple[ConfigProblem, ...] = tuple(problems)
        super().__init__("\n".join(str(problem) for problem in self.problems))


class ConfigUnreadable(ConfigError):
    """A configuration file cannot be read or is neither YAML nor JSON."""

    def __init__(self, file: str, reason: str, line: int | None = None) -> None:
        self.file: str = file
        self.reason: str = reason
        self.line: int | None = line
        place = f"'{file}'" if line is None else f"'{file}', line {line}"
        super().__init__(f"cannot read configuration {place}: {reason}")


class NoProvider(ConfigError):
    """No installed and configured provider serves the model."""

    def __init__(self, model: str | None, remedy: str) -> None:
        self.model: str | None = model
        self.remedy: str = remedy
        wanted = f"model '{model}'" if model else "any model"
        super().__init__(f"no provider is configured for {wanted}; {remedy}")


class PluginError(NanobotError):
    """A plugin cannot do its part."""

    def __init__(self, plugin: str, reason: str, remedy: str = "") -> None:
        self.plugin: str = plugin
        self.reason: str = reason
        self.remedy: str = remedy
        super().__init__(f"plugin '{plugin}': {reason}" + (f"; {remedy}" if remedy else ""))


class PluginNotFound(PluginError):
    """A plugin is named but not installed."""


class PluginLoadFailed(PluginError):
    """A plugin's code does not import, or its start failed."""


class PluginRejected(PluginError):
    """What a plugin contributes breaks a rule of its contract."""


class StateFull(PluginError):
    """The store of a plugin, `PluginContext.state`, would exceed its limit; it is unchanged."""

    def __init__(self, plugin: str, wanted_bytes: int, limit_bytes: int) -> None:
        self.wanted_bytes: int = wanted_bytes
        self.limit_bytes: int = limit_bytes
        super().__init__(
            plugin,
            f"its state would have {wanted_bytes} bytes, and {limit_bytes} is the limit",
            "its author should keep files in ctx.data_dir instead",
        )


class NameConflict(PluginError):
    """Two plugins claim one name."""

    def __init__(self, kind: str, name: str, owners: Sequence[str]) -> None:
        self.kind: str = kind
        self.name: str = name
        self.owners: tuple[str, ...] = tuple(owners)
        claimants = " and ".join(f"'{owner}'" for owner in self.owners)
        super().__init__(
            self.owners[-1],
            f"{kind} '{name}' is claimed by {claimants}",
            f"disable one of them or set an alias for {kind} '{name}'",
        )


class InstallError(NanobotError):
    """A plugin was not installed, upgraded or removed; the environment is as before."""

    def __init__(self, what: str, reason: str, remedy: str = "") -> None:
        self.what: str = what
        self.reason: str = reason
        self.remedy: str = remedy
        super().__init__(f"{what}: {reason}" + (f"; {remedy}" if remedy else ""))


class HookError(NanobotError):
    """A hook implementation failed."""

    def __init__(self, hook: str, plugin: str, reason: str) -> None:
        self.hook: str = hook
        self.plugin: str = plugin
        self.reason: str = reason
        super().__init__(f"hook '{hook}' of plugin '{plugin}' failed: {reason}")


class ProviderError(NanobotError):
    """A model service did not give a usable answer.

    Attributes:
        retryable: the same request may succeed later; by default as the class says.
        retry_after_s: seconds the service asked to wait, or ``None``.
    """

    retryable: bool = False

    def __init__(
        self,
        provider: str,
        reason: str,
        *,
        retry_after_s: float | None = None,
        status: int | None = None,
        retryable: bool | None = None,
    ) -> None:
        if retryable is not None:
            self.retryable = retryable
        self.provider: str = provider
        self.reason: str = reason
        self.retry_after_s: float | None = retry_after_s
        self.status: int | None = status
        super().__init__(f"provider '{provider}': {reason}")


class ProviderTimeout(ProviderError):
    """The service did not answer, or stopped answering, within its time."""

    retryable = True


class RateLimited(ProviderError):
    """The service refuses more requests for now."""

    retryable = True


class Overloaded(ProviderError):
    """The service failed on its side (HTTP 5xx)."""

    retryable = True


class Unreachable(ProviderError):
    """No connection to the service, or it broke."""

    retryable = True


class ProviderProtocolError(ProviderError):
    """The answer of the service is not a model response."""

    retryable = True


class AnswerTooLong(ProviderProtocolError):
    """The answer exceeds a limit of size or time; none of its parts is used.

    The same request would most likely fail again, so only another model is tried.
    """

    retryable = False


class AuthenticationFailed(ProviderError):
    """The service does not accept the credentials."""


class BadRequest(ProviderError):
    """The service refuses the request as it is."""


class ContextTooLong(BadRequest):
    """The request does not fit the model's context window."""


class ToolError(NanobotError):
    """A tool call gave no result; the text is written for the model."""


class ToolInputError(ToolError):
    """The arguments cannot be used; the model may correct them."""


class ToolFailed(ToolError):
    """The call failed for good."""


class ToolDenied(ToolError):
    """A policy or the owner refused the call."""


class ToolTimeout(ToolError):
    """The call overran its time."""

    def __init__(self, tool: str, limit_s: float) -> None:
        self.tool: str = tool
        self.limit_s: float = limit_s
        super().__init__(f"{tool} did not finish within {limit_s:g} seconds and was stopped")


class ChannelError(NanobotError):
    """A channel cannot run.

    Attributes:
        needs_owner: it cannot run before its owner does something, such as correct a token; it is
            reported at once, and hardly tried again.
    """

    def __init__(self, reason: str, *, needs_owner: bool = False) -> None:
        self.needs_owner: bool = needs_owner
        super().__init__(reason)


class DeliveryError(ChannelError):
    """A message was not delivered.

    Attributes:
        retryable: the same message may be accepted later.
        retry_after_s: seconds the platform asked to wait, or ``None``.
    """

    def __init__(
        self, channel: str, reason: str, *, retryable: bool, retry_after_s: float | None = None
    ) -> None:
        self.channel: str = channel
        self.reason: str = reason
        self.retryable: bool = retryable
        self.retry_after_s: float | None = retry_after_s
        super().__init__(f"channel '{channel}' did not deliver: {reason}")


class SessionError(NanobotError):
    """A session cannot be read or written.

    Attributes:
        is_temporary: the medium has no room or does not answer; the same may succeed later.
    """

    def __init__(self, session_key: str, reason: str, *, is_temporary: bool = False) -> None:
        self.session_key: str = session_key
        self.reason: str = reason
        self.is_temporary: bool = is_temporary
        super().__init__(f"session '{session_key}': {reason}")


class BusError(NanobotError):
    """The message queue cannot accept or hand out a message."""


class BusFull(BusError):
    """Too many messages are waiting."""

    def __init__(self, waiting: int, limit: int) -> None:
        self.waiting: int = waiting
        self.limit: int = limit
        super().__init__(f"{waiting} messages are waiting, the limit is {limit}; try again later")


class PanelError(NanobotError):
    """A panel cannot show a view or do an action; its text says why."""


class LimitError(NanobotError):
    """Work stopped at a limit that the owner set."""


class BudgetExceeded(LimitError):
    """A budget of tokens or money is used up."""

    def __init__(self, scope: str, used: str, limit: str) -> None:
        self.scope: str = scope
        self.used: str = used
        self.limit: str = limit
        super().__init__(
            f"the {scope} budget is used up ({used} of {limit}); to continue, raise budgets.{scope}"
        )
