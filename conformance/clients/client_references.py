"""Which scenarios and rules verify which client requirements, as ``requirements.references``
does for checks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from plumbline.conformance.clients.gate import catalogue as catalogue_of_clients
from plumbline.conformance.clients.rules import RULES
from plumbline.conformance.clients.scenario import all_scenarios
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.requirements.references import (
    CheckReference,
    CheckReferences,
    Reference,
    check_references,
)

PREFIX = "CLIENT"  # of ids, groups and profiles of client libraries


def names_clients(names: Iterable[str]) -> bool:
    """Whether any of these patterns, groups or profiles is one of client libraries."""
    return any(name.upper().startswith(PREFIX) for name in names)


def scenario_references() -> CheckReferences:
    """All scenarios, then the rules."""
    checks = [scenario.check for scenario in all_scenarios()] + [rule.check for rule in RULES]
    return CheckReferences(
        tuple(
            CheckReference(
                check.id, check.where, tuple(Reference(name, check.where) for name in check.requirements)
            )
            for check in checks
        )
    )


def requirements_and_checks(names: Sequence[str]) -> tuple[Catalogue, CheckReferences]:
    """The requirements of servers and their checks; with those of clients if one of these patterns, groups or
    profiles is about clients. Raises ``CatalogueError``."""
    catalogue, written = Catalogue.load(), check_references()
    return with_clients(catalogue, written) if names_clients(names) else (catalogue, written)


def with_clients(servers: Catalogue, references: CheckReferences) -> tuple[Catalogue, CheckReferences]:
    """Both catalogues as one, and what verifies them. Raises ``CatalogueError``."""
    clients = catalogue_of_clients()
    groups, by_id = (*servers.groups, *clients.groups), {**servers.by_id, **clients.by_id}
    return Catalogue(groups, by_id), CheckReferences(
        references.checks + scenario_references().checks, references.problems
    )
