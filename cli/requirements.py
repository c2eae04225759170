"""The requirements that a command line names: of servers, of client libraries, of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plumbline.cluster.verdicts import names_clusters, with_clusters
from plumbline.conformance.clients import client_references
from plumbline.conformance.requirements.catalogue import Catalogue, Requirement
from plumbline.conformance.requirements.references import CheckReferences


def requirements_and_checks(names: Sequence[str]) -> tuple[Catalogue, CheckReferences]:
    """Those of servers and their checks; with those of clients or clusters if one of these patterns, groups
    or profiles is about them. Raises ``CatalogueError``."""
    found = client_references.requirements_and_checks(names)
    return with_clusters(*found) if names_clusters(names) else found


def all_requirements() -> Mapping[str, Requirement]:
    """By id, those of servers, client libraries and clusters. Raises ``CatalogueError``."""
    clients = client_references.with_clients(Catalogue.load(), CheckReferences(()))
    return with_clusters(*clients)[0].by_id
