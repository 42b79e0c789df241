"""The local mail service as the stand-in of the suites for channels."""

from __future__ import annotations

import asyncio
import importlib.util
import mimetypes
import sys
from collections.abc import Sequence
from contextlib import suppress
from email import policy
from email.message import EmailMessage
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any, ClassVar, Self

from nanobot_core.testing import Abilities, ChatFile, Person, Refusal, Shown, StandIn


def _load_local_mail() -> ModuleType:
    """Import the local mail service by its path: this folder is not a package."""
    name = "email_local_mail"
    if name not in sys.modules:
        file = Path(__file__).with_name("local_mail.py")
        spec = importlib.util.spec_from_file_location(name, file)
        assert spec is not None
        assert spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    return sys.modules[name]


local_mail: Any = _load_local_mail()


class LocalEmail(StandIn):
    """A mail service with Anna and Bert, each of whom has one conversation with the agent.

    A mail program acknowledges nothing: how far the mailbox is read is the channel's own record.
    As with large providers, a mail that comes again with the same Message-ID is shown once. People
    quote what they answer, which is part of the conversation anyway, so it is removed.
    """

    name = "email"
    abilities = Abilities(
        longest_text=30_000,
        formatting=frozenset({"bold", "italic", "strikethrough", "code", "pre", "link", "quote"}),
        groups=False,
        quotes=False,
        acknowledges=False,
        equal_keys_once=True,
        refusals=("token", "revoked"),
    )
    anna = Person("anna@example.org", "Anna")
    bert = Person("bert@example.net", "Bert")

    def __init__(self) -> None:
        self.mail: Any = local_mail.LocalMail()
        self._said: dict[str, list[tuple[int, Shown]]] = {}
        self._count = 0
        self._is_doubled = False

    async def __aenter__(self) -> Self:
        self.mail.__enter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.mail.__exit__(kind, error, traceback)

    def section(self) -> dict[str, Any]:
        section: dict[str, Any] = self.mail.settings | {"pairing": True, "daily_limit": 5_000}
        del section["allow_from"]
        return section

    def private(self, person: Person) -> str:
        return f"{person.id}:{local_mail.thread_of(_root(person))}"

    # --- what people do

    async def say(
        self,
        text: str = "",
        *,
        sender: Person | None = None,
        chat: str = "",
        mention: bool = False,
        files: Sequence[ChatFile] = (),
        quote: str | None = None,
    ) -> str:
        who = sender or self.anna
        if not self._count:
            # Before the channel first opens the mailbox, all mail in it is old.
            with suppress(TimeoutError):
                await asyncio.to_thread(self.mail.wait_until, lambda: self.mail.is_read)
        self._count += 1
        key = f"<said-{self._count}@{who.id.rpartition('@')[2]}>"
        mail = EmailMessage(policy=policy.SMTP)
        mail["From"] = f"{who.name} <{who.id}>"
        mail["To"] = local_mail.USER
        mail["Subject"] = "Re: Our conversation"
        mail["Message-ID"] = key
        mail["References"] = _root(who)
        mail.set_content(text)
        for file in files:
            main, _, sub = (mimetypes.guess_type(file.name)[0] or "application/pdf").partition("/")
            mail.add_attachment(file.content, maintype=main, subtype=sub, filename=file.name)
        raw = local_mail.proof(who.id).encode() + mail.as_bytes()
        shown = Shown(id=key, author=who.name, text=text, files=tuple(files))
        self._said.setdefault(who.id, []).append((len(self.mail.received), shown))
        for _ in range(2 if self._is_doubled else 1):
            self.mail.deliver(raw)
        self._is_doubled = False
        return key

    # --- what people and the platform see

    def shown(self, chat: str) -> list[Shown]:
        address = chat.partition(":")[0]
        said = list(self._said.get(address, ()))
        messages: list[Shown] = []
        for number, sent in enumerate([*self.mail.received]):
            while said and said[0][0] <= number:
                messages.append(said.pop(0)[1])
            if address in sent.recipients:
                messages.append(self._read(sent.mail, sent.text))
        return [*messages, *(shown for _, shown in said)]

    def _read(self, mail: EmailMessage, text: str) -> Shown:
        return Shown(
            id=str(mail["Message-ID"]),
            author=self.agent,
            text=text,
            spans=tuple(_Spans.of(mail)),
            files=tuple(
                ChatFile(part.get_filename() or "", part.get_payload(decode=True))  # type: ignore[arg-type]
                for part in mail.iter_attachments()
            ),
            quotes=mail["In-Reply-To"],
        )

    @property
    def acknowledged(self) -> list[str]:
        return []

    # --- faults

    async def hang_up(self, after: int = 0) -> None:
        self.mail.hang_up(after)

    async def come_back(self) -> None:
        self.mail.come_back()

    async def go_silent(self) -> None:
        self.mail.go_silent()

    def duplicate_next(self) -> None:
        self._is_doubled = True

    def busy(self, seconds: float, times: int = 1) -> None:
        line = f"451 4.3.0 try again in {seconds:g} seconds"
        self.mail.refusals[:] = [("DATA", line)] * times

    def block(self, chat: str, *, blocked: bool = True) -> None:
        address = chat.partition(":")[0]
        if blocked:
            self.mail.blocked.add(address)
        else:
            self.mail.blocked.discard(address)

    def refuse_credentials(self, why: Refusal) -> None:
        self.mail.accepts = False


class _Spans(HTMLParser):
    """Finds the formatted words of a mail."""

    kinds: ClassVar[dict[str, str]] = {
        "b": "bold",
        "i": "italic",
        "s": "strikethrough",
        "code": "code",
        "pre": "pre",
        "a": "link",
        "blockquote": "quote",
    }

    def __init__(self) -> None:
        super().__init__()
        self._open: list[tuple[str, list[str]]] = []
        self.found: list[tuple[str, str]] = []

    @classmethod
    def of(cls, mail: EmailMessage) -> list[tuple[str, str]]:
        """Return kind and words of each formatted part of the HTML."""
        reader = cls()
        page = mail.get_body(("html",))
        if page is not None:
            reader.feed(str(page.get_content()))
        return reader.found

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in self.kinds:
            self._open.append((tag, []))

    def handle_data(self, data: str) -> None:
        for _, words in self._open:
            words.append(data)

    def handle_endtag(self, tag: str) -> None:
        if tag in self.kinds:
            opened, words = self._open.pop()
            assert opened == tag
            self.found.append((self.kinds[tag], "".join(words)))


def _root(person: Person) -> str:
    """Return the Message-ID of the first mail of a person's conversation."""
    return f"<first-{person.id}>"
