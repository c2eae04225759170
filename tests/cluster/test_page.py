"""The page of a run shows its time line and its verdicts."""

from __future__ import annotations

import datetime
from html.parser import HTMLParser

from plumbline.cluster.nats.judging import judge
from plumbline.cluster.page import as_html
from plumbline.cluster.plan import FaultType
from plumbline.cluster.result import ClusterResult, conclude
from plumbline.cluster.run import ClusterRun, FaultTimes
from plumbline.cluster.scenario import ClusterOptions
from plumbline.cluster.verdicts import NATS_CHECKS, OF_REMOVAL
from plumbline.wire.units import SECOND
from tests.cluster.simulated.cluster import SimulatedCluster
from tests.cluster.simulated.nodes import SimulatedDefect


def result(defect: SimulatedDefect | None) -> ClusterResult:
    history = SimulatedCluster(1, defect).run()
    fault = FaultTimes("kill one: node 2", 3 * SECOND, 5 * SECOND, 6 * SECOND, 7)
    timeline = ((0, "<n1> leads"), (3 * SECOND, "kill one: node 2 begins"))
    run = ClusterRun(judge(history), (fault,), timeline, 60.0, 1.0, history, 0)
    options = ClusterOptions(3, (FaultType.KILL,), 60 * SECOND, 20, 1)
    began = datetime.datetime(2026, 11, 23, tzinfo=datetime.UTC)
    return conclude("nats", "simulated", "2.15.2", options, run, began, 60.0, "plumbline cluster a&b")


class Seen(HTMLParser):
    """Counts elements, and collects the text."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_has_bars_faults_leaders_and_verdicts() -> None:
    seen = Seen(as_html(result(None)))
    assert seen.tags.count("svg") == 1
    assert seen.tags.count("rect") > 50
    assert seen.tags.count("line") == 1
    assert seen.tags.count("tr") == len(NATS_CHECKS) - len(OF_REMOVAL)
    assert "kill one: node 2; recovery 1.0 s" in seen.text
    assert "<n1>" in seen.text
    assert "plumbline cluster a&b" in seen.text
    assert "simulated: conformant" in seen.text


def test_the_page_of_a_run_with_a_loss_shows_its_exchange() -> None:
    seen = Seen(as_html(result(SimulatedDefect.TRUNCATES_TAIL)))
    assert "simulated: not conformant" in seen.text
    assert "first finding: " in seen.text
