"""Defects in what JetStream grants an account. What is right: ``jetstream.api.limits``."""

from __future__ import annotations

from typing import Any

from msgspec import structs

from plumbline.reference_broker.nats.config import AccountLimits
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import add, defect, new
from plumbline.reference_broker.nats.defects.api_alterations import (
    Fields,
    alter_body,
    alter_success,
    body_of,
    refuse,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request

# The requirement, the name, what is wrong, and the limits that count, of an account that has limits.
_OTHER_LIMITS: tuple[tuple[str, str, str, dict[str, Any]], ...] = (
    ("JS-API-202", "streams-have-no-limit", "max_streams is not looked at.", {"max_streams": -1}),
    ("JS-API-202", "streams-have-one-more", "An account has one stream more than max_streams.",
     {"max_streams": 4}),
    ("JS-API-203", "consumers-have-no-limit", "max_consumers is not looked at.", {"max_consumers": -1}),
    ("JS-API-204", "max-bytes-are-not-required", "max_bytes_required is not looked at.",
     {"max_bytes_required": False}),
    ("JS-API-205", "memory-streams-have-any-size", "mem_max_stream_bytes is not looked at.",
     {"memory_max_stream_bytes": -1}),
    ("JS-API-205", "file-streams-have-any-size", "disk_max_stream_bytes is not looked at.",
     {"storage_max_stream_bytes": -1}),
    ("JS-API-205", "largest-stream-is-refused", "A stream with as many bytes as are granted is refused.",
     {"memory_max_stream_bytes": 10239}),
    ("JS-API-206", "memory-has-no-limit", "max_mem is not looked at.", {"max_memory": -1}),
    ("JS-API-206", "files-have-no-limit", "max_file is not looked at.", {"max_storage": -1}),
    ("JS-API-207", "acks-pending-have-no-limit", "max_ack_pending is not looked at.",
     {"max_ack_pending": -1}),
)  # fmt: skip


def _has_other_limits(requirement: str, name: str, summary: str, changes: dict[str, Any]) -> None:
    def alter(broker: Broker) -> None:
        service = jetstream_of(broker)
        limits = service.config.limits
        if limits != AccountLimits():
            service.config = structs.replace(service.config, limits=structs.replace(limits, **changes))

    add(new(f"account-{name}", (requirement,), summary, alter))


for _wrong in _OTHER_LIMITS:
    _has_other_limits(*_wrong)


@defect("JS-API-203")
def account_consumers_of_all_streams_count(broker: Broker) -> None:
    """An account has max_consumers on all of its streams together."""
    service = jetstream_of(broker)

    def is_full(request: Request) -> bool:
        most = service.config.limits.max_consumers
        return 0 < most <= sum(len(one.consumers) for one in service.streams.values())

    refuse(broker, "consumer_create", errors.CONSUMER_LIMIT_REACHED(), is_full)


@defect("JS-API-204")
def account_updates_need_no_max_bytes(broker: Broker) -> None:
    """An update may take max_bytes away where an account requires them."""

    def change(body: Fields, request: Request) -> None:
        if jetstream_of(broker).config.limits.max_bytes_required and body.get("max_bytes", 0) <= 0:
            body["max_bytes"] = 1

    alter_body(broker, "stream_update", change)


@defect("JS-API-207")
def account_default_of_acks_pending_is_the_same(broker: Broker) -> None:
    """A consumer without max_ack_pending gets 1000, whatever its account grants."""

    def change(fields: Fields, request: Request) -> None:
        asked = (body_of(request) or {}).get("config", {})
        if "max_ack_pending" not in asked and fields["config"].get("max_ack_pending"):
            fields["config"]["max_ack_pending"] = 1000

    alter_success(broker, "consumer_create", change)


@defect("JS-API-208")
def account_info_shows_no_limits(broker: Broker) -> None:
    """The account info shows that there is no limit of streams."""
    alter_success(broker, "account_info", lambda fields, request: fields["limits"].update(max_streams=-1))
