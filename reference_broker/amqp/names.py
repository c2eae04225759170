"""The names that the broker gives to queues and consumers."""

from __future__ import annotations

from collections.abc import Callable

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
_LENGTH = 22


def unique_names(choose: Callable[[int], int]) -> Callable[[str], str]:
    """A source of names: ``amq.gen-`` gives ``amq.gen-`` and 22 characters.

    ``choose(n)`` is a random number below n.
    """

    def unique(prefix: str) -> str:
        return prefix + "".join(_LETTERS[choose(len(_LETTERS))] for _ in range(_LENGTH))

    return unique
