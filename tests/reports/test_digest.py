"""The contents that all reports share."""

from __future__ import annotations

import shlex

import pytest
from msgspec.structs import replace

from plumbline.reports.digest import (
    duration,
    headline,
    other_failures,
    red_checks,
    replay_command,
    scores_by_group,
    scores_by_level,
    server,
    unsupported_reasons,
    verdict_line,
    wire_excerpt,
)
from plumbline.verdicts import Level, Outcome, RunResult, Tally, Target, tally
from tests.reports.samples import CHECKS, TARGET, exchange, requirement, result_of, sample_result


def test_red_checks_come_must_first_and_leave_out_should_unless_strict() -> None:
    red = [check.id for check in red_checks(sample_result())]
    assert red[:2] == [
        "adr-13/no-wait-on-an-empty-consumer",
        "core_delivery::subjects_are_delivered_as_published",
    ]
    assert red[-1] == "core/server-ping"
    assert "adr-13/idle-heartbeat" not in red
    assert "adr-13/idle-heartbeat" in [check.id for check in red_checks(sample_result(strict=True))]


def test_a_failure_is_either_red_or_listed_as_not_required() -> None:
    result = sample_result()
    failed = {check.id for check in result.checks if check.outcome is Outcome.FAILED}
    assert {check.id for check in other_failures(result)} == {"adr-13/idle-heartbeat"}
    assert failed <= {check.id for check in (*red_checks(result), *other_failures(result))}


def test_scores_of_groups_and_of_levels_add_up_to_the_summary() -> None:
    result = sample_result()
    for scores in (scores_by_group(result), scores_by_level(result)):
        for name in Tally.__struct_fields__:
            assert sum(getattr(score.counts, name) for score in scores) == getattr(result.summary, name)
    assert [score.name for score in scores_by_level(result)] == ["MUST", "SHOULD", "MAY"]
    assert [score.name for score in scores_by_group(result)] == ["CORE", "JS-PULL", "JS-ACK", "JS-SEQ"]


def test_group_score_counts_verdicts() -> None:
    core = scores_by_group(sample_result())[0]
    assert core.counts == Tally(claimed=6, tested=5, passed=3)
    assert (core.failed, core.waived, core.undecided, core.unsupported) == (1, 1, 1, 0)


@pytest.mark.parametrize(
    ("verdict", "counted"),
    [
        ("passed", Tally(1, 1, 1)),
        ("stale waiver", Tally(1, 1, 1)),
        ("failed", Tally(1, 1, 0)),
        ("waived", Tally(1, 1, 0)),
        ("untestable", Tally(1, 0, 0)),
        ("inconclusive", Tally(1, 0, 0)),
        ("harness error", Tally(1, 0, 0)),
        ("unsupported", Tally(0, 0, 0)),
        ("excluded", Tally(0, 0, 0)),
        ("not selected", Tally(0, 0, 0)),
        ("not scored", Tally(0, 0, 0)),
    ],
)
def test_claimed_tested_and_passed_follow_from_the_verdict(verdict: str, counted: Tally) -> None:
    assert tally([requirement("A-1", "", verdict)]) == counted


def test_unselected_groups_have_no_row() -> None:
    found = [
        requirement("A-1", "", "not selected"),
        requirement("B-1", ""),
        requirement("C-1", "", "excluded"),
    ]
    result = result_of([*found, requirement("D-1", "", "unsupported")], ())
    assert [score.name for score in scores_by_group(result)] == ["B", "D"]


def test_unsupported_checks_are_grouped_by_reason_the_commonest_first() -> None:
    pattern = next(check for check in CHECKS if check.outcome is Outcome.UNSUPPORTED)
    checks = [replace(pattern, id=f"c{number}", message="ab"[number > 0]) for number in range(4)]
    assert [
        (reason.message, len(reason.checks)) for reason in unsupported_reasons(result_of((), checks))
    ] == [
        ("b", 3),
        ("a", 1),
    ]


def test_verdict_line_shows_verdict_counts_and_exit_code() -> None:
    assert verdict_line(sample_result()) == (
        "Not conformant. 4 of 8 tested requirements passed, 3 claimed but not tested. Exit code 4."
    )
    one = result_of([requirement("A-1", "")], ())
    assert verdict_line(one) == "Conformant. 1 of 1 tested requirements passed. Exit code 0."


def test_a_verdict_with_a_reason_is_a_whole_headline() -> None:
    result = sample_result()
    lost = replace(result, summary=replace(result.summary, verdict="unknown: the target was lost"))
    assert headline(lost) == "Unknown: the target was lost"


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (None, "plumbline verify nats://127.0.0.1:4222 --select a/b"),
        ((), "plumbline verify --select a/b"),
        (("--server", "/opt/my server"), "plumbline verify --server '/opt/my server' --select a/b"),
    ],
)
def test_the_replay_command_reaches_the_same_target(arguments: tuple[str, ...] | None, command: str) -> None:
    assert replay_command(at(replace(TARGET, arguments=arguments)), "a/b") == command


def at(target: Target, *, strict: bool = False) -> RunResult:
    return replace(sample_result(strict=strict), target=target)


@pytest.mark.parametrize(
    ("target", "command"),
    [
        (TARGET, "plumbline verify nats://127.0.0.1:4222 --select a/b --strict"),
        (
            replace(TARGET, kind="client", arguments=("--protocol", "nats", "--", "python", "adapter.py")),
            "plumbline gate --select a/b --strict --protocol nats -- python adapter.py",
        ),
    ],
    ids=["verify", "gate"],
)
def test_the_replay_command_is_as_strict_as_the_run(target: Target, command: str) -> None:
    assert replay_command(at(target, strict=True), "a/b") == command


def test_the_replay_command_survives_a_shell() -> None:
    url = "nats://$(reboot)@h;x"
    assert shlex.split(replay_command(at(replace(TARGET, url=url)), "a b"))[2:] == [url, "--select", "a b"]


def test_server_description_uses_reported_name() -> None:
    assert server(TARGET) == "server 2.10.22 (NDVJ7OLLQ) at nats://127.0.0.1:4222"
    assert "(NCUC2VAUJ5NS…) at" in server(
        replace(TARGET, server_name="NCUC2VAUJ5NSK65L6SZDGE46LIUKVYAWNCB5LO6")
    )
    assert server(replace(TARGET, server_name="", version="")) == "server at nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    ("lines", "offending", "before", "shown", "after"),
    [(5, 4, 0, 5, 0), (30, None, 18, 12, 0), (30, 29, 18, 12, 0), (30, 3, 0, 12, 18), (30, 15, 9, 12, 9)],
)
def test_the_window_of_an_exchange_holds_the_offending_line(
    lines: int, offending: int | None, before: int, shown: int, after: int
) -> None:
    found = wire_excerpt(exchange(*["> PING"] * lines, offending=offending), 12)
    assert (found.before, len(found.lines), found.after) == (before, shown, after)
    assert any(line.offending for line in found.lines) == (offending is not None)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.421, "0.42 s"), (12.34, "12.3 s"), (125.0, "2 min 05 s"), (3600.0, "60 min 00 s")],
)
def test_durations_are_for_people(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_levels_are_ordered_as_the_rfc_has_them() -> None:
    assert [level.value for level in Level] == ["MUST", "SHOULD", "MAY"]
