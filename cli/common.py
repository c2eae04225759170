"""What the commands of this package share: exit codes, and how numbers are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.wire.units import SECOND, read_duration, read_size

EXIT_FOUND, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_HARNESS = 1, 2, 3, 4  # found: violations, differences

Captures = Annotated[list[Path], typer.Argument(help="pcapng or pcap files, or folders of them")]
Spoken = Annotated[
    str | None, typer.Option("--protocol", help="nats or amqp, where the capture does not say")
]


def seconds(text: str, flag: str) -> float:
    """The duration, in seconds. Raises ``typer.Exit``."""
    duration = read_duration(text)
    if duration is None:
        raise usage(f"{flag} {text}: expected a number and one of ms, s, m, h, d")
    return duration / SECOND


def size(text: str, flag: str) -> int:
    """The size, in bytes. Raises ``typer.Exit``."""
    count = read_size(text)
    if count is None:
        raise usage(f"{flag} {text}: expected a number and one of k, M, G (1000) or KiB, MiB, GiB (1024)")
    return count


def usage(message: str) -> typer.Exit:
    """Says what is wrong with the command line; to be raised."""
    typer.echo(message, err=True)
    return typer.Exit(EXIT_USAGE)
