"""What a check keeps, and what it gives up, when the server under test sends too much or nothing at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from plumbline.bounds import (
    ARRIVALS_OF_CHECK,
    ARRIVED_BYTES_OF_CHECK,
    JOURNAL_FIRST_LINES,
    JOURNAL_LAST_LINES,
    JOURNAL_TEXT,
    UNANSWERED_CHECKS,
    UNANSWERED_QUESTIONS,
    WIRE_BYTES_OF_RUN,
    WIRE_LINES,
    WIRE_LINES_BEYOND,
)
from plumbline.conformance.outcomes import CheckEnded, Failed
from plumbline.conformance.runner.engine import outcome_of
from plumbline.conformance.sessions.journal import Journal, WireBudget, shortened_exchange
from plumbline.conformance.sessions.received import Received
from plumbline.conformance.targets.unanswered import UnansweredApis, UnansweringServers
from plumbline.masking import Mask
from plumbline.verdicts import CheckResult, Level, Outcome, WireLine

MOST = JOURNAL_FIRST_LINES + 2 * JOURNAL_LAST_LINES


def journal_of(count: int) -> Journal:
    journal = Journal(Mask())
    for number in range(count):
        journal.add(0.0, "client", "<", f"MSG {number}")
    return journal


def texts(lines: list[WireLine] | tuple[WireLine, ...]) -> list[str]:
    return [line.text for line in lines]


# -- the journal -------------------------------------------------------------------------------


def test_a_long_journal_keeps_its_beginning_and_its_end() -> None:
    journal = journal_of(50_000)
    assert len(journal.lines) <= MOST
    assert journal.position == 50_000
    assert journal.lines[0].text == "MSG 0"
    assert journal.lines[-1].text == "MSG 49999"


def test_a_result_counts_what_is_left_out() -> None:
    shown = journal_of(50_000).shown()
    assert len(shown) == WIRE_LINES
    (gap,) = [line for line in shown if line.direction == "!"]
    assert gap.text == f"... {50_000 - WIRE_LINES + 1} operations left out ..."


def test_a_short_exchange_is_shown_whole() -> None:
    journal = journal_of(WIRE_LINES)
    assert texts(journal.shown()) == [f"MSG {number}" for number in range(WIRE_LINES)]
    assert shortened_exchange(journal.lines) == journal.shown()


@pytest.mark.parametrize("before", [0, JOURNAL_FIRST_LINES - 1, MOST - 5, MOST + 5])
def test_lines_since_a_position_can_be_taken_and_forgotten(before: int) -> None:
    journal = journal_of(before)
    position = journal.position
    for number in range(20):
        journal.add(0.0, "client", ">", f"PUB {number}")
    assert texts(journal.since(position)) == [f"PUB {number}" for number in range(20)]
    journal.forget_since(position)
    assert journal.position == before
    assert not any(line.text.startswith("PUB") for line in journal.lines)


def test_a_position_that_is_left_out_gives_what_is_kept_after_it() -> None:
    journal = journal_of(50_000)
    assert texts(journal.since(200)) == texts(list(journal.lines[JOURNAL_FIRST_LINES:]))
    journal.forget_since(200)
    assert journal.position == 200


def test_a_long_text_is_cut_and_marked() -> None:
    journal = Journal(Mask())
    journal.add(0.0, "client", "<", "x" * 60_000, b"x" * 60_000)
    (line,) = journal.lines
    assert len(line.text) < JOURNAL_TEXT + 100
    assert line.text.endswith("... (60000 characters)")


# -- the results of a run ----------------------------------------------------------------------


def result_with(lines: int, size: int) -> CheckResult:
    wire = tuple(WireLine(0.0, "client", "<", "x" * 100, b"y" * size) for _ in range(lines))
    return CheckResult("core/x", Outcome.FAILED, ("CORE-001",), Level.MUST, wire=wire)


def test_results_have_less_exchange_when_the_run_has_too_much() -> None:
    budget = WireBudget()
    large = result_with(WIRE_LINES, 4000)
    sizes = [sum(len(line.text) + len(line.raw) for line in budget.within(large).wire) for _ in range(600)]
    assert sizes[0] == WIRE_LINES * 4100
    assert sum(sizes) < 2 * WIRE_BYTES_OF_RUN
    last = budget.within(large)
    assert len(last.wire) == WIRE_LINES_BEYOND + 1
    assert last.wire[0].text == f"... {WIRE_LINES - WIRE_LINES_BEYOND} operations left out ..."
    assert budget.within(result_with(0, 0)).wire == ()


# -- a flood -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("operations", "size"), [(ARRIVALS_OF_CHECK, 1), (1, ARRIVED_BYTES_OF_CHECK)])
def test_a_flood_begins_beyond_the_bound(operations: int, size: int) -> None:
    received = Received()
    received.add(operations, size)
    within = not received.is_flood
    received.add(1, 1)
    assert (within, received.is_flood) == (True, True)
    outcome, ended = outcome_of(received.flooded("client", 0))
    assert outcome is Outcome.FAILED
    assert ended.message == "client: the server floods"
    assert f"{operations + 1} operations, {size + 1} bytes" in ended.actual


# -- an API without an answer ------------------------------------------------------------------


def never() -> bool:
    raise AssertionError("it is not asked again yet")


def test_an_api_is_given_up_after_checks_in_a_row_without_an_answer(tmp_path: Path) -> None:
    for _ in range(UNANSWERED_CHECKS - 1):
        UnansweredApis(tmp_path).record_silence("STREAM.CREATE", never)  # each process has its own
    assert not UnansweredApis(tmp_path).given_up("STREAM.CREATE")
    UnansweredApis(tmp_path).record_silence("STREAM.CREATE", lambda: False)
    apis = UnansweredApis(tmp_path)
    assert apis.given_up("STREAM.CREATE").startswith("STREAM.CREATE got no answer in 10 checks in a row")
    assert not apis.given_up("STREAM.INFO")
    assert apis.all_given_up() == [apis.given_up("STREAM.CREATE")]


def test_one_answer_begins_the_count_anew(tmp_path: Path) -> None:
    apis = UnansweredApis(tmp_path)
    for _ in range(3):
        for _ in range(UNANSWERED_CHECKS - 1):
            apis.record_silence("queue.declare", never)
        apis.record_answer("queue.declare")
    assert not apis.given_up("queue.declare")


def test_an_api_that_answers_when_it_is_asked_again_is_not_given_up(tmp_path: Path) -> None:
    apis = UnansweredApis(tmp_path)
    asked = 0

    def answers() -> bool:
        nonlocal asked
        asked += 1
        return True

    for _ in range(2 * UNANSWERED_CHECKS):
        apis.record_silence("STREAM.CREATE", answers)
    assert asked == 2
    assert not apis.given_up("STREAM.CREATE")


def test_without_a_folder_nothing_is_given_up() -> None:
    apis = UnansweredApis(None)
    for _ in range(2 * UNANSWERED_CHECKS):
        apis.record_silence("STREAM.CREATE", never)
    apis.record_answer("STREAM.CREATE")
    assert not apis.given_up("STREAM.CREATE")
    assert apis.all_given_up() == []


def test_a_flood_is_not_taken_for_a_missing_answer() -> None:
    flooded = Received().flooded("client", 0)
    assert isinstance(flooded, CheckEnded)
    assert not isinstance(flooded, Failed)  # which a request takes for silence


# -- a server without an answer ----------------------------------------------------------------


def test_a_server_is_given_up_by_a_check_that_runs_alone(tmp_path: Path) -> None:
    for _ in range(UNANSWERED_QUESTIONS):
        UnansweringServers(tmp_path).record_silence("127.0.0.1:4222", "PING", decides=False)
    assert not UnansweringServers(tmp_path).given_up("127.0.0.1:4222")
    UnansweringServers(tmp_path).record_silence("127.0.0.1:4222", "PING", decides=True)
    (reason,) = UnansweringServers(tmp_path).all_given_up()
    assert reason == UnansweringServers(tmp_path).given_up("127.0.0.1:4222")
    assert reason.startswith(
        f"127.0.0.1:4222 did not answer PING {UNANSWERED_QUESTIONS + 1} times in a row since "
    )
    assert not UnansweringServers(tmp_path).given_up("127.0.0.1:4223")
    assert UnansweredApis(tmp_path).all_given_up() == []


def test_an_answer_between_two_questions_begins_the_count_anew(tmp_path: Path) -> None:
    servers = UnansweringServers(tmp_path)
    for _ in range(3):
        for _ in range(UNANSWERED_QUESTIONS - 1):
            servers.record_silence("127.0.0.1:5672", "channel.open", decides=True)
        servers.record_answer("127.0.0.1:5672")
    assert servers.all_given_up() == []
