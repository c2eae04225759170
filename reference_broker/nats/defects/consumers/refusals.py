"""Defects of what a consumer's configuration may not say. What is right: ``consumer_config.check``."""

from __future__ import annotations

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, body_of
from plumbline.reference_broker.nats.defects.consumers.configuration import (
    CREATE,
    Config,
    alter_config,
    is_pull,
)
from plumbline.reference_broker.nats.defects.methods import jetstream_of
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import ApiRoute
from plumbline.reference_broker.nats.jetstream.streams.config import MAX_DESCRIPTION
from plumbline.wire.units import MILLISECOND


@defect("JS-CONS-023")
def cons_push_to_wildcards_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (push-to-wildcards)."""

    def change(config: Config) -> None:
        if not is_pull(config):
            config["deliver_subject"] = config["deliver_subject"].replace("*", "any")

    alter_config(broker, change)


@defect("JS-CONS-123")
def cons_push_to_an_empty_token_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (push-to-an-empty-token)."""

    def change(config: Config) -> None:
        if not is_pull(config):
            config["deliver_subject"] = config["deliver_subject"].replace("..", ".")

    alter_config(broker, change)


@defect("JS-CONS-024")
def cons_push_cycle_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (push-cycle)."""

    def change(config: Config) -> None:
        if not is_pull(config) and not config["deliver_subject"].startswith("_INBOX."):
            config["deliver_subject"] = "_INBOX.cycle"

    alter_config(broker, change)


@defect("JS-CONS-025")
def cons_short_heartbeat_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (short-heartbeat)."""

    def change(config: Config) -> None:
        if "idle_heartbeat" in config:
            config["idle_heartbeat"] = max(config["idle_heartbeat"], 100 * MILLISECOND)

    alter_config(broker, change)


@defect("JS-CONS-027")
def cons_backoff_over_max_deliver_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (backoff-over-max-deliver)."""

    def change(config: Config) -> None:
        if config.get("max_deliver", 0) > 0:
            config["max_deliver"] = max(config["max_deliver"], len(config.get("backoff", ())) + 1)

    alter_config(broker, change)


@defect("JS-CONS-031")
def cons_sampling_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (sampling)."""

    def change(config: Config) -> None:
        if not config.get("sample_freq", "0").isdigit():
            del config["sample_freq"]

    alter_config(broker, change)


@defect("JS-CONS-040")
def cons_long_description_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (long-description)."""

    def change(config: Config) -> None:
        config["description"] = config.get("description", "")[:MAX_DESCRIPTION]

    alter_config(broker, change)


@defect("JS-CONS-125")
def cons_negative_backoff_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (negative-backoff)."""

    def change(config: Config) -> None:
        if "backoff" in config:
            config["backoff"] = [max(step, 0) for step in config["backoff"]]

    alter_config(broker, change)


@defect("JS-CONS-125")
def cons_first_backoff_alone_is_looked_at(broker: Broker) -> None:
    """A consumer with a negative step behind the first one of its backoff is created."""

    def change(config: Config) -> None:
        first, *others = config.get("backoff") or [0]
        if others:
            config["backoff"] = [first, *(max(step, 0) for step in others)]

    alter_config(broker, change)


@defect("JS-CONS-127")
def cons_empty_priority_group_is_accepted(broker: Broker) -> None:
    """A consumer that is to be refused is created (empty-priority-group)."""

    def change(config: Config) -> None:
        if "priority_groups" in config:
            config["priority_groups"] = [group or "none" for group in config["priority_groups"]]

    alter_config(broker, change)


@defect("JS-CONS-019")
def cons_refused_consumer_is_there(broker: Broker) -> None:
    """A pull consumer with rate_limit_bps is created, though its creation is answered with an error."""
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: ApiRoute, request: Request, header_block: bytes) -> Fields:
        body = body_of(request) if route.kind == CREATE else None
        if body is not None and body.get("config", {}).get("rate_limit_bps"):
            config = {key: value for key, value in body["config"].items() if key != "rate_limit_bps"}
            without = msgspec.json.encode({**body, "config": config})
            answer(route, msgspec.structs.replace(request, body=without), header_block)
        return answer(route, request, header_block)

    replace(api, "answer", altered)
