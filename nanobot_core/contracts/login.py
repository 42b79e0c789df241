"""Sign-in of a person: to a provider that gives tokens instead of keys, or to a channel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Literal, Protocol, TypeAlias

LoginFlow: TypeAlias = Literal["browser", "device"]
"""``browser``: the person allows the access in a browser, which returns to this machine.
``device``: the person enters a code on a page of the service, on any machine."""


class LoginPrompt(Protocol):
    """The person who signs in, at a terminal or elsewhere."""

    async def show(self, address: str, *, code: str = "", limit_s: float) -> None:
        """Show what the person must open, and open it in a browser if there is one.

        Args:
            address: page of the service.
            code: what the person enters there; empty in the browser flow, in which the person may
                also paste the address that the browser ended at, see `pasted`.
            limit_s: seconds until the sign-in ends without a result.
        """

    async def scan(self, text: str) -> None:
        """Show `text` as a QR code, instead of the one that was shown before."""

    async def note(self, text: str) -> None:
        """Show one line about the progress."""

    async def pasted(self) -> str:
        """Wait for the next line that the person pastes.

        It waits until it is cancelled if the person cannot paste anything.
        """


class ProviderLogin(ABC):
    """Signs in to the service of one provider and out again.

    Tokens are stored with `token_file`, so that the core can say who is signed in without importing
    the plugin.
    """

    @abstractmethod
    async def log_in(self, prompt: LoginPrompt, flow: LoginFlow | None) -> str:
        """Sign in and store the tokens, instead of those stored before.

        Every wait has a limit. Nothing is stored unless the sign-in succeeds.

        Args:
            prompt: the person.
            flow: what the person asked for; ``None`` for the flow that the service prefers.

        Returns:
            The account, such as an e-mail address; empty if the service does not name it.

        Raises:
            AuthenticationFailed: the person or the service refused, or did not answer in time.
            ProviderError: the service cannot be reached, or its answer is unusable.
            ConfigError: the service has no such flow, or a setting is wrong.
            OSError: the tokens cannot be stored.

        Cancellation:
            Nothing is stored; ports and connections are closed.
        """

    @abstractmethod
    async def log_out(self) -> str:
        """Remove the stored tokens, and revoke them if the service allows it.

        Returns:
            What the person should still do, such as an address where access can be withdrawn; empty
            if nothing. Tokens are removed even if they cannot be revoked.

        Raises:
            OSError: the tokens cannot be removed.
        """
