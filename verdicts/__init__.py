"""Outcomes of checks, verdicts of requirements, results of runs, and the verdict events.

This is the one module that ``reports`` may import. It knows nothing of sockets, pytest or files.
The words and what turns a run red: design page, "Verdicts".
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from plumbline.errors import ExitCode as ExitCode


class Level(StrEnum):
    """RFC 2119 levels of a requirement."""

    MUST = "MUST"
    SHOULD = "SHOULD"
    MAY = "MAY"


class Outcome(StrEnum):
    """The outcome of a check."""

    PASSED = "passed"
    FAILED = "failed"
    UNSUPPORTED = "unsupported"
    UNTESTABLE = "untestable"
    INCONCLUSIVE = "inconclusive"
    HARNESS_ERROR = "harness error"
    WAIVED = "waived"
    STALE_WAIVER = "stale waiver"


Direction = Literal[">", "<", "!"]  # sent, received, an event that is not bytes (closed, refused)


class WireLine(Struct, frozen=True, omit_defaults=True):
    """One exchanged operation. ``at`` in seconds since the check began; ``raw`` its exact bytes."""

    at: float
    connection: str
    direction: Direction
    text: str
    raw: bytes = b""
    offending: bool = False


class KnownFailure(Struct, frozen=True):
    """A failure that real releases of ``target`` have: all of ``2.10.8 to 2.10.16``, the last included."""

    target: str
    releases: tuple[str, ...]
    text: str
    link: str = ""


class CheckResult(Struct, frozen=True):
    """The result of one check. ``expected`` and ``actual`` are shown side by side; ``where`` is file:line.

    ``level`` is the strongest level among its requirements: a failed check is red if that is MUST.
    ``retried`` tells that a first run proved nothing and was repeated alone: it was inconclusive, or failed
    on a busy machine; then ``first_try`` is its message, if the check did not fail again. ``known`` says
    of a failed check what is known of that release: it stays failed. ``variant`` names the configuration
    of the server that the check talks to, "" for the ordinary one.
    """

    id: str
    outcome: Outcome
    requirements: tuple[str, ...]
    level: Level
    title: str = ""
    source: str = ""
    where: str = ""
    message: str = ""
    expected: str = ""
    actual: str = ""
    wire: tuple[WireLine, ...] = ()
    observations: int = 0
    duration_s: float = 0.0
    retried: bool = False
    first_try: str = ""
    waiver: str = ""  # the reason (and link) of the waiver that applied
    known: tuple[str, ...] = ()
    variant: str = ""
    claim: str = ""  # "claimed" or "not claimed" by the claims file; empty without one
    red: bool = False  # whether it turns the run red, as with_red decides


class RequirementResult(Struct, frozen=True):
    """The result of one requirement: the worst outcome of its checks, or why none ran.

    ``verdict`` is an ``Outcome`` value, or ``excluded``, ``not selected``, ``not scored``.
    """

    id: str
    level: Level
    verdict: str
    checks: tuple[str, ...]
    group: str = ""
    profile: str = ""
    statement: str = ""
    source: str = ""
    documented: str = ""
    observed: str = ""
    note: str = ""  # why excluded, or why unsupported
    known_failures: tuple[KnownFailure, ...] = ()  # of whatever release
    claim: str = ""  # as that of its checks: "claimed" if one of them is


class Target(Struct, frozen=True):
    """What is under test, as it described itself: a server, or (``kind``) a client library, whose name is
    ``server_name`` then. ``level`` is the protocol level by which checks judge.

    ``rtt_s`` is the measured median round trip, ``slack_s`` what is added to every time limit.
    ``variants`` maps a variant name (``auth``, ``permissions``, ...) to the URL of the same server
    software started with that configuration.
    """

    url: str  # never with a password: see conformance.targets.target
    protocol: str = "nats"  # or "amqp"
    server_name: str = ""
    version: str = ""
    level: str = ""
    features: tuple[str, ...] = ()  # e.g. "headers", "jetstream", "auth_required"
    rtt_s: float = 0.0
    slack_s: float = 0.0
    variants: tuple[str, ...] = ()
    dimensions: dict[str, str] = {}  # of the run: {"storage": "file"}; empty: nothing was asked for
    # Arguments of ``plumbline verify`` that reach this target again; None: its ``url``. No password.
    arguments: tuple[str, ...] | None = None
    kind: Literal["server", "client"] = "server"  # of a client, ``arguments`` are those of ``plumbline gate``


class Suite(Struct, frozen=True):
    """Versions of what judged."""

    version: str
    requirement_set: str
    python: str = ""
    platform: str = ""


class Counts(Struct, frozen=True):
    """How many of something ended how."""

    passed: int = 0
    failed: int = 0
    unsupported: int = 0
    untestable: int = 0
    inconclusive: int = 0
    harness_error: int = 0
    waived: int = 0
    stale_waiver: int = 0


class Summary(Struct, frozen=True):
    """The end of a run. ``claimed`` requirements are those the target claims (selected, in its level and
    profiles); ``tested`` of them had a check with evidence; ``passed`` of those passed."""

    verdict: str  # "conformant" or "not conformant", or why it is neither
    exit_code: int
    claimed: int
    tested: int
    passed: int
    checks: Counts
    requirements: Counts
    started: str  # RFC 3339
    duration_s: float
    reasons: tuple[str, ...] = ()  # why the run is red, one sentence each
    strict: bool = False  # whether a failed SHOULD turned the run red too


class Tally(Struct, frozen=True):
    """How many requirements were claimed, tested and passed: the three counts of a summary."""

    claimed: int = 0
    tested: int = 0
    passed: int = 0


CLAIMED, NOT_CLAIMED = "claimed", "not claimed"


class ClaimRow(Struct, frozen=True):
    """One statement about the product: what the claims file claims and what the server announces.

    ``claimed`` and ``announced`` are ``yes``, ``no`` or a value, and empty where nothing is claimed or
    announced. ``requirements`` are those of a profile. ``contradiction`` is a sentence; it makes the run red.
    """

    kind: Literal["profile", "option", "limit", "version"]
    name: str
    claimed: str
    announced: str
    requirements: Tally = Tally()
    contradiction: str = ""


class ClaimsReport(Struct, frozen=True):
    """The claims file, compared with what the server announces and with what the run found."""

    file: str
    product: str
    rows: tuple[ClaimRow, ...]


class RunResult(Struct, frozen=True):
    """The JSON result file, whole. ``claims``: None without a claims file."""

    suite: Suite
    target: Target
    summary: Summary
    requirements: tuple[RequirementResult, ...]
    checks: tuple[CheckResult, ...]
    claims: ClaimsReport | None = None
    schema: str = "plumbline.result/1"


class RunStarted(Struct, frozen=True, tag=True):
    """The target answered and is calibrated; ``checks`` are about to run."""

    suite: Suite
    target: Target
    checks: int
    workers: int = 1


class CheckStarted(Struct, frozen=True, tag=True):
    """One check begins."""

    id: str
    title: str = ""


class CheckFinished(Struct, frozen=True, tag=True):
    """One check ended, waivers and the retry already taken into account."""

    result: CheckResult


class RunFinished(Struct, frozen=True, tag=True):
    """Nothing comes after this."""

    result: RunResult


_NO_CLAIM = frozenset({Outcome.UNSUPPORTED.value, "excluded", "not selected", "not scored"})
_PASSED = frozenset({Outcome.PASSED.value, Outcome.STALE_WAIVER.value})
_TESTED = _PASSED | {Outcome.FAILED.value, Outcome.WAIVED.value}


def tally(requirements: Iterable[RequirementResult]) -> Tally:
    """The three counts, over a whole run or over one group or level of it.

    A waived requirement was tested and did not pass; one whose waiver is stale did pass. One that the claims
    file claims counts as claimed also where it could not be tested.
    """
    rows = list(requirements)
    verdicts = [requirement.verdict for requirement in rows]
    return Tally(
        claimed=sum(row.verdict not in _NO_CLAIM or is_claimed_unsupported(row) for row in rows),
        tested=sum(verdict in _TESTED for verdict in verdicts),
        passed=sum(verdict in _PASSED for verdict in verdicts),
    )


def is_claimed_unsupported(result: RequirementResult | CheckResult) -> bool:
    """Whether it is claimed by the claims file and could not be tested here."""
    outcome = result.verdict if isinstance(result, RequirementResult) else result.outcome
    return outcome == Outcome.UNSUPPORTED and result.claim == CLAIMED


Event = RunStarted | CheckStarted | CheckFinished | RunFinished


_ALWAYS_RED = frozenset(
    {Outcome.UNTESTABLE, Outcome.INCONCLUSIVE, Outcome.HARNESS_ERROR, Outcome.STALE_WAIVER}
)


def with_red(result: CheckResult, *, strict: bool) -> CheckResult:
    """The result with ``red`` decided from its outcome and level: this is the only place that decides it.

    A failed MUST is red; a failed SHOULD is red in a strict run; a failed MAY never is.
    """
    red = result.outcome in _ALWAYS_RED or (
        result.outcome is Outcome.FAILED
        and (result.level is Level.MUST or (strict and result.level is Level.SHOULD))
    )
    return replace(result, red=red)
