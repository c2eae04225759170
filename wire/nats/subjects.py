"""Subjects: what is valid, what matches what. Subjects are bytes, as on the wire; patterns may also be text.

Source: docs.nats.io, "Subject-Based Messaging".
"""

from __future__ import annotations

import re
from typing import Any, AnyStr

ANY_TOKEN = b"*"
ANY_TAIL = b">"
_BLANK = re.compile(rb"[ \t\n\f\r]")
_MARKS: dict[type, tuple[Any, Any, Any]] = {bytes: (b".", ANY_TOKEN, ANY_TAIL), str: (".", "*", ">")}


def is_valid(subject: bytes) -> bool:
    """Whether somebody may subscribe to it: no empty token, no blank, and ``>`` only as the last one."""
    tokens = subject.split(b".")
    return b"" not in tokens and ANY_TAIL not in tokens[:-1] and _BLANK.search(subject) is None


def is_literal(subject: bytes) -> bool:
    """Whether no token is a wildcard. ``foo.b*r`` is literal: wildcards are whole tokens."""
    tokens = subject.split(b".")
    return ANY_TOKEN not in tokens and ANY_TAIL not in tokens


def is_valid_literal(subject: bytes) -> bool:
    """Whether a pedantic connection may publish to it."""
    return is_literal(subject) and is_valid(subject)


def covers(pattern: AnyStr, subject: AnyStr) -> bool:
    """Whether every subject that ``subject`` covers matches ``pattern``; both may have wildcards."""
    if pattern == subject:
        return True
    dot, any_token, any_tail = _MARKS[type(pattern)]
    pattern_tokens, tokens = pattern.split(dot), subject.split(dot)
    for position, pattern_token in enumerate(pattern_tokens):
        if position >= len(tokens):
            return False
        token = tokens[position]
        if pattern_token == any_tail:
            return True
        if token == any_tail or pattern_token not in (any_token, token):
            return False
    return len(tokens) == len(pattern_tokens)


def collide(first: bytes, second: bytes) -> bool:
    """Whether some subject matches both."""
    first_tokens, second_tokens = first.split(b"."), second.split(b".")
    for our_token, their_token in zip(first_tokens, second_tokens, strict=False):
        if ANY_TAIL in (our_token, their_token):
            return True
        if our_token != their_token and ANY_TOKEN not in (our_token, their_token):
            return False
    return len(first_tokens) == len(second_tokens)
