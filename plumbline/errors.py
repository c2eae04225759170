"""The errors that a user can cause, and the exit codes of every command. Imports nothing of Plumbline.

Every such error is a ``PlumblineError``: its text is for the user, and ``exit_code`` is what the command ends
with. ``cli.exits.CommandGroup`` catches them, at one place. Not among them: ``wire.ProtocolError``, which is
about the bytes of a peer, and how a check ends (``conformance.outcomes``).
"""

from __future__ import annotations

from enum import IntEnum
from typing import ClassVar

# What the decoders of JSON, TOML and MessagePack raise for a text that they cannot read: wrong syntax, bytes
# that are not UTF-8, numbers out of range, nesting that is too deep. ``msgspec.DecodeError`` and
# ``tomllib.TOMLDecodeError`` are only the first of these.
UNDECODABLE = (ValueError, RecursionError)


class ExitCode(IntEnum):
    """The same for every command."""

    CONFORMANT = 0
    NOT_CONFORMANT = 1  # also: violations, differences, lost messages were found
    USAGE = 2
    TARGET_LOST = 3
    HARNESS_ERROR = 4
    INTERRUPTED = 130  # by Ctrl-C, as shells expect; or because the output is not read any more


class PlumblineError(Exception):
    """Something that the user can put right; the text says what is wrong and what to write or do instead."""

    exit_code: ClassVar[ExitCode] = ExitCode.USAGE


class UsageProblem(PlumblineError):
    """What the command line asks for cannot be done."""


class TargetUnreachable(PlumblineError):
    """Nothing at the URL speaks the protocol; the text is one sentence for the user."""

    exit_code = ExitCode.TARGET_LOST
