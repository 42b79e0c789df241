"""Quotation marks that models and editors take for each other."""

SINGLE_QUOTES = "'\u2018\u2019\u201a\u201b\u2032"
DOUBLE_QUOTES = '"\u201c\u201d\u201e\u201f\u2033'
PLAIN_QUOTES = {
    **dict.fromkeys(map(ord, SINGLE_QUOTES), "'"),
    **dict.fromkeys(map(ord, DOUBLE_QUOTES), '"'),
}
"""For ``str.translate``: each mark to the one on the keyboard."""
