"""The suite against the cores in one process, on a clock that waiting moves."""

from __future__ import annotations

import inspect
import time
from functools import cache

import pytest

from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.sessions import session
from plumbline.conformance.suite import all_checks, select
from plumbline.reference_broker.nats.accounts import AccountsCore
from plumbline.verdicts import CheckResult, Outcome
from tests.adequacy.reach import measure
from tests.virtual.servers import HOST
from tests.virtual.target import VirtualTarget

checks = cache(all_checks)
catalogue = cache(Catalogue.load)


def ran(target: VirtualTarget, pattern: str) -> list[CheckResult]:
    """The results of checks on that target."""
    with target.installed():
        return [run_check(check, target.access, catalogue()) for check in select(checks(), [pattern])]


@pytest.mark.parametrize(
    ("protocol", "pattern"),
    [
        ("nats", "JS-PULL-015"),
        ("nats", "store_restart::*"),  # servers of their own
        ("nats", "api/domain"),  # a variant
        ("amqp", "AMQP-ACK-001"),
        ("amqp", "amqp_durability::*"),
        ("amqp", "amqp_alarms::*"),  # a broker with settings, which raises an alarm
        ("amqp", "AMQP-PERM-001"),
    ],
)
def test_checks_pass_without_sockets(protocol: str, pattern: str) -> None:
    results = ran(VirtualTarget(protocol), pattern)
    assert {result.id: result.message for result in results if result.outcome is not Outcome.PASSED} == {}
    assert results


def test_waiting_moves_the_clock_of_the_servers() -> None:
    target = VirtualTarget("amqp")
    before = target.world.monotonic()
    (result,) = ran(target, "amqp_frames::silent_client_is_given_up")
    assert result.outcome is Outcome.PASSED
    assert target.world.monotonic() - before > 1


def test_a_core_that_raises_an_exception_has_crashed(monkeypatch: pytest.MonkeyPatch) -> None:
    target = VirtualTarget("amqp")
    with target.installed():
        access = target.access
        (server,) = target.world.servers.values()
        monkeypatch.setattr(server.core, "handle", None)
        run_check(select(checks("amqp"), ["AMQP-ACK-001"])[0], access, catalogue())
        assert "'NoneType' object is not callable" in target.world.crash
        with pytest.raises(ConnectionRefusedError):
            target.world.open_link(access.url)


@pytest.mark.parametrize(("method", "value"), [("on_data", lambda *_: None), ("next_wake", None)])
def test_a_core_that_answers_nonsense_has_crashed(
    monkeypatch: pytest.MonkeyPatch, method: str, value: object
) -> None:
    target = VirtualTarget("nats")
    with target.installed():
        url = target.access.url
        link = target.world.open_link(url)
        monkeypatch.setattr(target.world.servers[url.port].core, method, value)
        link.sendall(b"PING\r\n")
        target.world.sleep(1)
        assert "'NoneType' object is not" in target.world.crash


def test_the_clock_is_the_real_one_again_afterwards() -> None:
    with VirtualTarget("nats").installed():
        assert vars(session)["time"] is not time
    assert vars(session)["time"] is time


def test_a_client_that_hangs_up_is_gone_and_one_that_is_closed_reads_the_rest() -> None:
    target = VirtualTarget("nats")
    with target.installed():
        link = target.world.open_link(target.access.url)
        assert link.recv(4096).startswith(b"INFO ")
        link.sendall(b"what?\r\n")
        assert b"-ERR" in link.recv(4096)
        assert link.recv(4096) == b""
        with pytest.raises(BrokenPipeError):
            link.sendall(b"PING\r\n")
        link.close()
    assert HOST in str(target.access.url)


def test_every_check_of_a_variant_reaches_what_its_server_runs_at_its_start() -> None:
    """The server is started for the first of them only."""
    chosen = select(checks(), ["CORE-116", "CORE-117"])
    assert len(chosen) > 1
    assert {check.variant for check in chosen} == {"accounts"}
    body, first = inspect.getsourcelines(AccountsCore.__init__)
    reach = measure("nats", chosen, "now")
    assert set(reach.running("nats.accounts", range(first + 1, first + len(body)))) == {
        check.id for check in chosen
    }
