"""How long a page of 10 000 checks takes to open: ``python -m tests.bench.report_page [RUNS]``.

Each run is a browser of its own. ``load``: from the start of navigation to the end of the load event, as the
page itself measures it (W3C, "Navigation Timing Level 2"); ``painted``: until the first contents are seen.
Chromium gives most of its threads the priority 0, whatever it was started with. Here they have that of this
process, so that ``nice`` means what it says.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread

from plumbline.reports.html.page import render
from tests.bench.command_line import runs_asked
from tests.reports.browser import PATIENCE_MS, chromium
from tests.reports.samples import big_result

CHECKS = 10_000
RUNS = 5
AGAIN_S = 0.05
MEASURED = """() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => {
    const navigation = performance.getEntriesByType("navigation")[0]
    const painted = performance.getEntriesByName("first-contentful-paint")[0]
    const elements = document.getElementsByTagName("*").length
    done([navigation.loadEventEnd, painted ? painted.startTime : NaN, elements])
})))"""


def _below(process: int) -> Iterator[int]:
    """The processes that it started, and those that they started."""
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in children.read_text().split():
            yield int(child)
            yield from _below(int(child))


@contextmanager
def own_priority() -> Iterator[None]:
    """Meanwhile every thread of every process below this one has this one's priority, old or new."""
    wanted, ended = os.nice(0), Event()

    def give() -> None:
        for process in _below(os.getpid()):
            for thread in Path(f"/proc/{process}/task").iterdir():
                os.setpriority(os.PRIO_PROCESS, int(thread.name), wanted)

    def keep_giving() -> None:
        while not ended.wait(AGAIN_S):
            with suppress(OSError):  # one of them has ended
                give()

    giving = Thread(target=keep_giving)
    giving.start()
    try:
        yield
    finally:
        ended.set()
        giving.join()


def main(runs: int = RUNS) -> int:
    """Prints the size, and a line for each run."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "report.html")
        path.write_bytes(render(big_result(CHECKS)))
        print(f"{CHECKS} checks, {path.stat().st_size / 1e6:.1f} MB")
        for _ in range(runs):
            with chromium() as browser, own_priority():
                page = browser.new_page(viewport={"width": 1280, "height": 900})
                page.goto(path.as_uri(), wait_until="load", timeout=PATIENCE_MS)
                load, painted, elements = page.evaluate(MEASURED)
            print(
                f"load {load / 1000:.2f} s, painted {painted / 1000:.2f} s, {elements} elements", flush=True
            )
    return 0


if __name__ == "__main__":
    sys.exit(main(runs_asked(__doc__, RUNS)))
