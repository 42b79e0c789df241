"""Network access: the addresses that a model's requests may reach, and the HTTP client for them.

Also for every plugin that calls a service: failures as our errors, and ``Retry-After``. All but
`NetworkPolicy`, `PluginHosts`, `TargetRefused`, `resolve_checked` and `redirect_listener` need
httpx, which the core does not depend on: a plugin that uses them lists ``httpx`` itself. Modules
are imported on first use (PEP 562).
"""

from __future__ import annotations

import sys

from nanobot_core.lazy import lazy_names

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.net.declared import (
        HostNotDeclared as HostNotDeclared,
        plugin_client as plugin_client,
    )
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
        retry_after_s as retry_after_s,
    )
    from nanobot_core.net.policy import (
        Address as Address,
        NetworkPolicy as NetworkPolicy,
        PluginHosts as PluginHosts,
        Resolver as Resolver,
        TargetRefused as TargetRefused,
        resolve_checked as resolve_checked,
    )
    from nanobot_core.net.redirect import (
        RedirectListener as RedirectListener,
        redirect_listener as redirect_listener,
    )
    from nanobot_core.net.transport import (
        GuardedTransport as GuardedTransport,
        guarded_client as guarded_client,
    )

# httpx imports its command line, and with it rich, pygments and click, if these are installed: a
# tenth of a short command's time. ``None`` makes this import fail as if they were not. Nothing but
# the function `httpx.main` is missing then, unless the program imported httpx before.
sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    _HOMES, __getattr__, __dir__ = lazy_names(
        "nanobot_core.net",
        {
            "declared": "HostNotDeclared plugin_client",
            "download": "BoundedResponse FetchFailed FetchLimits fetch unpacked_body",
            "failure": "HTTPX_ERRORS failure_of retry_after_s",
            "policy": "Address NetworkPolicy PluginHosts Resolver TargetRefused resolve_checked",
            "redirect": "RedirectListener redirect_listener",
            "transport": "GuardedTransport guarded_client",
        },
    )
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table
