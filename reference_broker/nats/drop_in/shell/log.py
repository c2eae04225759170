"""The log of nats-server: ``[pid] date time [INF] text``, on stderr or in a file that can be opened again."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import TextIO

from plumbline.reference_broker.nats.drop_in.options import Settings
from plumbline.visible import indented_line


class Log:
    """Raises ``OSError`` if the file cannot be written."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.file: TextIO = sys.stderr
        self.open()

    def open(self) -> None:
        """Again, after the file was moved away."""
        if self.settings.log_file:
            before = self.file
            self.file = Path(self.settings.log_file).open("a", encoding="utf-8")  # noqa: SIM115 - stays open
            if before is not sys.stderr:
                before.close()

    def info(self, text: str) -> None:
        self._write("INF", text)

    def warning(self, text: str) -> None:
        self._write("WRN", text)

    def error(self, text: str) -> None:
        self._write("ERR", text)

    def fatal(self, text: str) -> None:
        self._write("FTL", text)

    def debug(self, text: str) -> None:
        if self.settings.debug:
            self._write("DBG", text)

    def _write(self, label: str, text: str) -> None:
        moment = ""
        if self.settings.logtime:
            now = datetime.now(UTC) if self.settings.logtime_utc else datetime.now().astimezone()
            moment = f" {now:%Y/%m/%d %H:%M:%S.%f}"
        with suppress(OSError):  # a launcher that reads no more must not stop the server
            self.file.write(f"[{os.getpid()}]{moment} [{label}] {indented_line(text)}\n")
            self.file.flush()
