"""PagePrompt: the owner before the page, as a person who signs in."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING, Final

from markupsafe import Markup

if TYPE_CHECKING:
    from nanobot_core import LoginPrompt

MAX_NOTES: Final = 10
MAX_CODE_CHARS: Final = 1_000
"""Of a QR code. Longer ones take seconds to compute, and few phones can read them."""
MAX_PASTED_CHARS: Final = 4_000


class PagePrompt:
    """Holds what a sign-in shows, for pages that ask for it again and again.

    Attributes:
        notes: its last lines, the oldest first.
        picture: the QR code, or empty.
        address: page of the service, or empty.
        code: what the person enters there.
        is_asked: the sign-in waits for a line of the person.
    """

    def __init__(self) -> None:
        self.notes: deque[str] = deque(maxlen=MAX_NOTES)
        self.picture: Markup = Markup()
        self.address: str = ""
        self.code: str = ""
        self.is_asked: bool = False
        self._pasted = asyncio.Queue[str](maxsize=1)

    @property
    def has_link(self) -> bool:
        """Whether the address is one that a browser opens, and not a script."""
        return self.address.startswith(("https://", "http://"))

    async def show(self, address: str, *, code: str = "", limit_s: float) -> None:
        """Show an address and a code."""
        self.address, self.code = address, code
        self.notes.append(f"Waiting for {limit_s / 60:.0f} minutes at most.")

    async def scan(self, text: str) -> None:
        """Show a QR code instead of the one before."""
        try:
            self.picture = await asyncio.to_thread(draw_code, text)
        except ValueError:
            self.picture = Markup()
            self.notes.append("The code is too long for a picture; run the sign-in in a terminal.")

    async def note(self, text: str) -> None:
        """Show a line; the same one again, as with each renewed code, is shown once."""
        if text in self.notes:
            self.notes.remove(text)
        self.notes.append(text)

    async def pasted(self) -> str:
        """Wait for the next line of the person."""
        self.is_asked = True
        try:
            return await self._pasted.get()
        finally:
            self.is_asked = False

    def paste(self, text: str) -> bool:
        """Give a line to the sign-in; False if it does not wait for one."""
        if not self.is_asked or self._pasted.full():
            return False
        self._pasted.put_nowait(text)
        return True


def draw_code(text: str) -> Markup:
    """Return a QR code as an SVG element without text of `text`, black on white in any scheme.

    Raises:
        ValueError: `text` is empty or too long.
    """
    import segno

    if not 0 < len(text) <= MAX_CODE_CHARS:
        msg = f"expected 1 to {MAX_CODE_CHARS} characters"
        raise ValueError(msg)
    drawn = segno.make(text, micro=False).svg_inline(
        border=4, dark="#000", light="#fff", omitsize=True, svgclass="qr", lineclass=None
    )
    return Markup(drawn)  # noqa: S704 - segno writes numbers only


if TYPE_CHECKING:
    _prompt: LoginPrompt = PagePrompt()
