"""Runs commands of Plumbline on a hostile server and measures what that costs."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

from msgspec import Struct

from plumbline.errors import ExitCode
from plumbline.reports.result_json import decode
from plumbline.verdicts import RunResult
from tests.cli.command import PLUMBLINE, environment, session_of

# A few checks of each kind: most servers do their harm to every check.
SELECTED = {"nats": ("CORE-00*", "JS-API-00*"), "amqp": ("AMQP-ACK-00*",)}
WITHIN_S = 250
MOST_MEMORY = 150 * 1024 * 1024  # bytes, of each process
SAMPLE_S = 0.1
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)

# These do their harm before the first check: no run, no reports, one sentence.
AT_ONCE = {
    "nats": {"endless-info", "nested-info", "long-number", "noise", "reset", "ok-without-end"},
    "amqp": {"endless-frame", "nested-table", "challenges"},
}
LOST = {"other-identity"}  # the run begins, and the target is lost


class Cost(Struct, frozen=True):
    """How a run ended. ``largest``: bytes of memory that one process had.

    ``seconds`` passed; for ``busy`` of them a processor was used. A run that was killed has a code below 0.
    """

    code: int
    seconds: float
    busy: float
    largest: int
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


def expected_code(protocol: str, name: str) -> ExitCode:
    """With which code ``verify`` ends on this server, unless its time is up before."""
    if name == "challenges":
        return ExitCode.USAGE
    lost = name in AT_ONCE[protocol] or name in LOST
    return ExitCode.TARGET_LOST if lost else ExitCode.NOT_CONFORMANT


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


def cluster(folder: Path, url: str) -> Cost:
    """``plumbline cluster`` with this server as each of three nodes."""
    commands = ("--kill-command=true", "--start-command=true")
    return _measured((*PLUMBLINE, "cluster", url, url, url, *commands, "--faults=kill", "--for=5s"), folder)


def replay(folder: Path, capture: Path, url: str) -> Cost:
    """``plumbline replay`` to this server; recorded in ``folder / "again"``."""
    return _measured((*PLUMBLINE, "replay", str(capture), url, "-o", str(folder / "again")), folder)


def _measured(command: Sequence[str], folder: Path) -> Cost:
    began, before = time.monotonic(), resource.getrusage(resource.RUSAGE_CHILDREN)
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
    largest = 0
    try:
        while process.poll() is None:
            largest = max(largest, *(_peak(pid) for pid in session_of(process.pid)), 0)
            if time.monotonic() - began > WITHIN_S:
                break  # and it is killed
            time.sleep(SAMPLE_S)  # between two looks at its memory
    finally:
        for pid in session_of(process.pid):
            os.kill(pid, 9)
        process.wait()
    seconds, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    busy = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    text = (folder / "err").read_text("utf-8", "replace")
    return Cost(process.returncode, seconds, busy, largest, text, folder)


def _peak(pid: int) -> int:
    """The most memory that it had so far, in bytes. Source: proc(5), "VmHWM"."""
    try:
        found = PEAK.search(Path(f"/proc/{pid}/status").read_text())
    except (FileNotFoundError, ProcessLookupError):
        return 0  # ended meanwhile
    return int(found[1]) * 1024 if found else 0
