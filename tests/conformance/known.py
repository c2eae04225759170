"""What is known to fail on a release."""

from __future__ import annotations

from plumbline.conformance.known_failures import applies_to
from plumbline.conformance.requirements.catalogue import Catalogue, protocol_level

WITH_FAILURES = [
    row
    for row in Catalogue.load().requirements
    if any(failure.target == "nats-server" for failure in row.known_failures)
]


def known_of(release: str) -> set[str]:
    """The requirements that this nats-server is known to fail."""
    level = protocol_level(release)
    return {
        row.id
        for row in WITH_FAILURES
        if row.applies_at(level) and any(applies_to(failure, release) for failure in row.known_failures)
    }
