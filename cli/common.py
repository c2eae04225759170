"""What the commands of this package share: options, and how numbers are read."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from plumbline.errors import UsageProblem
from plumbline.wire.units import SECOND, read_duration, read_size

Captures = Annotated[list[Path], typer.Argument(help="pcapng or pcap files, or folders of them")]
Spoken = Annotated[
    str | None, typer.Option("--protocol", help="nats or amqp, where the capture does not say")
]


def seconds(text: str, flag: str) -> float:
    """The duration, in seconds. Raises ``UsageProblem``."""
    duration = read_duration(text)
    if duration is None:
        raise UsageProblem(f"{flag} {text}: expected a number and one of ms, s, m, h, d")
    return duration / SECOND


def size(text: str, flag: str) -> int:
    """The size, in bytes. Raises ``UsageProblem``."""
    count = read_size(text)
    if count is None:
        raise UsageProblem(f"{flag} {text}: expected a number and one of k, M, G, KiB, MiB, GiB")
    return count
