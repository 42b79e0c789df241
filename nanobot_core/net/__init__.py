"""Network access: what may be reached on a model's wish, and the HTTP client for it.

Also what every plugin that calls a service needs: its failures as our errors, and how long it asks
to wait. `fetch`, `unpacked_body`, `guarded_client`, `GuardedTransport` and `failure_of` need httpx,
which the core does not depend on: a plugin that uses them lists ``httpx`` itself.
Their modules are imported when first used (PEP 562).
"""

from __future__ import annotations

import importlib
import sys

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.net.download import (
        BoundedResponse as BoundedResponse,
        FetchFailed as FetchFailed,
        FetchLimits as FetchLimits,
        fetch as fetch,
        unpacked_body as unpacked_body,
    )
    from nanobot_core.net.failure import (
        HTTPX_ERRORS as HTTPX_ERRORS,
        failure_of as failure_of,
    )
    from nanobot_core.net.policy import (
        Address as Address,
        NetworkPolicy as NetworkPolicy,
        TargetRefused as TargetRefused,
    )
    from nanobot_core.net.resolver import Resolver as Resolver, resolve_checked as resolve_checked
    from nanobot_core.net.retry_after import retry_after_s as retry_after_s
    from nanobot_core.net.transport import (
        GuardedTransport as GuardedTransport,
        guarded_client as guarded_client,
    )

# httpx imports its command line if rich, pygments and click are installed: a third of its import
# time. With this entry, which halts an import, it does without, as if they were not installed.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

_HOMES = {
    name: f"nanobot_core.net.{module}"
    for module, names in {
        "download": "BoundedResponse FetchFailed FetchLimits fetch unpacked_body",
        "failure": "HTTPX_ERRORS failure_of",
        "policy": "Address NetworkPolicy TargetRefused",
        "resolver": "Resolver resolve_checked",
        "retry_after": "retry_after_s",
        "transport": "GuardedTransport guarded_client",
    }.items()
    for name in names.split()
}
"""Public name to the module that defines it."""

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        msg = f"module 'nanobot_core.net' has no attribute '{name}'"
        raise AttributeError(msg)
    value: object = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted([*globals(), *_HOMES])
