"""All defects of the small client library for NATS, by name."""

from __future__ import annotations

from tests.mutation.clients import (
    nats_defects_acks,
    nats_defects_connection,
    nats_defects_core,
    nats_defects_objects,
    nats_defects_pulls,
    nats_defects_services,
    nats_defects_stores,
    nats_defects_tls,
)
from tests.mutation.clients.defect import DEFECTS, Defect

__all__ = [
    "DEFECTS",
    "Defect",
    "nats_defects_acks",
    "nats_defects_connection",
    "nats_defects_core",
    "nats_defects_objects",
    "nats_defects_pulls",
    "nats_defects_services",
    "nats_defects_stores",
    "nats_defects_tls",
]
