"""Who has subscribed to what: insert, remove, and match, without looking at every subscription.

Literal subjects stand in a dictionary, subjects with wildcards in a tree of tokens. Generic in the
subscriber: permissions use it too. Remembers nothing about earlier matches; ``routing`` does.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, TypeVar

from msgspec import Struct, field

from plumbline.wire.nats.subjects import ANY_TAIL, ANY_TOKEN, is_literal

S = TypeVar("S", bound=Hashable)


class _Node(Struct, Generic[S], eq=False, gc=False):
    """One token of the wildcard tree; who subscribed to the subject that ends here.

    It refers only to what is below it, so the garbage collector need not see it.
    """

    below: dict[bytes, _Node[S]] = field(default_factory=dict)
    subscribers: dict[S, None] = field(default_factory=dict)


class Sublist(Generic[S]):
    """Subscribers by subject; each at most once per subject, in the order they came."""

    def __init__(self) -> None:
        self._literals: dict[bytes, dict[S, None]] = {}
        self._wildcards: _Node[S] = _Node()

    def insert(self, subject: bytes, subscriber: S) -> None:
        if is_literal(subject):
            self._literals.setdefault(subject, {})[subscriber] = None
            return
        node = self._wildcards
        for token in subject.split(b"."):
            node = node.below.setdefault(token, _Node())
        node.subscribers[subscriber] = None

    def remove(self, subject: bytes, subscriber: S) -> None:
        """Forget a subscriber that is there; nothing is kept of a subject without subscribers."""
        if is_literal(subject):
            subscribers = self._literals[subject]
            del subscribers[subscriber]
            if not subscribers:
                del self._literals[subject]
            return
        path = [self._wildcards]
        tokens = subject.split(b".")
        for token in tokens:
            path.append(path[-1].below[token])
        del path[-1].subscribers[subscriber]
        for token, node, parent in zip(reversed(tokens), reversed(path), reversed(path[:-1]), strict=False):
            if node.subscribers or node.below:
                break
            del parent.below[token]

    def match(self, subject: bytes) -> list[S]:
        """Every subscriber whose subject matches, the widest first, as nats-server does."""
        found: list[S] = []
        if self._wildcards.below:
            tokens = subject.split(b".")
            if b"" not in tokens:  # an empty token is no token: not even ">" matches it
                for node in _walk(self._wildcards, tokens):
                    found.extend(node.subscribers)
        found.extend(self._literals.get(subject, ()))
        return found


def _walk(root: _Node[S], tokens: list[bytes]) -> Iterator[_Node[S]]:
    """The nodes whose subjects match ``tokens``: of two siblings, all below ``*`` comes first.

    Without recursion: a subject has as many tokens as fit a control line.
    """
    waiting = [(root, 0)]
    while waiting:
        node, position = waiting.pop()
        if position == len(tokens):
            yield node
            continue
        below = node.below
        if ANY_TAIL in below:
            yield below[ANY_TAIL]
        token = tokens[position]
        if token in below and token not in (ANY_TOKEN, ANY_TAIL):
            waiting.append((below[token], position + 1))
        if ANY_TOKEN in below:
            waiting.append((below[ANY_TOKEN], position + 1))
