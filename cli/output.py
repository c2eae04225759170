"""What commands print: line by line, without secrets and without what acts on a terminal or on a CI runner.

Text of servers, clients, captures and adapters may be in every line, so this is the one place in ``cli`` that
writes to stdout and stderr. A command names its secrets with ``conceal`` as soon as it knows them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TextIO

from plumbline.masking import Mask
from plumbline.visible import visible_json, write_line

CONTINUED = "  | "  # before the second line of a message and those after it

_NO_SECRETS = Mask()
_concealed: ContextVar[Mask] = ContextVar("_concealed", default=_NO_SECRETS)


@contextmanager
def own_secrets() -> Iterator[None]:
    """What is concealed inside the block is so for the block: one command."""
    token = _concealed.set(_NO_SECRETS)
    try:
        yield
    finally:
        _concealed.reset(token)


def conceal(mask: Mask) -> None:
    """From now on the command prints nothing that this masks."""
    _concealed.set(_concealed.get() | mask)


def concealed(text: str) -> str:
    """``text`` without the secrets of the command."""
    return _concealed.get().text(text)


def print_line(text: str) -> None:
    """One line on stdout."""
    write_line(sys.stdout, concealed(text))


def print_lines(text: str) -> None:
    """The lines of ``text`` on stdout. Its line ends are ours: text of strangers in it has none."""
    for line in text.split("\n"):
        print_line(line)


def print_json(text: str) -> None:
    """JSON text on stdout."""
    sys.stdout.write(f"{visible_json(concealed(text))}\n")


def warn(sentence: str) -> None:
    """What the user should know, on stderr. If it has several lines, all but the first are marked as such."""
    first, *others = sentence.split("\n")
    print_error(f"plumbline: {first}")
    for line in others:
        print_error(f"{CONTINUED}{line}")


def print_error(line: str) -> None:
    """One line on stderr, if anything still reads it: the exit code does not depend on that."""
    try:
        write_line(sys.stderr, concealed(line))
        sys.stderr.flush()
    except BrokenPipeError:
        discard_output(sys.stderr)


def discard_output(stream: TextIO) -> None:
    """Nothing reads ``stream`` any more: what it still holds, and all that follows, goes nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, stream.fileno())
    os.close(nowhere)


def flush() -> None:
    """What was printed is seen now, by a reader of a pipe, too."""
    sys.stdout.flush()
