"""Runs that never happened: every outcome, every level, and text as hostile as a stranger can send it."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from msgspec.structs import replace

from plumbline.verdicts import (
    CheckFinished,
    CheckResult,
    CheckStarted,
    Counts,
    Direction,
    Event,
    Level,
    Outcome,
    RequirementResult,
    RunFinished,
    RunResult,
    RunStarted,
    Suite,
    Summary,
    Target,
    WireLine,
    tally,
    with_red,
)

RIGHT_TO_LEFT_OVERRIDE = "\u202e"
NOT_UTF8 = b"\xff\xfe\x00".decode("utf-8", "surrogateescape")
HOSTILE = f"<script>alert(1)</script>\"'&]]>{RIGHT_TO_LEFT_OVERRIDE}gpj.exe\x1b[31m\x00{NOT_UTF8}\r\n`|*[red]"

TARGET = Target(
    url="nats://127.0.0.1:4222",
    server_name="NDVJ7OLLQ",
    version="2.10.22",
    level="2.10",
    features=("headers", "jetstream"),
    rtt_s=0.00021,
    slack_s=0.05,
    variants=("auth",),
)
SUITE = Suite(version="0.1.0", requirement_set="2026.11", python="3.11.7", platform="Linux x86_64")


def requirement(
    identity: str, statement: str, verdict: str = "passed", *, level: Level = Level.MUST, **fields: Any
) -> RequirementResult:
    return RequirementResult(
        id=identity,
        level=level,
        verdict=verdict,
        checks=(),
        group=identity.rpartition("-")[0],
        profile=fields.pop("profile", "jetstream"),
        statement=statement,
        source=fields.pop("source", 'ADR-13, "Pull Requests"'),
        **fields,
    )


def exchange(
    *operations: str, connection: str = "client", offending: int | None = None, start: float = 0.0
) -> tuple[WireLine, ...]:
    """``"> SUB foo 1"`` and so on, 0.8 ms apart."""
    lines = []
    for position, operation in enumerate(operations):
        direction: Direction = ">" if operation[0] == ">" else "<" if operation[0] == "<" else "!"
        text = operation[2:]
        raw = b"" if direction == "!" else text.encode("utf-8", "surrogateescape") + b"\r\n"
        lines.append(
            WireLine(
                start + 0.0008 * (position + 1),
                connection,
                direction,
                text,
                raw,
                offending=position == offending,
            )
        )
    return tuple(lines)


REQUIREMENTS = (
    requirement("CORE-001", "The server sends INFO first, before it reads anything.", profile="nats-core"),
    requirement("CORE-018", "PUB carries the payload size in bytes; zero is legal.", profile="nats-core"),
    requirement(
        "CORE-044",
        "A SUB with a queue group receives each message in at most one member of the group.",
        "waived",
        profile="nats-core",
    ),
    requirement("CORE-051", "MSG subjects are delivered as published.", "failed", profile="nats-core"),
    requirement("CORE-090", "With echo false, the publisher does not get its own message.", "stale waiver"),
    requirement("CORE-099", "The server may send PING at any time.", "untestable", level=Level.MAY),
    requirement(
        "JS-PULL-021",
        "A no_wait pull on an empty consumer is answered at once with 404 No Messages.",
        "failed",
        source='ADR-13, "No Wait Pull Requests"',
    ),
    requirement(
        "JS-PULL-030",
        "A pull that expires with messages missing is answered with 408 Request Timeout.",
        "inconclusive",
    ),
    requirement(
        "JS-PULL-040",
        "An idle heartbeat is sent at half of the expiry at most.",
        "failed",
        level=Level.SHOULD,
    ),
    requirement(
        "JS-PULL-061",
        "A pull may name a minimum of pending messages (min_pending).",
        "unsupported",
        level=Level.MAY,
        note="needs JetStream API level 1; the server says 0",
    ),
    requirement(
        "JS-ACK-003",
        "+NXT acknowledges and asks for the next messages in one publish.",
        "harness error",
    ),
    requirement(
        "JS-SEQ-002",
        "A fresh consumer reports delivered 0/0 and ack_floor 0/0.",
        documented="Last Delivered 1/1, floor 0/0 (deep dive, step 2)",
        observed="delivered 0/0, ack_floor 0/0 on 2.9.10 and 2.15.0",
    ),
    requirement(
        "JS-SEQ-009",
        "The order in which a cluster elects its leader.",
        "excluded",
        note="no wire test can decide it: it shows only inside the cluster",
    ),
    requirement("JS-SEQ-010", "A later addition.", "not scored", note="added after set 2026.10"),
)

CHECKS = (
    CheckResult(
        "core/info-comes-first",
        Outcome.PASSED,
        ("CORE-001",),
        Level.MUST,
        "INFO comes first",
        observations=1,
        duration_s=0.003,
        wire=exchange('< INFO {"server_id":"NDVJ7OLLQ","version":"2.10.22"}'),
    ),
    CheckResult(
        "core_publish::zero_length_payload_is_legal",
        Outcome.PASSED,
        ("CORE-018",),
        Level.MUST,
        "A payload of zero bytes is legal",
        observations=2,
        duration_s=0.004,
    ),
    CheckResult(
        "adr-13/no-wait-on-an-empty-consumer",
        Outcome.FAILED,
        ("JS-PULL-021",),
        Level.MUST,
        "An empty consumer answers a no_wait pull at once",
        source='ADR-13, "No Wait Pull Requests"',
        where="conformance/traces/adr-13/no-wait-on-an-empty-consumer.trace:9",
        message="the status is not the one expected",
        expected="< HMSG $inbox 1 | NATS/1.0 404 No Messages                     within 1s",
        actual="< HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout",
        observations=2,
        duration_s=0.081,
        wire=(
            *exchange(
                '> PUB $JS.API.STREAM.CREATE.PL7f3a2x1_ORDERS _INBOX.s 57 | {"name":"PL7f3a2x1_ORDERS"}',
                '< MSG _INBOX.s 1 98 | {"type":"io.nats.jetstream.api.v1.stream_create_response"}',
                connection="stage",
            ),
            *exchange(
                "> SUB _INBOX.PL7f3a2x1.inbox 1",
                "> PUB $JS.API.CONSUMER.MSG.NEXT.PL7f3a2x1_ORDERS.PL7f3a2x1_DISPATCH _INBOX.PL7f3a2x1.inbox"
                ' 26 | {"batch":1,"no_wait":true}',
                "< HMSG _INBOX.PL7f3a2x1.inbox 1 81 81 | NATS/1.0 408 Request Timeout",
                "! closed by the check",
                offending=2,
                start=0.004,
            ),
        ),
    ),
    CheckResult(
        "core_delivery::subjects_are_delivered_as_published",
        Outcome.FAILED,
        ("CORE-051",),
        Level.MUST,
        "MSG carries the subject that was published",
        source="docs.nats.io, Client Protocol, MSG",
        where="conformance/checks/test_core_delivery.py:44",
        message=f"expected subject 'a.b', got '{HOSTILE}'",
        expected="subject: a.b\npayload: hello",
        actual=f"subject: {HOSTILE}\npayload: hello",
        wire=exchange("> SUB > 1", "> PUB a.b 5 | hello", f"< MSG {HOSTILE} 1 5 | hello", offending=2),
        duration_s=0.2,
    ),
    CheckResult(
        "adr-13/idle-heartbeat",
        Outcome.FAILED,
        ("JS-PULL-040",),
        Level.SHOULD,
        "Idle heartbeats come in time",
        message="no heartbeat within 500 ms",
        expected="< HMSG $inbox 1 | NATS/1.0 100 Idle Heartbeat",
        actual="nothing",
        wire=exchange(
            "> SUB _INBOX.x 1", "> PUB $JS.API.CONSUMER.MSG.NEXT.O.D _INBOX.x 60", "! nothing for 0.5 s"
        ),
        duration_s=0.61,
    ),
    CheckResult(
        "core/queue-groups",
        Outcome.WAIVED,
        ("CORE-044",),
        Level.MUST,
        "A queue group shares messages",
        message="both members got message 3",
        waiver="known since 2.10.1, fixed in 2.10.23 (https://example.test/issues/7)",
    ),
    CheckResult(
        "core/echo-false",
        Outcome.STALE_WAIVER,
        ("CORE-090",),
        Level.MUST,
        "No echo",
        message="passed although a waiver lists it",
        waiver="broken in 2.9",
    ),
    CheckResult(
        "adr-13/expires",
        Outcome.INCONCLUSIVE,
        ("JS-PULL-030",),
        Level.MUST,
        "A pull expires with 408",
        message="408 came 1.12 s after the pull, the limit was 1.05 s",
        retried=True,
    ),
    CheckResult(
        "core/server-ping",
        Outcome.UNTESTABLE,
        ("CORE-099",),
        Level.MAY,
        "The server pings",
        message="the stage could not be set: account limit reached",
    ),
    CheckResult(
        "js_ack::next_acknowledges_and_pulls",
        Outcome.HARNESS_ERROR,
        ("JS-ACK-003",),
        Level.MUST,
        "+NXT acknowledges and pulls",
        message="KeyError: 'seq' in the check itself",
    ),
    CheckResult(
        "adr-13/min-pending",
        Outcome.UNSUPPORTED,
        ("JS-PULL-061",),
        Level.MAY,
        "min_pending is honoured",
        message="needs JetStream API level 1; the server says 0",
    ),
    CheckResult(
        "deep-dive/fresh-consumer",
        Outcome.PASSED,
        ("JS-SEQ-002",),
        Level.MUST,
        "A fresh consumer is at 0/0",
        observations=1,
    ),
)


def result_of(
    requirements: Sequence[RequirementResult], checks: Sequence[CheckResult], *, strict: bool = False
) -> RunResult:
    """The result that a run with these ends would give."""
    judged_by = defaultdict[str, list[str]](list)
    for check in checks:
        for identity in check.requirements:
            judged_by[identity].append(check.id)
    linked = tuple(replace(found, checks=tuple(judged_by[found.id])) for found in requirements)
    checks = [with_red(check, strict=strict) for check in checks]
    red = sum(check.red for check in checks)
    harness = any(check.outcome is Outcome.HARNESS_ERROR for check in checks)
    counts = tally(linked)
    return RunResult(
        suite=SUITE,
        target=TARGET,
        summary=Summary(
            verdict="not conformant" if red else "conformant",
            exit_code=4 if harness else 1 if red else 0,
            claimed=counts.claimed,
            tested=counts.tested,
            passed=counts.passed,
            checks=_counts(check.outcome for check in checks),
            requirements=_counts(Outcome(found.verdict) for found in linked if found.verdict in set(Outcome)),
            started="2026-11-21T09:30:00+00:00",
            duration_s=12.34,
            reasons=(f"{red} checks are red",) if red else (),
            strict=strict,
        ),
        requirements=linked,
        checks=tuple(checks),
    )


def _counts(outcomes: Iterator[Outcome]) -> Counts:
    return Counts(**{outcome.name.lower(): number for outcome, number in Counter(outcomes).items()})


def sample_result(*, strict: bool = False) -> RunResult:
    """Every outcome once or more, every level, hostile text."""
    return result_of(REQUIREMENTS, CHECKS, strict=strict)


def only(*ids: str) -> RunResult:
    """The sample, with these checks and their requirements alone."""
    checks = [check for check in CHECKS if check.id in ids]
    assert len(checks) == len(ids), f"no such check among {ids}"
    wanted = {identity for check in checks for identity in check.requirements}
    return result_of([found for found in REQUIREMENTS if found.id in wanted], checks)


def conformant_result() -> RunResult:
    return only(
        "core/info-comes-first", "core_publish::zero_length_payload_is_legal", "deep-dive/fresh-consumer"
    )


def events_of(result: RunResult, *, workers: int = 2) -> Iterator[Event]:
    """What the engine would have emitted."""
    yield RunStarted(
        suite=result.suite,
        target=result.target,
        checks=len(result.checks),
        workers=workers,
    )
    for check in result.checks:
        yield CheckStarted(check.id, check.title)
        yield CheckFinished(check)
    yield RunFinished(result)


def big_result(checks: int, *, failing_every: int = 20) -> RunResult:
    """A run of ``checks`` checks, one requirement each, in groups of a hundred."""
    requirements, done = [], []
    pattern = CHECKS[2]
    for number in range(checks):
        identity = f"GRP{number // 100:03d}-{number % 100:03d}"
        failed = number % failing_every == 0
        requirements.append(
            requirement(
                identity,
                f"Requirement {number}: the server answers a request of kind {number} with the status that"
                " the document gives for it, and with no other, as long as the consumer exists.",
                "failed" if failed else "passed",
            )
        )
        done.append(
            replace(
                pattern,
                id=f"group-{number // 100}/check-{number}",
                requirements=(identity,),
                outcome=Outcome.FAILED if failed else Outcome.PASSED,
                wire=pattern.wire * 5,
            )
        )
    return result_of(requirements, done)
