"""Who may write."""

from __future__ import annotations

import pytest
from hypothesis import given, strategies as st

from nanobot_core.channels.access import decide, fault_of, is_listed, is_owner, with_names
from nanobot_core.config.models import ChannelSettings, GroupSettings
from tests.unit.channels.conftest import inbound

NAMES = st.text("abcXYZßé_.", min_size=1, max_size=6)
IDS = st.text("0123456789abcXYZ-", min_size=1, max_size=6)


@pytest.mark.parametrize(
    ("sender", "entries", "is_in"),
    [
        ("7|Ann", ["7"], True),
        ("7|Ann", ["77", "07", " 7", "7 "], False),
        ("1|bob", ["1|bob"], True),
        ("1|bob", ["1|Bob", "2|bob", "1|bob|x", "bob|1", "|bob", "1|"], False),
        ("2|bob", ["1|bob"], False),
        ("1", ["1|bob"], False),
        ("1|bob|x", ["1|bob"], False),
        ("abC", ["abC"], True),
        ("abC", ["abc", "ABC"], False),
        ("7|Ann", ["ann"], True),
        ("7|Ann", ["@ANN"], True),
        ("7|@Ann", ["ann"], True),
        ("7|Ann|Annie", ["annie"], True),
        ("7|Ann", ["an", "anna", "Ann|7"], False),
        ("7|12345", ["12345"], False),
        ("7|-12345", ["-12345"], False),
        ("-100", ["-100"], True),
        ("7|Ann", [], False),
        ("7|Ann", ["", " ", "@", "@@"], False),
        ("|", ["", "@", "|"], False),
        ("", [""], False),
        ("7|@", ["@"], False),
        ("7|", [""], False),
        ("7|Ann", ["*"], True),
        ("7|*", ["**"], False),
    ],
)
def test_a_list_admits_whom_it_names(sender: str, entries: list[str], is_in: bool) -> None:
    assert is_listed(sender, entries) is is_in


@given(IDS, st.lists(IDS, max_size=4))
def test_ids_are_matched_exactly(sender: str, entries: list[str]) -> None:
    assert is_listed(sender, entries) is (sender in entries)


@given(IDS, NAMES)
def test_names_are_matched_without_regard_to_case(identity: str, name: str) -> None:
    sender = f"{identity}|{name}"
    assert is_listed(sender, [name.upper()])
    assert is_listed(sender, [f"@{name.lower()}"])


@given(st.text("0123456789", min_size=1, max_size=8), st.text("0123456789", min_size=1))
def test_a_name_of_digits_never_passes_for_an_id(identity: str, name: str) -> None:
    assert is_listed(f"{identity}|{name}", [name]) is (identity == name)


@given(st.text(max_size=8), st.lists(st.sampled_from(["", " ", "\t", "@", " @ "])))
def test_an_empty_entry_admits_nobody(sender: str, entries: list[str]) -> None:
    identity = sender.partition("|")[0]
    assert not is_listed(sender, [entry for entry in entries if entry != identity])


def test_nobody_is_admitted_by_default() -> None:
    assert decide(inbound(), ChannelSettings(), ()) == "unknown"


def test_whom_the_owner_has_approved_is_admitted_by_id() -> None:
    assert decide(inbound(), ChannelSettings(), {"7"}) == "admitted"
    assert decide(inbound(sender_id="8|7"), ChannelSettings(), {"7"}) == "unknown"


@pytest.mark.parametrize(
    ("policy", "is_addressed", "verdict"),
    [
        ("mention", False, "ignored"),
        ("mention", True, "admitted"),
        ("open", False, "admitted"),
        ("deny", True, "ignored"),
    ],
)
def test_a_group_is_answered_as_its_policy_says(
    policy: str, is_addressed: bool, verdict: str
) -> None:
    message = inbound(chat_id="g", is_group=True, is_addressed=is_addressed)
    settings = ChannelSettings.model_validate({"allow_from": ["7"], "group_policy": policy})
    assert decide(message, settings, ()) == verdict
    own = {"allow_from": ["7"], "groups": {"g": {"policy": policy}}, "group_policy": "deny"}
    assert decide(message, ChannelSettings.model_validate(own), ()) == verdict


def test_a_group_of_its_own_list_admits_nobody_else() -> None:
    groups = {"g": GroupSettings(allow_from=["8"]), "empty": GroupSettings(allow_from=[])}
    settings = ChannelSettings(allow_from=["*"], groups=groups, group_policy="open")
    for chat, sender, verdict in [
        ("g", "8", "admitted"),
        ("g", "7", "unknown"),
        ("g:topic", "7", "unknown"),
        ("g:topic", "8", "admitted"),
        ("empty", "7", "unknown"),
        ("other", "7", "admitted"),
    ]:
        message = inbound(chat_id=chat, sender_id=sender, is_group=True)
        assert decide(message, settings, {"7"}) == verdict, (chat, sender)


def test_the_policy_of_groups_does_not_concern_a_chat_of_two() -> None:
    settings = ChannelSettings(allow_from=["7"], group_policy="deny")
    assert decide(inbound(), settings, ()) == "admitted"


@pytest.mark.parametrize(
    ("owners", "sender", "is_one"),
    [
        (["7"], "7|Ann", True),
        (["test:7"], "7|Ann", True),
        (["other:7"], "7|Ann", False),
        (["other:7"], "other:7", False),
        (["test:ann"], "7|Ann", True),
        (["ann"], "7|Ann", False),
        (["ann"], "ann", True),
        (["test:@u:home"], "@u:home", True),
        (["*", "test:*", "", "test:"], "7|Ann", False),
        (["*", "test:*"], "*", False),
        ([], "7", False),
        ([""], "", False),
        (["test:"], "", False),
    ],
)
def test_the_owner_is_known_by_id_and_on_one_channel_by_name(
    owners: list[str], sender: str, is_one: bool
) -> None:
    assert is_owner(inbound(sender_id=sender), owners) is is_one


ANY_ID = st.text(st.sampled_from("ab1|@ \n"), max_size=4)


@given(ANY_ID, st.lists(ANY_ID, max_size=2), st.lists(ANY_ID, max_size=3))
def test_what_people_choose_makes_nobody_another_sender(
    sender: str, names: list[str], others: list[str]
) -> None:
    """A nickname such as ``mallory|owner`` counted as the name ``owner`` behind an id."""
    message = inbound(sender_id=sender, sender_names=tuple(names), channel="test")
    if fault_of(message):
        assert "|" in sender or not sender.isprintable()
        return
    admitted = with_names(message)
    said = {name.strip().lstrip("@").strip() for name in names}
    for other in others:
        known = {sender, *said, admitted.sender_id}
        if other.strip() and other not in known and other.strip().lstrip("@").strip() not in said:
            assert not is_listed(admitted.sender_id, [other])
    assert admitted.sender_id.split("|")[0] == sender
    assert admitted.sender_id.isprintable()
    assert admitted.sender_names == ()


def test_names_are_joined_to_the_id_in_a_form_that_is_read_in_one_way() -> None:
    given_names = ("ann", "x|owner", "a\nb", "\u202eevil", "", " ", "Ann  B")
    message = with_names(inbound(sender_id="7", sender_names=given_names))

    assert message.sender_id == "7|ann|a b|Ann B"


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"sender_id": "mallory|owner"}, "sender_names"),
        ({"sender_id": "|"}, "sender_names"),
        ({"sender_id": "a\nb"}, "the sender's id"),
        ({"sender_id": "a\x1b[31m"}, "the sender's id"),
        ({"sender_id": "\ud800"}, "the sender's id"),
        ({"chat_id": "a\nb"}, "the chat's id"),
        ({"chat_id": "a\u2028b"}, "the chat's id"),
        ({"chat_id": "x|y"}, ""),
        ({"sender_id": "", "chat_id": "@u:home"}, ""),
    ],
)
def test_an_id_that_could_be_read_as_something_else_is_a_fault(
    fields: dict[str, str], fault: str
) -> None:
    found = fault_of(inbound(**fields))
    assert fault in found
    assert bool(fault) == bool(found)


@pytest.mark.parametrize(
    ("chat_id", "groups", "verdict"),
    [
        ("group:cid+/==", {"group:cid+/==": "deny"}, "ignored"),
        ("!room:server", {"!room:server": "deny"}, "ignored"),
        ("!room:server:$thread", {"!room:server": "deny"}, "ignored"),
        ("5:9", {"5": "deny", "5:9": "open"}, "admitted"),
        ("5:8", {"5": "deny", "5:9": "open"}, "ignored"),
        ("group:other", {"group:cid": "deny"}, "admitted"),
        ("55", {"5": "deny", "": "deny"}, "admitted"),
        (":x", {"": "deny"}, "admitted"),
    ],
)
def test_ids_of_groups_may_contain_colons(
    chat_id: str, groups: dict[str, str], verdict: str
) -> None:
    message = inbound(chat_id=chat_id, is_group=True, is_addressed=True)
    rules = {chat: {"policy": policy} for chat, policy in groups.items()}
    settings = ChannelSettings.model_validate({"allow_from": ["*"], "groups": rules})
    assert decide(message, settings, ()) == verdict
