"""The terminal's view of a run, on a real pseudo-terminal and on a pipe."""

from __future__ import annotations

import errno
import io
import os
import re
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest
from msgspec.structs import replace

from plumbline.reports.terminal.live import TerminalReport, terminal_console
from plumbline.verdicts import CheckFinished, Event, RunResult, RunStarted
from tests.reports.samples import (
    SUITE,
    TARGET,
    big_result,
    conformant_result,
    events_of,
    only,
    requirement,
    result_of,
    sample_result,
)

NO_WAIT = "adr-13/no-wait-on-an-empty-consumer"
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def on_pipe(
    events: Iterable[Event], environ: Mapping[str, str] | None = None, *, encoding: str = "utf-8"
) -> str:
    buffer = io.BytesIO()
    stream = io.TextIOWrapper(buffer, encoding=encoding, write_through=True)
    environ = environ or {}
    terminal = TerminalReport(
        terminal_console(stream, environ), reports=[Path("out/r.html")], environ=environ, clock=lambda: 0.0
    )
    for event in events:
        terminal.on_event(event)
    terminal.close()
    return buffer.getvalue().decode(encoding)


def on_terminal(
    events: Iterable[Event], environ: Mapping[str, str] | None = None, *, columns: int = 100
) -> str:
    """Everything written to a terminal of this width, with its control sequences."""
    try:
        ours, theirs = os.openpty()
    except OSError as error:
        pytest.skip(f"no pseudo-terminals here ({error.strerror}): mount -t devpts devpts /dev/pts")
    received = bytearray()

    def receive() -> None:
        try:
            while data := os.read(ours, 65536):
                received.extend(data)
        except OSError as error:
            if error.errno != errno.EIO:  # Linux reports a closed other side with it
                raise

    reader = threading.Thread(target=receive)
    reader.start()
    environ = {"TERM": "xterm-256color", "COLUMNS": str(columns), **(environ or {})}
    with os.fdopen(theirs, "w", encoding="utf-8") as stream:
        terminal = TerminalReport(terminal_console(stream, environ), environ=environ)
        for event in events:
            terminal.on_event(event)
        terminal.close()
    reader.join()
    os.close(ours)
    return received.decode()


def plain(output: str) -> str:
    """Without control sequences."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output).replace("\r", "")


def lines_with(text: str, part: str) -> list[str]:
    return [line for line in text.splitlines() if part in line]


# -- while it runs ---------------------------------------------------------------------------


def test_a_pipe_gets_no_control_characters() -> None:
    assert CONTROL.search(on_pipe(events_of(sample_result()))) is None


def test_plain_progress_prints_red_checks_immediately() -> None:
    seen = on_pipe([event for event in events_of(sample_result()) if not isinstance(event, RunStarted)][:6])
    assert lines_with(seen, "FAILED") == [f"FAILED  {NO_WAIT}  the status is not the one expected"]


def test_a_pipe_gets_a_heartbeat_every_quarter() -> None:
    events = [
        e
        for e in events_of(big_result(1000, failing_every=2000))
        if isinstance(e, RunStarted | CheckFinished)
    ]
    heartbeats = re.findall(r"^ *(\d+) %  (\d+)/1000 checks", on_pipe(events), re.MULTILINE)
    assert heartbeats == [("25", "250"), ("50", "500"), ("75", "750")]


def test_the_start_names_the_target_and_the_work() -> None:
    text = on_pipe([RunStarted(SUITE, TARGET, checks=7, workers=2)])
    assert text == (
        "Verifying server 2.10.22 (NDVJ7OLLQ) at nats://127.0.0.1:4222: 7 checks with 2 workers\n"
    )


def test_a_terminal_sees_progress_counts_and_the_current_check() -> None:
    events = list(events_of(sample_result()))
    text = plain(on_terminal(events[:6]))  # the third check has begun
    assert "2/12" in text
    assert "2 passed" in text
    assert NO_WAIT in text


def test_interrupted_live_progress_restores_terminal() -> None:
    output = on_terminal(list(events_of(sample_result()))[:6])
    assert output.count("\x1b[?25l") == output.count("\x1b[?25h") == 1  # cursor hidden and shown again


def test_a_ci_log_does_not_move_even_on_a_terminal() -> None:
    output = on_terminal(events_of(sample_result()), {"CI": "true"})
    assert CONTROL.search(output.replace("\r\n", "\n")) is None


def test_a_dumb_terminal_does_not_move() -> None:
    assert "\x1b" not in on_terminal(events_of(sample_result()), {"TERM": "dumb"})


def test_no_color_is_respected() -> None:
    coloured = re.compile(r"\x1b\[[0-9;]*(3[0-7]|9[0-7]|38;)[0-9;]*m")
    assert coloured.search(on_terminal(events_of(sample_result())))
    assert not coloured.search(on_terminal(events_of(sample_result()), {"NO_COLOR": "1"}))


def test_colour_can_be_forced_on_a_pipe_without_moving() -> None:
    output = on_pipe(events_of(sample_result()), {"FORCE_COLOR": "1"})
    assert "\x1b[1;31m" in output
    assert set(re.findall(r"\x1b\[[0-9;?]*([A-Za-z])", output)) == {"m"}


# -- at the end ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def ended() -> str:
    return on_pipe(events_of(sample_result()))


def section(text: str, title: str) -> str:
    """The part of a red check, up to the next rule."""
    (part,) = [
        part for part in re.split(r"^[-─]+$", text, flags=re.MULTILINE) if part.strip().startswith(title)
    ]
    return part


def test_a_red_check_shows_title_place_and_requirement(ended: str) -> None:
    part = section(ended, "FAILED  An empty consumer answers a no_wait pull at once")
    assert f"conformance/traces/adr-13/no-wait-on-an-empty-consumer.trace:9  ({NO_WAIT})" in part
    assert (
        "JS-PULL-021 MUST: A no_wait pull on an empty consumer is answered at once with 404 No Messages."
        ' [ADR-13, "No Wait Pull Requests"]'
    ) in part


def test_expected_and_actual_are_aligned(ended: str) -> None:
    part = section(ended, "FAILED  An empty consumer")
    (expected,), (actual,) = lines_with(part, "Expected:"), lines_with(part, "Actual:")
    assert expected.index("< HMSG") == actual.index("< HMSG")
    assert "404 No Messages" in expected
    assert "408 Request Timeout" in actual


def test_evidence_without_expected_is_shown() -> None:
    result = only(NO_WAIT)
    check = replace(result.checks[0], expected="", actual="Traceback\nKeyError")
    text = on_pipe(events_of(replace(result, checks=(check,))))
    assert "Expected:" not in text
    assert "Actual: Traceback" in text


def test_long_values_are_side_by_side_on_wide_terminal() -> None:
    result = only("core_delivery::subjects_are_delivered_as_published")
    check = replace(result.checks[0], expected="subject: a.b\npayload: x", actual="subject: c\npayload: x")
    result = replace(result, checks=(check,))
    wide = on_pipe(events_of(result), {"COLUMNS": "140"})
    assert re.search(r"Expected +Actual", wide)
    assert re.search(r"subject: a\.b +subject: c", wide)
    narrow = on_pipe(events_of(result), {"COLUMNS": "60"})
    assert not re.search(r"Expected +Actual", narrow)
    assert re.search(r"Expected: subject: a\.b", narrow)


def test_the_offending_operation_is_marked_among_the_last(ended: str) -> None:
    part = section(ended, "FAILED  An empty consumer")
    marked = [line for line in part.splitlines() if line.startswith("  * ")]
    assert marked == [
        "  *   0.0064  client < HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout"
    ]
    assert "stage  > PUB $JS.API.STREAM.CREATE" in part


def test_the_replay_command_is_one_line_to_copy(ended: str) -> None:
    assert f"  run again: plumbline verify nats://127.0.0.1:4222 --select {NO_WAIT}" in ended.splitlines()


def test_non_red_outcomes_are_brief(ended: str) -> None:
    assert "1 failed SHOULD or MAY requirements\n  adr-13/idle-heartbeat  SHOULD  no heartbeat" in ended
    assert "1 failed and are waived\n  core/queue-groups  MUST  known since 2.10.1" in ended
    assert "1 stale waivers: the checks passed; remove the waivers\n  core/echo-false" in ended
    assert "1 not supported by this server\n     1  needs JetStream API level 1" in ended


def test_summary_shows_target_versions_counts_and_reports(ended: str) -> None:
    facts = dict(re.findall(r"^ *([a-z ]+?)  (\S.*?)$", ended[ended.rindex("      target") :], re.MULTILINE))
    assert facts["target"] == "server 2.10.22 (NDVJ7OLLQ) at nats://127.0.0.1:4222"
    assert facts["level"] == "2.10"
    assert facts["round trip"] == "0.21 ms; 50 ms added to time limits"
    assert facts["suite"] == "plumbline 0.1.0, requirement set 2026.11"
    assert facts["requirements"] == "11 claimed, 8 tested, 4 passed"
    assert facts["duration"] == "12.3 s"
    assert facts["report"] == "out/r.html"


def test_the_table_has_a_row_for_each_level_and_group(ended: str) -> None:
    rows = dict(re.findall(r"^([A-Z-]+) +([\d -]+?) *$", ended, re.MULTILINE))
    assert rows["MUST"].split() == ["9", "7", "4", "2", "1"]
    assert rows["MAY"].split() == ["1", "0", "0", "-", "-"]
    assert rows["JS-PULL"].split() == ["3", "2", "0", "2", "-"]


def test_the_last_words_are_the_verdict_and_its_reasons(ended: str) -> None:
    assert ended.splitlines()[-2:] == [
        "Not conformant. 4 of 8 tested requirements passed, 3 claimed but not tested. Exit code 4.",
        "  - 6 checks are red",
    ]
    good = on_pipe(events_of(conformant_result()))
    assert good.splitlines()[-1] == "Conformant. 3 of 3 tested requirements passed. Exit code 0."
    assert "run again:" not in good


def test_hostile_text_is_escaped(ended: str) -> None:
    part = section(ended, "FAILED  MSG carries the subject")
    assert "<script>alert(1)</script>\"'&]]>\\u202egpj.exe\\x1b[31m\\x00\\xff\\xfe\\x00\\x0d" in part
    assert "`|*[red]" in part
    on_tty = plain(on_terminal(events_of(sample_result()), columns=400))
    assert "\\u202egpj.exe\\x1b[31m\\x00\\xff" in on_tty


def test_an_ascii_stream_gets_ascii() -> None:
    on_pipe(events_of(sample_result()), encoding="ascii").encode("ascii")


@pytest.mark.parametrize("columns", [40, 60, 80])
def test_a_narrow_terminal_breaks_prose_between_words(columns: int) -> None:
    text = plain(on_terminal(events_of(only(NO_WAIT)), columns=columns))
    statement = "A no_wait pull on an empty consumer is answered at once with 404 No Messages."
    start = text.index("  JS-PULL-021 MUST:")
    shown = text[start : text.index("the status is not", start)]
    assert statement in " ".join(shown.split())
    assert all(len(line) <= columns for line in shown.splitlines())


def test_many_red_checks_are_shown_in_part_and_named_all() -> None:
    result = big_result(100, failing_every=1)
    text = on_pipe([*events_of(result)][-1:])
    assert text.count("run again:") == 40
    assert "60 more red checks" in text
    assert all(f"group-0/check-{number}" in text for number in range(100))


def test_a_run_without_requirements_still_ends_in_a_verdict() -> None:
    assert "Conformant" in on_pipe(events_of(result_of((), ())))


def test_groups_that_were_not_selected_are_left_out() -> None:
    found: RunResult = result_of([requirement("A-1", ""), requirement("B-1", "", "not selected")], ())
    text = on_pipe(events_of(found))
    assert re.search(r"^A +1 ", text, re.MULTILINE)
    assert not re.search(r"^B ", text, re.MULTILINE)


def test_what_failed_on_a_busy_machine_and_not_again_is_listed() -> None:
    result = conformant_result()
    first, *others = result.checks
    repeated = replace(first, retried=True, first_try="409 came 0.3 s late\x1b[2J")
    printed = on_pipe(events_of(replace(result, checks=(repeated, *others))))
    heading = "1 failed on this busy machine, and not when repeated alone"
    part = printed[printed.index(heading) :]
    assert first.id in part
    assert "409 came 0.3 s late" in part
    assert "\x1b" not in part
