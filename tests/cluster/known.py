"""What released servers are known to break: listed with the requirements of clusters."""

from __future__ import annotations

from typing import Any

from plumbline.cluster.verdicts import catalogue
from plumbline.conformance.known_failures import applies_to


def known_failures(version: str) -> set[str]:
    """The requirements that nats-server of this version is known to break."""
    return {
        one.id
        for one in catalogue().by_id.values()
        if any(applies_to(failure, version) for failure in one.known_failures)
    }


def unexpected_failures(result: dict[str, Any], version: str) -> tuple[set[str], set[str]]:
    """The requirements that failed in the JSON result of a run, and those of them that are not known of
    nats-server of this version."""
    failed = {row["id"] for row in result["requirements"] if row["verdict"] == "failed"}
    return failed, failed - known_failures(version)
