"""The log of rabbitmq-server on standard output: ``2026-11-23 11:20:00.123456+00:00 [info] <0.9.0> text``."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime

from plumbline.visible import indented_line


def write(level: str, *lines: str) -> None:
    """``level`` is info, warning or error. Text of a client makes no line of its own."""
    text = "\n".join(map(indented_line, lines))
    now = datetime.now().astimezone().isoformat(" ", "microseconds")
    with suppress(OSError, ValueError):  # who started it reads no more
        sys.stdout.write(f"{now} [{level}] <0.9.0> {text}\n")
        sys.stdout.flush()
