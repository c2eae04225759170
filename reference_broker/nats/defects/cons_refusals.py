"""Defects of what a consumer's configuration may not say. What is right: ``consumer_config.check``."""

from __future__ import annotations

from collections.abc import Callable
from typing import get_args

import msgspec

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_error, body_of
from plumbline.reference_broker.nats.defects.cons_configuration import CREATE, Config, alter_config, is_pull
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_defect, jetstream_of
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Route
from plumbline.reference_broker.nats.jetstream.consumers.config import AckPolicy, DeliverPolicy
from plumbline.reference_broker.nats.jetstream.errors import Kind
from plumbline.reference_broker.nats.jetstream.streams.config import MAX_DESCRIPTION
from plumbline.wire.durations import MILLISECOND

# What is refused with another err_code: the name, the requirement, the error, and what its text says.
_ERRORS = (
    ("start-sequence-not-set", "JS-CONS-013", errors.CONSUMER_INVALID_POLICY, "start sequence is not set"),
    ("start-time-not-set", "JS-CONS-014", errors.CONSUMER_INVALID_POLICY, "start time is not set"),
    ("all-with-a-start-sequence", "JS-CONS-015", errors.CONSUMER_INVALID_POLICY, "deliver all,"),
    ("last-with-a-start-sequence", "JS-CONS-016", errors.CONSUMER_INVALID_POLICY, "deliver last,"),
    ("new-with-a-start-time", "JS-CONS-017", errors.CONSUMER_INVALID_POLICY, "deliver new,"),
    ("last-per-subject-alone", "JS-CONS-018", errors.CONSUMER_INVALID_POLICY, "filter subject is not set"),
    ("pull-with-a-rate-limit", "JS-CONS-019", errors.PULL_WITH_RATE_LIMIT, ""),
    ("pull-with-a-heartbeat", "JS-CONS-020", errors.PULL_WITH_HEARTBEAT, ""),
    ("pull-with-flow-control", "JS-CONS-021", errors.PULL_WITH_FLOW_CONTROL, ""),
    ("push-with-max-waiting", "JS-CONS-022", errors.PUSH_WITH_MAX_WAITING, ""),
    ("push-to-wildcards", "JS-CONS-023", errors.PUSH_TO_WILDCARDS, ""),
    ("push-cycle", "JS-CONS-024", errors.PUSH_CYCLE, ""),
    ("short-heartbeat", "JS-CONS-025", errors.PUSH_HEARTBEAT_TOO_SMALL, ""),
    ("flow-control-alone", "JS-CONS-026", errors.PUSH_FLOW_CONTROL_NEEDS_HEARTBEAT, ""),
    ("backoff-over-max-deliver", "JS-CONS-027", errors.CONSUMER_MAX_DELIVER_BACKOFF, ""),
    ("sampling", "JS-CONS-031", errors.CONSUMER_INVALID_SAMPLING, ""),
    ("negative-ack-wait", "JS-CONS-035", errors.CONSUMER_ACK_WAIT_NEGATIVE, ""),
    ("short-max-expires", "JS-CONS-039", errors.PULL_MAX_EXPIRES_TOO_SMALL, ""),
    ("long-description", "JS-CONS-040", errors.CONSUMER_DESCRIPTION_TOO_LONG, ""),
    ("more-replicas", "JS-CONS-045", errors.STREAM_REPLICAS_NOT_SUPPORTED, ""),
    ("priority-groups-alone", "JS-CONS-047", errors.CONSUMER_PRIORITY_GROUPS_WITHOUT_POLICY, ""),
)


def _error(name: str, requirement: str, kind: Kind, saying: str) -> None:
    @jetstream_defect(
        f"cons-{name}-is-told-otherwise",
        breaks=(requirement,),
        summary=f"A consumer that is to be refused with {kind.err_code} is refused with 10012 ({name}).",
    )
    def _(broker: Broker) -> None:
        instead = errors.CONSUMER_CREATE_FAILED.err_code
        alter_error(broker, "consumer_create", kind.err_code, instead, saying=saying)


for _refusal in _ERRORS:
    _error(*_refusal)


# What is accepted because an option is passed over: the name, the requirement, the option, and when.
_PASSED_OVER: tuple[tuple[str, str, str, Callable[[Config], bool]], ...] = (
    ("all-with-a-start-sequence", "JS-CONS-015", "opt_start_seq", lambda config: _starts(config, "all")),
    ("last-with-a-start-sequence", "JS-CONS-016", "opt_start_seq", lambda config: _starts(config, "last")),
    ("new-with-a-start-time", "JS-CONS-017", "opt_start_time", lambda config: _starts(config, "new")),
    ("pull-with-a-rate-limit", "JS-CONS-019", "rate_limit_bps", is_pull),
    ("pull-with-a-heartbeat", "JS-CONS-020", "idle_heartbeat", is_pull),
    ("pull-with-flow-control", "JS-CONS-021", "flow_control", is_pull),
    ("push-with-max-waiting", "JS-CONS-022", "max_waiting", lambda config: not is_pull(config)),
    ("flow-control-alone", "JS-CONS-026", "flow_control", lambda config: "idle_heartbeat" not in config),
    ("sampling", "JS-CONS-031", "sample_freq", lambda config: not config["sample_freq"].isdigit()),
    ("negative-ack-wait", "JS-CONS-035", "ack_wait", lambda config: config["ack_wait"] < 0),
    ("unknown-ack-policy", "JS-CONS-036", "ack_policy",
     lambda config: config["ack_policy"] not in get_args(AckPolicy)),
    ("unknown-deliver-policy", "JS-CONS-037", "deliver_policy",
     lambda config: config["deliver_policy"] not in get_args(DeliverPolicy)),
    ("short-max-expires", "JS-CONS-039", "max_expires", lambda config: config["max_expires"] < MILLISECOND),
    ("more-replicas", "JS-CONS-045", "num_replicas", lambda config: config["num_replicas"] > 1),
    ("priority-groups-alone", "JS-CONS-047", "priority_groups",
     lambda config: "priority_policy" not in config),
)  # fmt: skip


def _starts(config: Config, policy: str) -> bool:
    return config.get("deliver_policy") == policy


def _accepted(name: str, requirement: str, change: Callable[[Config], object]) -> None:
    @jetstream_defect(
        f"cons-{name}-is-accepted",
        breaks=(requirement,),
        summary=f"A consumer that is to be refused is created ({name}).",
    )
    def _(broker: Broker) -> None:
        alter_config(broker, change)


def _passed_over(name: str, requirement: str, option: str, when: Callable[[Config], bool]) -> None:
    def change(config: Config) -> None:
        if option in config and when(config):
            del config[option]

    _accepted(name, requirement, change)


for _option in _PASSED_OVER:
    _passed_over(*_option)


# What is accepted as if the request had said something else.


def _from_the_first(config: Config) -> None:
    if _starts(config, "by_start_sequence"):
        config.setdefault("opt_start_seq", 1)


def _from_the_beginning(config: Config) -> None:
    if _starts(config, "by_start_time"):
        config.setdefault("opt_start_time", "1970-01-01T00:00:00Z")


def _every_subject(config: Config) -> None:
    if _starts(config, "last_per_subject"):
        config.setdefault("filter_subject", ">")


def _to_a_literal(config: Config) -> None:
    if not is_pull(config):
        config["deliver_subject"] = config["deliver_subject"].replace("*", "any")


def _to_nobody(config: Config) -> None:
    if not is_pull(config) and not config["deliver_subject"].startswith("_INBOX."):
        config["deliver_subject"] = "_INBOX.cycle"


def _slower_heartbeat(config: Config) -> None:
    if "idle_heartbeat" in config:
        config["idle_heartbeat"] = max(config["idle_heartbeat"], 100 * MILLISECOND)


def _enough_deliveries(config: Config) -> None:
    if config.get("max_deliver", 0) > 0:
        config["max_deliver"] = max(config["max_deliver"], len(config.get("backoff", ())) + 1)


def _shorter_description(config: Config) -> None:
    config["description"] = config.get("description", "")[:MAX_DESCRIPTION]


for _acceptance in (
    ("start-sequence-not-set", "JS-CONS-013", _from_the_first),
    ("start-time-not-set", "JS-CONS-014", _from_the_beginning),
    ("last-per-subject-alone", "JS-CONS-018", _every_subject),
    ("push-to-wildcards", "JS-CONS-023", _to_a_literal),
    ("push-cycle", "JS-CONS-024", _to_nobody),
    ("short-heartbeat", "JS-CONS-025", _slower_heartbeat),
    ("backoff-over-max-deliver", "JS-CONS-027", _enough_deliveries),
    ("long-description", "JS-CONS-040", _shorter_description),
):
    _accepted(*_acceptance)


@jetstream_defect(
    "cons-refused-consumer-is-there",
    breaks=("JS-CONS-019",),
    summary="A pull consumer with rate_limit_bps is created, though its creation is answered with an error.",
)
def _(broker: Broker) -> None:
    api = jetstream_of(broker).api
    answer = api.answer

    def altered(route: Route, request: Request, header_block: bytes) -> Fields:
        body = body_of(request) if route.kind == CREATE else None
        if body is not None and body.get("config", {}).get("rate_limit_bps"):
            config = {key: value for key, value in body["config"].items() if key != "rate_limit_bps"}
            without = msgspec.json.encode({**body, "config": config})
            answer(route, msgspec.structs.replace(request, body=without), header_block)
        return answer(route, request, header_block)

    replace(api, "answer", altered)
