"""The log of rabbitmq-server on standard output: ``2026-11-23 11:20:00.123456+00:00 [info] <0.9.0> text``."""

from __future__ import annotations

import sys
from contextlib import suppress
from datetime import datetime


def write(level: str, text: str) -> None:
    """``level`` is info, warning or error."""
    now = datetime.now().astimezone().isoformat(" ", "microseconds")
    with suppress(OSError, ValueError):  # who started it reads no more
        sys.stdout.write(f"{now} [{level}] <0.9.0> {text}\n")
        sys.stdout.flush()
