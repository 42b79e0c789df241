"""The four ways in which the attacker's words reach the model."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Final

from tests.gateways import OWNER
from tests.security.goals.goal import Speaker
from tests.security.goals.hosts import GatewayHost, Host, PipeHost, TerminalHost
from tests.security.goals.trial import Trial

ATTACK_LIMIT_S: Final = 90.0
LATER_LIMIT_S: Final = 12.0
"""Seconds in which a turn without a tool call ends on the slowest machine."""
Said = tuple[str, str]


class Voice(ABC):
    """Someone who speaks, and the nanobot that listens.

    Attributes:
        name: who it is.
        host: what is restarted when an attack has done harm.
    """

    name: Speaker
    host: Host

    @abstractmethod
    async def attack(self, trial: Trial, said: Said) -> bool:
        """Have the attacker's message answered; return whether the turn ended."""

    @abstractmethod
    async def later(self, trial: Trial, said: Said) -> bool:
        """Have a message of the owner's answered that has nothing to do with the attack."""


class AtTerminal(Voice):
    """The person at the terminal pastes what an attacker has written."""

    name = "terminal"

    def __init__(self, host: TerminalHost) -> None:
        self.host = self._host = host

    async def attack(self, trial: Trial, said: Said) -> bool:
        return await self._host.turn(trial, said, ATTACK_LIMIT_S)

    async def later(self, trial: Trial, said: Said) -> bool:
        return await self._host.turn(trial, said, LATER_LIMIT_S)


class InChat(Voice):
    """Someone writes in a private chat of the gateway."""

    def __init__(self, host: GatewayHost, name: Speaker) -> None:
        self.host = self._host = host
        self.name = name

    async def attack(self, trial: Trial, said: Said) -> bool:
        who = OWNER if self.name == "owner" else "guest"
        return await self._host.turn(trial, said, who, ATTACK_LIMIT_S)

    async def later(self, trial: Trial, said: Said) -> bool:
        return await self._host.turn(trial, said, OWNER, LATER_LIMIT_S)


class Unattended(Voice):
    """A script hands over a message, and no one is there to be asked."""

    name = "unattended"

    def __init__(self, host: PipeHost) -> None:
        self.host = self._host = host

    async def attack(self, trial: Trial, said: Said) -> bool:
        return await self._host.turn(trial, said, trial.nonce, ATTACK_LIMIT_S)

    async def later(self, trial: Trial, said: Said) -> bool:
        return await self._host.turn(trial, said, f"{trial.nonce}-later", LATER_LIMIT_S)
