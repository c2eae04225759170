"""Rewrites the names of a trace, such as ORDERS, to names that no other run uses.

The one place that says which tokens of a subject are names:

- the first token of an ordinary subject is one (``ORDERS.new``), the tokens behind it are not;
- in a subject that starts with ``$`` (``$JS.ACK...``) every token that the trace has as a name is;
- ``$inbox``, any ``$`` with a lower-case word, and ``_INBOX.word`` are inboxes of the session.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

INBOX_PREFIX = "_INBOX"
_INBOX_WORD = re.compile(r"\$([a-z][a-z0-9_]*)")


def inbox_label(token: str) -> str | None:
    """``$reply`` -> ``reply``; None for any other token."""
    match = _INBOX_WORD.fullmatch(token)
    return match[1] if match else None


class Names(Struct, frozen=True):
    """What stands on the wire for the ``labels`` of a trace."""

    labels: Collection[str]
    name: Callable[[str], str]
    inbox: Callable[[str], str]

    def label(self, word: str) -> str:
        """The name for a word, if the trace uses it as one."""
        return self.name(word) if word in self.labels else word

    def subject(self, tokens: Sequence[str | None]) -> list[str | None]:
        """The tokens of a subject, with names for labels. None is a token that is no plain text; it stays."""
        first = tokens[0]
        if first is None:
            return list(tokens)
        label = inbox_label(first)
        if label is not None:
            return [self.inbox(label), *tokens[1:]]
        if first == INBOX_PREFIX and len(tokens) > 1 and tokens[1]:
            # A pasted inbox: two tokens stand for the session's own two or more.
            head, _, tail = self.inbox(tokens[1]).rpartition(".")
            return [head, tail, *tokens[2:]]
        if first.startswith("$"):
            return [token if token is None else self.label(token) for token in tokens]
        return [self.label(first), *tokens[1:]]
