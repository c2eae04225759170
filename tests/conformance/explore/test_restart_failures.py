"""A server that does not come back, or that has lost something once, is a finding and no race."""

from __future__ import annotations

import io
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from plumbline.conformance.explore.commands import CreateConsumer, CreateStream, Publish, Pull, Restart
from plumbline.conformance.explore.findings import FindingsPrinter
from plumbline.conformance.explore.programs import Program
from plumbline.conformance.explore.search import Budget, Search
from plumbline.conformance.explore.trial import RESTART_EXPECTED, RESTART_FAILED
from plumbline.reference_broker.nats.server import NatsBroker
from tests.conformance.explore.worlds import SEED, access, reference

pytestmark = pytest.mark.slow  # make test-all runs it

PATIENCE_S = 60.0
SHRINKING_S = 0.0
PROGRAM: Program = (
    CreateStream("ORDERS", {"storage": "file"}),
    CreateConsumer("ORDERS", "DISPATCH", {"ack_policy": "explicit"}),
    Publish("ORDERS", "a"),
    Pull("ORDERS", "DISPATCH"),
    Restart(),
)
# The reference broker; after a restart it fails in some way while a file requests that.
SERVER = """
import os, sys
flags = sys.argv[1:]
if "life-2" in flags[-1] and os.path.exists({flag!r}):
    os.remove({flag!r}) if {once} else None
    {fails}
command = [sys.executable, "-m", "plumbline", "broker", "nats", *flags]
os.execv(sys.executable, command)
"""
ENDS = "sys.exit('the store is damaged')"
FORGETS = 'flags.insert(0, "--defect=store-delivered-counts-as-acknowledged")'

Making = Callable[..., Search]


@pytest.fixture
def searching(tmp_path: Path) -> Iterator[Making]:
    """A search on a server that fails so."""
    with NatsBroker.in_thread(jetstream=True) as url:

        def make(fails: str, *, once: bool) -> Search:
            flag, script = tmp_path / "flag", tmp_path / "server.py"
            flag.touch()
            script.write_text(SERVER.format(flag=str(flag), fails=fails, once=once))
            target = access(url, "target", program=(sys.executable, str(script)))
            witness = access(url, "witness", program=(sys.executable, "-m", "plumbline", "broker", "nats"))
            budget = Budget(PATIENCE_S, shrinking=SHRINKING_S)
            return Search(target, witness, reference, budget, first_seed=SEED)

        yield make


def test_a_server_that_does_not_come_back_is_found(searching: Making) -> None:
    search = searching(ENDS, once=False)
    difference = search.new_difference(PROGRAM)
    assert difference is not None
    assert difference.command == Restart()
    assert RESTART_FAILED in difference.message
    assert difference.expected == RESTART_EXPECTED
    assert "the store is damaged" in difference.actual
    search.shrink_and_keep(PROGRAM, difference)
    (found,) = search.divergences.values()
    assert found.is_reproducible
    assert not search.progress.unsteady


def test_data_lost_once_is_reported_as_not_reproducible(searching: Making, tmp_path: Path) -> None:
    search = searching(FORGETS, once=True)
    assert search.new_difference(PROGRAM) is None  # not again
    (found,) = search.divergences.values()
    assert not found.is_reproducible
    assert found.program == PROGRAM
    assert "ack_floor" in found.difference.message
    assert not search.progress.unsteady
    shown = io.StringIO()
    FindingsPrinter(search.target, "2.15", tmp_path, "", out=shown, err=io.StringIO()).print_divergence(found)
    assert "DIVERGED  Restart, but not every time" in shown.getvalue()
