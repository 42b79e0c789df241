"""Roster: the devices of people, as they were first seen and as the homeserver lists them now.

Methods take `Keys`, and run in a transaction, in the thread of the vault. It needs vodozemac.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from nanobot_matrix.signature import Device, devices_of, fingerprint, is_trusted, master_key_of
from nanobot_matrix.wire import as_id

if TYPE_CHECKING:
    from nanobot_matrix import wire
    from nanobot_matrix.vault import Keys

_DEVICES = 200
"""Most devices of a person that are known."""
_COLUMNS = "user_id, device_id, curve25519, ed25519, master"


@dataclass(frozen=True, slots=True)
class Roster:
    """The devices of people.

    The keys of a device, and the master key of a person, are the first that were seen: if the
    homeserver gives others later, these count for nothing.

    Attributes:
        own_user: the agent itself. Other devices of its account must be listed: it has no master
            key, so that the homeserver could add one.
        listed: `MatrixSettings.trusted_keys`.
        listed_only: `MatrixSettings.e2e_verified_only`.
    """

    own_user: str
    listed: Mapping[str, Collection[str]]
    listed_only: bool

    def note_changes(self, keys: Keys, users: Iterable[object] | None) -> int:
        """Note that the devices of these people (``None``: of all) have changed.

        Returns:
            Number of people whose devices were known.
        """
        if users is None:
            return keys.change("UPDATE users SET changes = changes + 1")
        statement = "UPDATE users SET changes = changes + 1 WHERE user_id = ?"
        return sum(keys.change(statement, user) for user in map(as_id, users) if user)

    def outdated(self, keys: Keys, users: Iterable[str]) -> dict[str, int]:
        """Return the people whose devices must be asked for, with their number of changes.

        From now on, changes of their devices are noted.
        """
        found = {}
        for user in users:
            keys.change("INSERT OR IGNORE INTO users VALUES (?, 1, 0, '')", user)
            ((changes, asked),) = keys.numbers(
                "SELECT changes, asked FROM users WHERE user_id = ?", user
            )
            if changes != asked:
                found[user] = changes
        return found

    def store(self, keys: Keys, asked: Mapping[str, int], answer: wire.DeviceKeys) -> list[str]:
        """Store the devices of the people of `outdated`, and return what is wrong with them.

        Someone whose devices have changed since `outdated` remains outdated.
        """
        problems: list[str] = []
        for user, changes in asked.items():
            if user.partition(":")[2] in answer.failures and user not in answer.device_keys:
                continue
            problems += self._store_person(keys, user, answer)
            keys.change("UPDATE users SET asked = ? WHERE user_id = ?", changes, user)
        return problems

    def _store_person(self, keys: Keys, user: str, answer: wire.DeviceKeys) -> list[str]:
        problems, master = [], master_key_of(user, answer)
        known = self.master(keys, user)
        if master and not known:
            keys.change("UPDATE users SET master = ? WHERE user_id = ?", master, user)
        elif master and master != known:
            problems.append(
                f"the master key of {user} is now '{fingerprint(master)}'; if that is right, add "
                f"it to channels.matrix.trusted_keys"
            )
        before = {
            row[0]: row[1:]
            for row in keys.all(
                "SELECT device_id, curve25519, ed25519 FROM devices WHERE user_id = ?", user
            )
        }
        keys.change("UPDATE devices SET is_gone = 1 WHERE user_id = ?", user)
        for device in devices_of(user, answer)[:_DEVICES]:
            if before.get(device.device_id, (device.curve25519, device.ed25519)) != (
                device.curve25519,
                device.ed25519,
            ):
                problems.append(
                    f"device {device.device_id} of {user} has other keys than before, which are "
                    "not accepted"
                )
                continue
            keys.change(
                "INSERT OR REPLACE INTO devices VALUES (?, ?, ?, ?, ?, 0)",
                *(user, device.device_id, device.curve25519, device.ed25519, device.master),
            )
        return problems

    def master(self, keys: Keys, user: str) -> str:
        """Return the master key of a person that was seen first, or an empty text."""
        found = keys.all("SELECT master FROM users WHERE user_id = ?", user)
        return found[0][0] if found else ""

    def is_trusted(self, keys: Keys, device: Device) -> bool:
        """Whether a device may read what the agent writes, and speaks for its person."""
        master = self.master(keys, device.user_id)
        listed_only = self.listed_only or device.user_id == self.own_user
        return is_trusted(device, master, self.listed, listed_only=listed_only)

    def devices(self, keys: Keys, users: Iterable[str]) -> list[Device]:
        """Return the devices that people have now, trusted or not.

        A device that was removed no longer speaks for its person: it may have been stolen.
        """
        query = f"SELECT {_COLUMNS} FROM devices WHERE user_id = ? AND is_gone = 0"  # noqa: S608
        return [Device(*row) for user in users for row in keys.all(query, user)]

    def with_key(self, keys: Keys, user: str, curve25519: str) -> list[Device]:
        """Return the devices that a person has now with an identity key."""
        return [each for each in self.devices(keys, [user]) if each.curve25519 == curve25519]
