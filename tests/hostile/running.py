"""Runs ``plumbline verify`` on a hostile server and measures what it costs."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from msgspec import Struct

from plumbline.reports.result_json import decode
from plumbline.verdicts import RunResult
from tests.cli.command import PLUMBLINE, environment, session_of

# A few checks of each kind: most servers do their harm to every check.
SELECTED = {"nats": ("CORE-00*", "JS-API-00*"), "amqp": ("AMQP-ACK-00*",)}
WITHIN_S = 250
SAMPLE_S = 0.1
PAGE = os.sysconf("SC_PAGE_SIZE")


class Cost(Struct, frozen=True):
    """How a run ended. ``largest``: bytes of memory that one process had; ``whole``: all at once."""

    code: int
    seconds: float
    largest: int
    whole: int
    err: str
    folder: Path

    @property
    def result(self) -> RunResult | None:
        """The JSON report, if there is one."""
        file = self.folder / "r.json"
        return decode(file.read_bytes()) if file.exists() else None

    def incomplete_reports(self) -> list[str]:
        """What is wrong with the reports, in words: all have to have every check."""
        if self.result is None:
            return ["no JSON report"]
        checks = len(self.result.checks)
        cases = len(list(ElementTree.parse(self.folder / "r.xml").iter("testcase")))
        page = (self.folder / "r.html").read_text("utf-8")
        wrong = [] if cases == checks else [f"JUnit has {cases} of {checks} checks"]
        return wrong + ([] if page.rstrip().endswith("</html>") else ["the HTML page has no end"])


def verify(folder: Path, url: str, *arguments: str, workers: int | None = 0) -> Cost:
    """Run it to its end. ``workers``: processes; None is as many as it takes by itself."""
    protocol = url.partition(":")[0]
    names = [argument for name in SELECTED[protocol] for argument in ("--select", name)]
    chosen = list(arguments) if "--select" in arguments or "--all" in arguments else [*names, *arguments]
    chosen = [argument for argument in chosen if argument != "--all"]
    parallel = [] if workers is None else [f"--workers={workers}"]
    reports = ("--json=r.json", "--junit=r.xml", "--html=r.html")
    command = (*PLUMBLINE, "verify", url, *chosen, *parallel, *reports)
    return _measured(command, folder)


def _measured(command: Sequence[str], folder: Path) -> Cost:
    began = time.monotonic()
    with (folder / "out").open("wb") as out, (folder / "err").open("wb") as err:
        process = subprocess.Popen(
            command,
            cwd=folder,
            env=environment(),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
        )
    whole = largest = 0
    try:
        while process.poll() is None:
            sizes = [_resident(pid) for pid in session_of(process.pid)]
            whole, largest = max(whole, sum(sizes)), max(largest, *sizes, 0)
            assert time.monotonic() - began < WITHIN_S, f"{command} does not end"
            time.sleep(SAMPLE_S)  # between two looks at its memory
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, 9)
        process.wait()
    seconds = time.monotonic() - began
    text = (folder / "err").read_text("utf-8", "replace")
    return Cost(process.returncode, seconds, largest, whole, text, folder)


def _resident(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return 0  # ended meanwhile
