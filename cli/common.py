"""What the commands of this package share: exit codes, and how numbers are read."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import typer

EXIT_FOUND, EXIT_USAGE, EXIT_UNREACHABLE, EXIT_HARNESS = 1, 2, 3, 4  # found: violations, differences
BYTES = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}
SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}

Captures = Annotated[list[Path], typer.Argument(help="pcapng or pcap files, or folders of them")]
Spoken = Annotated[
    str | None, typer.Option("--protocol", help="nats or amqp, where the capture does not say")
]


def number(text: str, units: dict[str, float] | dict[str, int], flag: str) -> float:
    """A number with one of these units. Raises ``typer.Exit``."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([a-zA-Z]*)", text.strip())
    unit = (
        found[2].lower().removesuffix("ib").removesuffix("b")
        if found and "k" in units
        else found and found[2]
    )
    if found is None or (unit not in units and float(found[1]) != 0):
        raise usage(
            f"{flag} {text}: expected a number and one of {', '.join(name for name in units if name)}"
        )
    return float(found[1]) * units.get(unit or "", 1)


def usage(message: str) -> typer.Exit:
    """Says what is wrong with the command line; to be raised."""
    typer.echo(message, err=True)
    return typer.Exit(EXIT_USAGE)
