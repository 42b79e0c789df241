"""What channels share, so that a channel plugin is small: it implements `ChatPlatform`.

`ChatChannel` is the channel: it stores what arrives (`Intake`), sends in pieces and shows drafts
(`Delivery`), and remembers what outlives a connection. `render_markdown` and `split_rich` turn
Markdown, as models write it, into text with formatting in parts that a platform takes, and
`write_markup` writes it in the markup of a platform.

It needs markdown-it-py, which the core does not depend on: a plugin that uses it requires
``nanobot-core[chat]``; `open_socket` also needs websockets. Nothing else in the core uses this
package. Modules are imported on first use (PEP 562).
"""

from __future__ import annotations

from nanobot_core.lazy import lazy_names

# Type checkers know this name; importing it from typing would cost every command milliseconds.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from nanobot_core.chat.channel import ChatChannel as ChatChannel
    from nanobot_core.chat.dialects import (
        COMMONMARK as COMMONMARK,
        DISCORD as DISCORD,
        FEISHU as FEISHU,
        HTML as HTML,
        MRKDWN as MRKDWN,
        PLAIN as PLAIN,
        WHATSAPP as WHATSAPP,
    )
    from nanobot_core.chat.failure import CallFailed as CallFailed, Cause as Cause
    from nanobot_core.chat.fields import HttpProxy as HttpProxy, ServiceUrl as ServiceUrl
    from nanobot_core.chat.intake import Intake as Intake
    from nanobot_core.chat.markdown import (
        WEB_SCHEMES as WEB_SCHEMES,
        render_markdown as render_markdown,
    )
    from nanobot_core.chat.markup import Dialect as Dialect, write_markup as write_markup
    from nanobot_core.chat.memory import Recent as Recent, Records as Records
    from nanobot_core.chat.pieces import (
        FILE_KINDS as FILE_KINDS,
        FileKind as FileKind,
        Piece as Piece,
        SendLimits as SendLimits,
        Upload as Upload,
        plan_pieces as plan_pieces,
    )
    from nanobot_core.chat.platform import (
        Attachment as Attachment,
        ChatPlatform as ChatPlatform,
        Received as Received,
    )
    from nanobot_core.chat.rich_text import (
        Measure as Measure,
        RichText as RichText,
        Span as Span,
        SpanKind as SpanKind,
        split_rich as split_rich,
        utf16_length as utf16_length,
        utf16_size as utf16_size,
    )
    from nanobot_core.chat.service import AccessToken as AccessToken, PlatformApi as PlatformApi
    from nanobot_core.chat.socket import (
        HandshakeRefused as HandshakeRefused,
        Socket as Socket,
        SocketClosed as SocketClosed,
        open_socket as open_socket,
        serve_sockets as serve_sockets,
    )
    from nanobot_core.chat.webhook import (
        TakeCall as TakeCall,
        WebhookRoute as WebhookRoute,
        header_of as header_of,
        report_proven as report_proven,
    )

if not TYPE_CHECKING:  # type checkers take the imports above for the list
    _HOMES, __getattr__, __dir__ = lazy_names(
        "nanobot_core.chat",
        {
            "channel": "ChatChannel",
            "dialects": "COMMONMARK DISCORD FEISHU HTML MRKDWN PLAIN WHATSAPP",
            "failure": "CallFailed Cause",
            "fields": "HttpProxy ServiceUrl",
            "intake": "Intake",
            "markdown": "WEB_SCHEMES render_markdown",
            "markup": "Dialect write_markup",
            "memory": "Recent Records",
            "pieces": "FILE_KINDS FileKind Piece SendLimits Upload plan_pieces",
            "platform": "Attachment ChatPlatform Received",
            "service": "AccessToken PlatformApi",
            "rich_text": "Measure RichText Span SpanKind split_rich utf16_length utf16_size",
            "socket": "HandshakeRefused Socket SocketClosed open_socket serve_sockets",
            "webhook": "TakeCall WebhookRoute header_of report_proven",
        },
    )
    __all__ = sorted(_HOMES)  # noqa: PLE0605 - made of the table
