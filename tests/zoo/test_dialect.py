"""A conformant server whose answers have other text with the same meaning is conformant."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import NatsUrl, TargetAccess, open_target
from plumbline.conformance.targets.variants import main_server, variants
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.verdicts import Outcome
from tests.deciding import decided
from tests.zoo.dialect import other_dialect

VARIANTS = ("no-jetstream", "domain")
# What the other dialect changes: flags, descriptions, statuses, identifiers and times.
GROUPS = (
    *(
        "JS-PUB-00",
        "JS-PUB-01",
        "JS-PUB-02",
        "JS-PUB-03",
        "JS-CONS-07",
        "JS-CONS-08",
        "JS-CONS-091",
        "JS-ADV-0",
    ),
    *("JS-API-00", "JS-API-02", "JS-API-12", "JS-API-16", "JS-PULL-001", "JS-PULL-038", "JS-PULL-04"),
    *("JS-ADV-0", "JS-ACK-003", "JS-ACK-02", "CORE-076", "CORE-082"),
)
CHECKS = [
    check
    for check in all_checks("nats")
    if any(name.startswith(GROUPS) for name in check.requirements) and check.variant in (None, *VARIANTS)
]
CATALOGUE = Catalogue.load()


@pytest.fixture(scope="module")
def access() -> Iterator[TargetAccess]:
    with ExitStack() as running:
        urls = {}
        configurations = {"": main_server(), **variants()}
        for name in ("", *VARIANTS):
            thread = NatsBroker.in_thread(Config.of(**configurations[name].config))
            server = NatsUrl.parse(running.enter_context(thread))
            relay = running.enter_context(other_dialect(server.host, server.port))
            urls[name] = NatsUrl.parse(f"nats://{relay}")
        yield open_target(RunningTarget(urls.pop(""), urls), run="diale")


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.id)
def test_a_server_of_another_dialect_passes(access: TargetAccess, check: Check) -> None:
    result = decided(check, access, CATALOGUE)
    evidence = (result.message, result.expected, result.actual)
    assert result.outcome in (Outcome.PASSED, Outcome.UNSUPPORTED), evidence
