"""From a judgement to outcomes of checks: each rule is a check of one requirement ``JS-CLUS-*``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

from msgspec.structs import replace

from plumbline.cluster.judging import ClusterJudgement, ClusterRule, Finding
from plumbline.conformance import known_failures
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.requirements.references import CheckReference, CheckReferences, Reference
from plumbline.verdicts import CheckResult, Outcome, WireLine
from plumbline.wire.units import SECOND

REQUIREMENTS = Path(__file__).parent / "requirements"
SHOWN = 5  # findings in a message
PREFIXES = ("JS-CLUS", "AMQP-CLUS", "CLUSTER")  # of ids, groups and profiles of clusters

# What lost bytes explain: the end of a log, the acks and updates in it, sequences that are given again; and
# if most nodes lost them, also that there is no stream: that it was created is in a log, too.
BY_POWER_LOSS = frozenset(
    {
        ClusterRule.LOST, ClusterRule.PLACE, ClusterRule.ONE_MESSAGE, ClusterRule.DUPLICATED,
        ClusterRule.ORDER, ClusterRule.STALE_READ, ClusterRule.SETTLED, ClusterRule.FLOOR,
        ClusterRule.LAST_VALUE, ClusterRule.COMPARE_AND_SET, ClusterRule.WATCH,
    }
)  # fmt: skip
BY_POWER_LOSS_OF_MAJORITY = BY_POWER_LOSS | {ClusterRule.AVAILABLE, ClusterRule.CONSUMER_AVAILABLE}
# nats-server without ``sync_interval: always``, of which a node has lost power.
LOSS_IS_DOCUMENTED = (
    "the documentation allows it: by default nats-server does not fsync before it acknowledges, so the most "
    "recently acknowledged messages may be lost if a server fails with its operating system (nats.docs, "
    '"JetStream", "Syncing data to disk"). With sync_interval "always" it would fail'
)

Checks = dict[ClusterRule, tuple[str, str]]  # rule -> requirement, what was expected

NATS_CHECKS: Checks = {
    ClusterRule.LOST: ("JS-CLUS-001", "every acknowledged message is on every node after healing"),
    ClusterRule.PLACE: ("JS-CLUS-002", "the message is stored at the acknowledged sequence"),
    ClusterRule.ONE_MESSAGE: ("JS-CLUS-003", "one message for each acknowledged sequence"),
    ClusterRule.DUPLICATED: ("JS-CLUS-004", "one stored message for each message id"),
    ClusterRule.UNEXPECTED: ("JS-CLUS-005", "only messages that were published and not refused"),
    ClusterRule.SAME_LOG: ("JS-CLUS-006", "the same messages on every node"),
    ClusterRule.SAME_MESSAGE: ("JS-CLUS-007", "the same message at a sequence, everywhere and always"),
    ClusterRule.ORDER: ("JS-CLUS-008", "a higher sequence than any acknowledged before the publish"),
    ClusterRule.STALE_READ: ("JS-CLUS-009", "the acknowledged message"),
    ClusterRule.AVAILABLE: ("JS-CLUS-010", "the stream answers and every node is up to date"),
    ClusterRule.SETTLED: ("JS-CLUS-011", "no delivery after a double ack was confirmed"),
    ClusterRule.DELIVERED: ("JS-CLUS-012", "every stored message is delivered"),
    ClusterRule.REDELIVERED: ("JS-CLUS-013", "what was not acknowledged is delivered again"),
    ClusterRule.FLOOR: ("JS-CLUS-014", "a floor that is not lower than before"),
    ClusterRule.FLOOR_ABOVE: ("JS-CLUS-015", "every message up to the floor is acknowledged"),
    ClusterRule.CONSUMER_AVAILABLE: ("JS-CLUS-016", "the consumer answers and can be drained"),
    ClusterRule.COMPARE_AND_SET: ("JS-CLUS-017", "the last revision of the key is the expected one"),
    ClusterRule.LAST_VALUE: ("JS-CLUS-018", "the last acknowledged value of a key, or a later one"),
    ClusterRule.WATCH: (
        "JS-CLUS-020",
        "every update that the bucket still has, in order, as it was acknowledged",
    ),
    ClusterRule.REMOVED: ("JS-CLUS-019", "no message that was acknowledged, on any node"),
}
AMQP_CHECKS: Checks = {
    ClusterRule.LOST: ("AMQP-CLUS-001", "every confirmed message is delivered"),
    ClusterRule.UNEXPECTED: ("AMQP-CLUS-002", "only messages that were published and not returned"),
    ClusterRule.DUPLICATED: ("AMQP-CLUS-003", "a message that comes again is marked as redelivered"),
    ClusterRule.REDELIVERED: ("AMQP-CLUS-004", "what was not acknowledged is delivered again"),
    ClusterRule.ONE_CONFIRM: ("AMQP-CLUS-005", "one confirm for each publish"),
    ClusterRule.UNCONFIRMED: ("AMQP-CLUS-006", "a confirm for every publish on an open channel"),
    ClusterRule.ORDER: ("AMQP-CLUS-007", "what was confirmed before another publish comes before it"),
    ClusterRule.CHANNEL_ORDER: ("AMQP-CLUS-008", "the order in which one channel published"),
    ClusterRule.AVAILABLE: ("AMQP-CLUS-009", "every node confirms a publish, and the queue can be drained"),
}
CHECKS: dict[str, Checks] = {"nats": NATS_CHECKS, "amqp": AMQP_CHECKS}  # by protocol
OF_REMOVAL = frozenset({ClusterRule.REMOVED})  # not of streams that keep all
OF_DELIVERIES = (
    ClusterRule.REDELIVERED, ClusterRule.SETTLED, ClusterRule.DELIVERED, ClusterRule.FLOOR,
    ClusterRule.FLOOR_ABOVE, ClusterRule.CONSUMER_AVAILABLE, ClusterRule.CHANNEL_ORDER,
)  # fmt: skip
OF_KEYS = (ClusterRule.COMPARE_AND_SET, ClusterRule.LAST_VALUE, ClusterRule.WATCH)


def catalogue() -> Catalogue:
    """The requirements of clusters, which are a set of their own. Raises ``CatalogueError``."""
    return Catalogue.load(REQUIREMENTS)


def names_clusters(names: Iterable[str]) -> bool:
    """Whether any of these patterns, groups or profiles is one of clusters."""
    return any(name.upper().startswith(PREFIXES) for name in names)


def with_clusters(servers: Catalogue, references: CheckReferences) -> tuple[Catalogue, CheckReferences]:
    """Both catalogues as one, and what verifies them. Raises ``CatalogueError``."""
    clusters = catalogue()
    groups, by_id = (*servers.groups, *clusters.groups), {**servers.by_id, **clusters.by_id}
    where = "cluster/judging.py"
    checks = tuple(
        CheckReference(_check_id(protocol, rule), where, (Reference(name, where),))
        for protocol, known in CHECKS.items()
        for rule, (name, _) in known.items()
    )
    return Catalogue(groups, by_id), CheckReferences(references.checks + checks, references.problems)


def check_results(
    protocol: str,
    judged: ClusterJudgement,
    known: Catalogue,
    timeline: Sequence[tuple[int, str]],
    duration_s: float,
    version: str,
    explained: frozenset[ClusterRule] = frozenset(),
    left_out: frozenset[ClusterRule] = OF_REMOVAL,
) -> list[CheckResult]:
    """One result for each rule of the protocol that is not ``left_out``. ``timeline``: what happened, ns from
    the start of the run. ``version``: of the server, of which failures may be known. ``explained``: rules
    whose findings are no failures, since the server may lose what it has acknowledged
    (``LOSS_IS_DOCUMENTED``)."""
    wire = tuple(WireLine(at / SECOND, "cluster", "!", text) for at, text in timeline)
    results: list[CheckResult] = []
    for rule, check in CHECKS[protocol].items():
        if rule in left_out:
            continue
        result = _check_result(_check_id(protocol, rule), rule, check, judged, known, wire, duration_s)
        results.append(_excused(result) if _is_explained(rule, judged, explained) else result)
    return [_with_known(result, known, version) for result in results]


def _with_known(result: CheckResult, catalogue: Catalogue, version: str) -> CheckResult:
    if result.outcome is not Outcome.FAILED:
        return result
    failures = [one for name in result.requirements for one in catalogue.by_id[name].known_failures]
    found = [known_failures.describe(one) for one in failures if known_failures.applies_to(one, version)]
    return replace(result, known=tuple(found))


def _is_explained(rule: ClusterRule, judged: ClusterJudgement, explained: frozenset[ClusterRule]) -> bool:
    """That a node stores a message twice never is."""
    is_stored_twice = rule is ClusterRule.DUPLICATED and any(
        finding.node is not None for finding in judged.of(rule)
    )
    return rule in explained and not is_stored_twice


def _excused(result: CheckResult) -> CheckResult:
    """Untestable instead of failed."""
    if result.outcome is not Outcome.FAILED:
        return result
    return replace(result, outcome=Outcome.UNTESTABLE, message=f"{result.message}; {LOSS_IS_DOCUMENTED}")


def _check_result(
    check_id: str,
    rule: ClusterRule,
    check: tuple[str, str],
    judged: ClusterJudgement,
    known: Catalogue,
    timeline: tuple[WireLine, ...],
    duration_s: float,
) -> CheckResult:
    name, expected = check
    requirement = known.by_id[name]
    found = judged.of(rule)
    message, outcome = "", Outcome.PASSED
    if found:
        message, outcome = _message(found), Outcome.FAILED
    elif rule in judged.undecided:
        message, outcome = judged.undecided[rule], Outcome.UNTESTABLE
    return CheckResult(
        id=check_id,
        outcome=outcome,
        requirements=(name,),
        level=requirement.level,
        title=requirement.statement,
        source=requirement.source,
        message=message,
        expected=expected if found else "",
        actual=found[0].text if found else "",
        wire=timeline if found else (),
        observations=_observations(rule, judged),
        duration_s=duration_s,
    )


def _observations(rule: ClusterRule, judged: ClusterJudgement) -> int:
    """How much the rule had to look at."""
    if rule in OF_DELIVERIES or rule in OF_REMOVAL:
        return judged.deliveries
    if rule in OF_KEYS:
        return judged.updates
    return judged.reads if rule is ClusterRule.STALE_READ else judged.acknowledged


def _check_id(protocol: str, rule: ClusterRule) -> str:
    return f"cluster/{rule}" if protocol == "nats" else f"cluster/{protocol}/{rule}"


def _message(found: Sequence[Finding]) -> str:
    parts = [str(part) for part in dict.fromkeys(finding.part for finding in found) if part is not None]
    where = f" ({', '.join(parts)})" if parts else ""
    more = f"; and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    return f"{len(found)} found{where}: " + "; ".join(one.text for one in found[:SHOWN]) + more
