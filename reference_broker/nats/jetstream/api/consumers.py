"""API requests about consumers: each gives the reply's fields, or raises ``JetStreamError``.

Source: docs.nats.io, "JetStream wire API Reference"; order of the checks as servers answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api import limits
from plumbline.reference_broker.nats.jetstream.api.requests import (
    LIST_LIMIT,
    NAMES_LIMIT,
    PageRequest,
    Request,
    consumer_of,
    decode,
    decode_object,
    is_empty,
    page,
    stream_of,
)
from plumbline.reference_broker.nats.jetstream.consumers import config as consumer_config
from plumbline.reference_broker.nats.jetstream.consumers.ack import Sequences
from plumbline.reference_broker.nats.jetstream.consumers.config import ConsumerConfig
from plumbline.reference_broker.nats.jetstream.consumers.consumer import Consumer
from plumbline.reference_broker.nats.jetstream.consumers.priority import PinnedQueue
from plumbline.reference_broker.nats.jetstream.streams.config import MAX_NAME
from plumbline.reference_broker.nats.jetstream.streams.stream import Stream
from plumbline.wire.nats.jetstream.times import NEVER, format_time, parse_time

if TYPE_CHECKING:
    from plumbline.reference_broker.nats.jetstream.service import JetStream


class CreateRequest(Struct, kw_only=True):
    """The body of all three forms of a create request."""

    stream_name: str = ""
    config: ConsumerConfig = msgspec.field(default_factory=ConsumerConfig)
    action: Literal["", "create", "update"] = ""
    pedantic: bool = False


def create(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.CREATE.<stream>, .<stream>.<name>, and .<stream>.<name>.<filter>."""
    create_request = decode(jetstream, request.body, CreateRequest)
    stream_name, *rest = request.names
    check_stream_name(create_request, stream_name)
    if not rest:
        if create_request.config.durable_name:
            raise errors.CONSUMER_EPHEMERAL_WITH_DURABLE()
        return finish(jetstream, create_request, request.now)
    name, pattern = rest[0], ".".join(rest[1:])
    check_path_separators(name)
    if create_request.config.durable_name not in ("", name):
        raise errors.CONSUMER_DURABLE_NOT_MATCHING_SUBJECT()
    if pattern and create_request.config.filter_subjects and jetstream.rules.multiple_filters:
        raise errors.CONSUMER_MULTIPLE_FILTERS_IN_SUBJECT()
    if pattern and create_request.config.filter_subject != pattern:
        raise errors.CONSUMER_FILTER_NOT_MATCHING_SUBJECT()
    create_request.config.name = name
    return finish(jetstream, create_request, request.now)


def create_durable(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.DURABLE.CREATE.<stream>.<name>, the older form."""
    create_request = decode(jetstream, request.body, CreateRequest)
    if len(request.names) != 2:
        raise errors.CONSUMER_DURABLE_NOT_IN_SUBJECT()
    stream_name, name = request.names
    check_stream_name(create_request, stream_name)
    check_path_separators(name)
    if not create_request.config.durable_name:
        raise errors.CONSUMER_DURABLE_NOT_SET()
    if create_request.config.durable_name != name:
        raise errors.CONSUMER_DURABLE_NOT_MATCHING_SUBJECT()
    if jetstream.rules.durable_shows_name:
        create_request.config.name = name
    return finish(jetstream, create_request, request.now)


def check_stream_name(create_request: CreateRequest, name: str) -> None:
    """Raises ``JetStreamError`` if subject and body name different streams."""
    if create_request.stream_name != name:
        raise errors.STREAM_MISMATCH()


def check_path_separators(name: str) -> None:
    """Raises ``JetStreamError`` for a name that would be a path."""
    if "/" in name or "\\" in name:
        raise errors.CONSUMER_NAME_HAS_PATH_SEPARATORS()


def finish(jetstream: JetStream, create_request: CreateRequest, now: int) -> dict[str, Any]:
    """Create the consumer, or update the one that bears the name."""
    if create_request.config.num_replicas > 1:
        raise errors.STREAM_REPLICAS_NOT_SUPPORTED()
    stream = stream_of(jetstream, create_request.stream_name)
    asked = limits.with_ack_pending(jetstream, create_request.config)
    config = consumer_config.check(asked, stream.config, jetstream.rules)
    action = create_request.action if jetstream.rules.create_action_field else ""
    name = config.durable_name or config.name
    consumer = stream.consumers.get(name)
    if consumer is not None:
        update(consumer, config, action, now)
    elif action == "update":
        raise errors.CONSUMER_DOES_NOT_EXIST()
    else:
        consumer = add(stream, name, config, now)
    return describe(consumer, now)


def update(consumer: Consumer, config: ConsumerConfig, action: str, now: int) -> None:
    """A create request for a consumer that is there. Raises ``JetStreamError`` for what may not change."""
    if config == consumer.config:
        return
    if action == "create":
        raise errors.CONSUMER_ALREADY_EXISTS()
    rules = consumer.rules
    bound = not config.is_pull and consumer.host.has_interest(consumer.target)
    consumer_config.check_update(consumer.config, config, bound=bound, rules=rules)
    consumer.reconfigure(config, now)
    consumer.stream.release_unwanted()


def add(stream: Stream, name: str, config: ConsumerConfig, now: int) -> Consumer:
    """A new consumer. Raises ``JetStreamError`` if the stream takes no more, or none like it."""
    if 0 < stream.config.max_consumers <= len(stream.consumers):
        raise errors.CONSUMER_LIMIT_REACHED()
    limits.check_consumers(stream)
    stream.check_consumer(config)
    if len(name) > MAX_NAME:
        raise errors.CONSUMER_NAME_TOO_LONG()
    return stream.add_consumer(name or unused_name(stream), config, now)


def unused_name(stream: Stream) -> str:
    """For an ephemeral consumer that came without one."""
    while (name := stream.jetstream.new_name(8)) in stream.consumers:
        pass
    return name


def info(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.INFO.<stream>.<name>."""
    return describe(consumer_of(jetstream, *request.names), request.now)


def names(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.NAMES.<stream>."""
    page_request = decode_object(jetstream, request.body, PageRequest)
    stream = stream_of(jetstream, request.names[0])
    paging, found = page(sorted(stream.consumers), page_request.offset, NAMES_LIMIT)
    return {**paging, "consumers": found}


def list_(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.LIST.<stream>."""
    page_request = decode_object(jetstream, request.body, PageRequest)
    stream = stream_of(jetstream, request.names[0])
    paging, found = page(sorted(stream.consumers), page_request.offset, LIST_LIMIT)
    return {**paging, "consumers": [describe(stream.consumers[name], request.now) for name in found]}


def delete(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.DELETE.<stream>.<name>."""
    if not is_empty(request.body):
        raise errors.NOT_EMPTY_REQUEST()
    consumer = consumer_of(jetstream, *request.names)
    consumer.stream.delete_consumer(consumer, request.now)
    return {"success": True}


class UnpinRequest(Struct, kw_only=True):
    """The body of CONSUMER.UNPIN."""

    group: str = ""


def unpin(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.UNPIN.<stream>.<name> (ADR-42)."""
    unpin_request = decode(jetstream, request.body, UnpinRequest)
    if not unpin_request.group:
        raise errors.INVALID_JSON(detail=": consumer group not specified")
    consumer = consumer_of(jetstream, *request.names)
    if unpin_request.group not in consumer.config.priority_groups:
        raise errors.PRIORITY_GROUP_UNKNOWN()
    consumer.unpin(request.now, "admin")
    return {}


class PauseRequest(Struct, kw_only=True):
    """The body of CONSUMER.PAUSE; without ``pause_until`` the pause ends."""

    pause_until: str = ""


def pause(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.PAUSE.<stream>.<name>."""
    pause_request = decode_object(jetstream, request.body, PauseRequest)
    consumer = consumer_of(jetstream, *request.names)
    until = pause_request.pause_until or None
    if until is not None and parse_time(until) is None:
        raise errors.INVALID_JSON(detail=f': parsing time "{until}"')
    consumer.reconfigure(msgspec.structs.replace(consumer.config, pause_until=until), request.now)
    paused = paused_for(consumer, request.now)
    return {"paused": bool(paused), "pause_until": until or NEVER, **paused}


class ResetRequest(Struct, kw_only=True):
    """The body of CONSUMER.RESET; without ``seq`` it is the sequence behind the ack floor."""

    seq: Annotated[int, msgspec.Meta(ge=0)] = 0


def reset(jetstream: JetStream, request: Request) -> dict[str, Any]:
    """CONSUMER.RESET.<stream>.<name> (ADR-60)."""
    reset_request = decode_object(jetstream, request.body, ResetRequest)
    consumer = consumer_of(jetstream, *request.names)
    if problem := reset_problem(consumer, reset_request.seq):
        raise errors.CONSUMER_INVALID_RESET(reason=problem)
    seq = reset_request.seq or consumer.acks.floor.stream + 1
    consumer.reset(seq, request.now)
    return {**describe(consumer, request.now), "reset_seq": seq}


def reset_problem(consumer: Consumer, seq: int) -> str:
    """Why a consumer does not begin again at ``seq``; empty if it does. 0 is always possible."""
    config = consumer.config
    if not seq or config.deliver_policy == "all":
        return ""
    if config.deliver_policy == "by_start_sequence":
        return "below start seq" if seq < config.opt_start_seq else ""
    if config.deliver_policy == "by_start_time":
        message = consumer.stream.store.load(seq)
        start = parse_time(config.opt_start_time or "") or 0
        return "below start time" if message is not None and message.time < start else ""
    return "not allowed"


def paused_for(consumer: Consumer, now: int) -> dict[str, int]:
    """``pause_remaining`` of a consumer that is paused."""
    remaining = consumer.paused_until - now
    return {"pause_remaining": remaining} if remaining > 0 else {}


def describe(consumer: Consumer, now: int) -> dict[str, Any]:
    """A consumer's configuration and state, as every reply shows them; also drops requests whose inbox is
    gone."""
    consumer.waiting.expire(now, at_end=False)
    return {
        "stream_name": consumer.stream.config.name,
        "name": consumer.name,
        "created": format_time(consumer.created),
        "config": consumer.config.echo(consumer.rules),
        "delivered": pair(consumer.reported_delivered(), consumer.acks.last_delivery),
        "ack_floor": pair(consumer.reported_floor(), consumer.acks.last_ack),
        "num_ack_pending": consumer.reported_ack_pending(),
        "num_redelivered": consumer.reported_redelivered(),
        "num_waiting": consumer.reported_waiting(),
        "num_pending": consumer.reported_pending(),
        **({"push_bound": True} if consumer.active else {}),
        **({"paused": True, **paused} if (paused := paused_for(consumer, now)) else {}),
        **({"ts": format_time(now)} if consumer.rules.info_has_timestamp else {}),
        **({"priority_groups": [group_state(consumer)]} if consumer.config.priority_groups else {}),
    }


def group_state(consumer: Consumer) -> dict[str, str]:
    """The state of a consumer's priority group: which client is pinned, and since when."""
    queue, group = consumer.waiting, consumer.config.priority_groups[0]
    if not isinstance(queue, PinnedQueue) or not queue.pin:
        return {"group": group}
    return {"group": group, "pinned_client_id": queue.pin, "pinned_ts": format_time(queue.pinned_at)}


def pair(sequences: Sequences, last_active: int | None) -> dict[str, Any]:
    """``delivered`` and ``ack_floor``; ``last_active`` only once there was activity."""
    fields: dict[str, Any] = {"consumer_seq": sequences.consumer, "stream_seq": sequences.stream}
    return fields | ({} if last_active is None else {"last_active": format_time(last_active)})
