"""A consumer's configuration: fields, defaults, what is refused at creation, what an update may not change.

Source: docs.nats.io, "JetStream wire API Reference"; texts and order of the checks as servers answer.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec
from msgspec import Struct

from plumbline.reference_broker.nats.jetstream import errors, subjects
from plumbline.reference_broker.nats.jetstream.rules import Rules
from plumbline.reference_broker.nats.jetstream.streams.config import (
    MAX_DESCRIPTION,
    StreamConfig,
    version_metadata,
)
from plumbline.wire.nats.jetstream.times import NEVER, parse_time
from plumbline.wire.units import MILLISECOND, MINUTE, SECOND, read_number

DEFAULT_ACK_WAIT = 30 * SECOND
DEFAULT_MAX_WAITING = 512
DEFAULT_MAX_ACK_PENDING = 1000
DEFAULT_INACTIVE_THRESHOLD = 5 * SECOND  # of an ephemeral consumer

FLOW_ACKS_HEARTBEAT = SECOND  # of a consumer that is acknowledged by answers to flow control

DEFAULT_PRIORITY_TIMEOUT = 2 * MINUTE  # how long a pinned client may be silent

AckPolicy = Literal["none", "all", "explicit", "flow_control"]
DeliverPolicy = Literal["all", "last", "new", "by_start_sequence", "by_start_time", "last_per_subject"]


class ConsumerConfig(Struct, kw_only=True):
    """As in the API; durations in nanoseconds."""

    durable_name: str = ""
    name: str = ""
    description: str = ""
    deliver_policy: DeliverPolicy = "all"
    opt_start_seq: int = 0
    opt_start_time: str | None = None
    ack_policy: AckPolicy = "none"
    ack_wait: int = 0
    max_deliver: int = 0
    backoff: list[int] = []
    filter_subject: str = ""
    filter_subjects: list[str] = []
    replay_policy: Literal["instant", "original"] = "instant"
    rate_limit_bps: int = 0
    sample_freq: str = ""
    max_waiting: int = 0
    max_ack_pending: int = 0
    flow_control: bool = False
    headers_only: bool = False
    max_batch: int = 0
    max_expires: int = 0
    max_bytes: int = 0
    deliver_subject: str = ""
    deliver_group: str = ""
    idle_heartbeat: int = 0
    inactive_threshold: int = 0
    num_replicas: int = 0
    mem_storage: bool = False
    direct: bool = False
    metadata: dict[str, str] = {}
    pause_until: str | None = None
    priority_groups: list[str] = []
    priority_policy: Literal["", "none", "overflow", "pinned_client", "prioritized"] = ""
    priority_timeout: int = 0

    @property
    def is_pull(self) -> bool:
        return not self.deliver_subject

    @property
    def filters(self) -> list[bytes]:
        if self.filter_subject:
            return [self.filter_subject.encode()]
        return [subject.encode() for subject in self.filter_subjects]

    def required_levels(self) -> list[int]:
        """The API levels that its features need (ADR-44, "API Level")."""
        has_priorities = self.priority_policy not in ("", "none") or self.priority_timeout > 0
        levels = {
            1: self.pause_until not in (None, NEVER) or bool(self.priority_groups) or has_priorities,
            4: self.ack_policy == "flow_control",
        }
        return [level for level, used in levels.items() if used]

    def echo(self, rules: Rules) -> dict[str, Any]:
        """As a reply shows it: some fields always, the others when set."""
        fields = msgspec.structs.asdict(self)
        shown_fields = {
            name: value
            for name, value in fields.items()
            if (value or name in _ALWAYS) and (name != "metadata" or rules.metadata)
        }
        if rules.assets_have_version_metadata:
            shown_fields["metadata"] = {**self.metadata, **version_metadata(rules, self.required_levels())}
        return shown_fields


_ALWAYS = ("deliver_policy", "ack_policy", "replay_policy", "num_replicas")


def with_defaults(config: ConsumerConfig, rules: Rules) -> ConsumerConfig:
    """Fill in what a request left out, and leave out what the level does not know."""
    changes: dict[str, Any] = {}
    if config.max_deliver == 0 or (config.max_deliver < -1 and rules.negative_means_default):
        changes["max_deliver"] = -1
    if rules.negative_means_default:
        changes |= {name: 0 for name in _LIMITS if getattr(config, name) < 0}
    if not rules.multiple_filters:
        changes["filter_subjects"] = []
    if not rules.consumer_pause:
        changes["pause_until"] = None
    if not rules.priority_groups:
        changes |= {"priority_groups": [], "priority_policy": "", "priority_timeout": 0}
    config = msgspec.structs.replace(config, **changes)
    return msgspec.structs.replace(config, **_derived_defaults(config))


_LIMITS = ("max_waiting", "max_batch", "max_expires", "max_bytes", "idle_heartbeat", "inactive_threshold")


def _derived_defaults(config: ConsumerConfig) -> dict[str, Any]:
    defaults: dict[str, Any] = {}
    acknowledged = config.ack_policy != "none"
    by_flow = config.ack_policy == "flow_control"
    if config.is_pull and config.max_waiting == 0:
        defaults["max_waiting"] = DEFAULT_MAX_WAITING
    if by_flow:
        defaults |= {"flow_control": True, "idle_heartbeat": FLOW_ACKS_HEARTBEAT}
    elif acknowledged and config.ack_wait == 0:
        defaults["ack_wait"] = DEFAULT_ACK_WAIT
    if config.backoff:  # "backoff overrides ack_wait"
        defaults["ack_wait"] = config.backoff[0]
    if acknowledged and config.max_ack_pending == 0:
        defaults["max_ack_pending"] = DEFAULT_MAX_ACK_PENDING
    if config.priority_policy == "pinned_client" and config.priority_timeout == 0:
        defaults["priority_timeout"] = DEFAULT_PRIORITY_TIMEOUT
    if not config.durable_name and config.inactive_threshold == 0:
        defaults["inactive_threshold"] = DEFAULT_INACTIVE_THRESHOLD
    return defaults


def check(config: ConsumerConfig, stream: StreamConfig, rules: Rules) -> ConsumerConfig:
    """The configuration with its defaults. Raises ``JetStreamError`` for one that servers refuse."""
    if config.ack_policy == "flow_control" and not rules.flow_control_acks:
        detail = ': can not unmarshal "\\"flow_control\\""' if rules.json_errors_have_detail else ""
        raise errors.INVALID_JSON(detail=detail)
    config = with_defaults(config, rules)
    _check_names(config, rules)
    if config.ack_policy == "flow_control":
        _check_flow_acks(config)
    _check_redelivery(config, rules)
    if len(config.description) > MAX_DESCRIPTION:
        raise errors.CONSUMER_DESCRIPTION_TOO_LONG()
    if config.is_pull:
        _check_pull(config, stream, rules)
    else:
        _check_push(config, stream)
    _check_filters(config, stream, rules)
    _check_start(config)
    _check_sampling(config.sample_freq)
    if config.flow_control and config.idle_heartbeat == 0:
        raise errors.PUSH_FLOW_CONTROL_NEEDS_HEARTBEAT()
    if config.durable_name and config.name and config.name != config.durable_name:
        raise errors.CONSUMER_DURABLE_AND_NAME_DIFFER()
    _check_priority(config, rules)
    return config


def check_update(old: ConsumerConfig, new: ConsumerConfig, *, bound: bool, rules: Rules) -> None:
    """Raises ``JetStreamError`` for a change that servers refuse; ``bound``: a push consumer has its
    subscriber."""
    for name, text in _FIXED:
        if getattr(old, name) != getattr(new, name):
            raise errors.CONSUMER_CREATE_FAILED(reason=f"{text} can not be updated")
    waiting_changed = old.max_waiting != new.max_waiting
    if waiting_changed and not rules.pull_to_push_has_own_error:  # the older servers look here first
        raise errors.CONSUMER_CREATE_FAILED(reason="max waiting can not be updated")
    if old.deliver_subject != new.deliver_subject:
        if old.is_pull:
            raise errors.CONSUMER_CREATE_FAILED(reason="can not update pull consumer to push based")
        if new.is_pull:
            raise errors.CONSUMER_CREATE_FAILED(reason="can not update push consumer to pull based")
        if bound:
            raise errors.CONSUMER_NAME_IN_USE()
    if waiting_changed:
        raise errors.CONSUMER_CREATE_FAILED(reason="max waiting can not be updated")


_FIXED = (
    ("deliver_policy", "deliver policy"),
    ("opt_start_seq", "start sequence"),
    ("opt_start_time", "start time"),
    ("ack_policy", "ack policy"),
    ("replay_policy", "replay policy"),
    ("idle_heartbeat", "heart beats"),
    ("flow_control", "flow control"),
)


def check_workqueue(config: ConsumerConfig, other_consumers: list[ConsumerConfig], rules: Rules) -> None:
    """A work queue gives each message to one consumer (deep dive, "WorkQueuePolicy")."""
    if config.ack_policy not in ("explicit", "flow_control"):
        raise errors.WORKQUEUE_NEEDS_EXPLICIT_ACK()
    if config.deliver_policy != "all" and rules.workqueue_checks_start_first:
        raise errors.WORKQUEUE_NEEDS_DELIVER_ALL()
    if other_consumers and not config.filters:
        raise errors.WORKQUEUE_MULTIPLE_UNFILTERED()
    for other in other_consumers:
        taken = other.filters or [subjects.ANY_TAIL]
        if any(
            subjects.collide(filter_, other_filter) for filter_ in config.filters for other_filter in taken
        ):
            raise errors.WORKQUEUE_FILTER_NOT_UNIQUE()
    if config.deliver_policy != "all":
        raise errors.WORKQUEUE_NEEDS_DELIVER_ALL()


def _check_names(config: ConsumerConfig, rules: Rules) -> None:
    for name in (config.name, config.durable_name):
        if name and not subjects.is_asset_name(name):
            if rules.bad_name_is_config_error:
                reason = r"consumer name can not contain '.', '*', '>', '\', '/'"
                raise errors.STREAM_INVALID_CONFIG(reason=reason)
            raise errors.CONSUMER_BAD_DURABLE_NAME()


def _check_flow_acks(config: ConsumerConfig) -> None:
    """What is acknowledged by answers to flow control is delivered once, by push."""
    if config.is_pull:
        raise errors.FLOW_ACKS_NEED_PUSH()
    if config.ack_wait or config.backoff:
        raise errors.FLOW_ACKS_WITH_ACK_WAIT()
    if config.max_deliver > 0:
        raise errors.FLOW_ACKS_WITH_MAX_DELIVER()


def _check_redelivery(config: ConsumerConfig, rules: Rules) -> None:
    if config.num_replicas < 0:
        raise errors.REPLICAS_NEGATIVE()
    if rules.refuses_negative_ack_wait:
        if any(wait < 0 for wait in config.backoff):
            raise errors.CONSUMER_BACKOFF_NEGATIVE()
        if config.ack_wait < 0:
            raise errors.CONSUMER_ACK_WAIT_NEGATIVE()
    steps = len(config.backoff)
    if rules.backoff_with_unlimited_deliver:
        too_long = config.max_deliver != -1 and steps > config.max_deliver
    else:
        too_long = config.max_deliver <= steps
    if steps and too_long:
        raise errors.CONSUMER_MAX_DELIVER_BACKOFF()


def _check_push(config: ConsumerConfig, stream: StreamConfig) -> None:
    target = config.deliver_subject.encode()
    if not subjects.is_literal(target):
        raise errors.PUSH_TO_WILDCARDS()
    if not subjects.is_valid(target):
        raise errors.PUSH_INVALID_DELIVER_SUBJECT()
    if any(subjects.covers(pattern, target) for pattern in stream.patterns):
        raise errors.PUSH_CYCLE()
    if config.max_waiting != 0:
        raise errors.PUSH_WITH_MAX_WAITING()
    if config.max_ack_pending > 0 and config.ack_policy == "none":
        raise errors.PUSH_MAX_ACK_PENDING_NEEDS_ACKS()
    if 0 < config.idle_heartbeat < 100 * MILLISECOND:
        raise errors.PUSH_HEARTBEAT_TOO_SMALL()


def _check_pull(config: ConsumerConfig, stream: StreamConfig, rules: Rules) -> None:
    if config.ack_policy == "none" and stream.retention == "workqueue":
        kind = "explicit ack policy on workqueue stream" if rules.workqueue_ack_text else "ack policy"
        raise errors.PULL_REQUIRES_ACK(reason=f"consumer in pull mode requires {kind}")
    if config.rate_limit_bps > 0:
        raise errors.PULL_WITH_RATE_LIMIT()
    if config.max_waiting < 0:
        raise errors.PULL_MAX_WAITING_NEGATIVE()
    if config.idle_heartbeat > 0:
        raise errors.PULL_WITH_HEARTBEAT()
    if config.flow_control:
        raise errors.PULL_WITH_FLOW_CONTROL()
    if config.max_batch < 0:
        raise errors.PULL_MAX_BATCH_NEGATIVE()
    if config.max_expires != 0 and config.max_expires < MILLISECOND:
        raise errors.PULL_MAX_EXPIRES_TOO_SMALL()


def _check_filters(config: ConsumerConfig, stream: StreamConfig, rules: Rules) -> None:
    if config.filter_subject and config.filter_subjects:
        raise errors.CONSUMER_DUPLICATE_FILTERS()
    if any(not subject for subject in config.filter_subjects):
        raise errors.CONSUMER_EMPTY_FILTER()
    filters = config.filters
    for index, pattern in enumerate(filters):
        if not subjects.is_valid(pattern):
            raise errors.STREAM_INVALID_CONFIG(reason="invalid subject")
        if any(subjects.covers(other, pattern) for other in filters[:index] + filters[index + 1 :]):
            raise errors.CONSUMER_OVERLAPPING_FILTERS()
        if rules.filter_must_be_subset and not any(subjects.collide(pattern, own) for own in stream.patterns):
            raise errors.CONSUMER_FILTER_NOT_SUBSET()


_GROUP_NAME = re.compile(r"[a-zA-Z0-9/_=-]{1,16}")


def _check_priority(config: ConsumerConfig, rules: Rules) -> None:
    """ADR-42."""
    if config.priority_policy == "prioritized" and rules.priority_groups and not rules.prioritized_clients:
        raise errors.INVALID_JSON(detail=f": unknown priority policy: {config.priority_policy!r}")
    if config.priority_policy in ("", "none"):
        if config.priority_groups and rules.priority_groups_need_policy:
            raise errors.CONSUMER_PRIORITY_GROUPS_WITHOUT_POLICY()
        if config.priority_timeout > 0 and rules.priority_groups_need_policy:
            raise errors.PRIORITY_TIMEOUT_WITHOUT_POLICY()
        return
    if not config.is_pull:
        raise errors.PRIORITY_WITH_PUSH()
    if not config.priority_groups:
        raise errors.PRIORITY_POLICY_WITHOUT_GROUP()
    for group in config.priority_groups:
        if not group:
            raise errors.PRIORITY_GROUP_EMPTY()
        if not _GROUP_NAME.fullmatch(group):
            raise errors.PRIORITY_GROUP_INVALID()


def _check_sampling(frequency: str) -> None:
    digits = frequency.removesuffix("%")
    if digits and read_number(digits) is None:
        reason = f'strconv.Atoi: parsing "{digits}": invalid syntax'
        raise errors.CONSUMER_INVALID_SAMPLING(reason=reason)


# Which start options a deliver policy asks for, and how its name is spelled in errors.
_STARTS = {
    "all": ("all", None),
    "last": ("last", None),
    "new": ("new", None),
    "last_per_subject": ("last per subject", None),
    "by_start_sequence": ("by start sequence", "sequence"),
    "by_start_time": ("by start time", "time"),
}


def _check_start(config: ConsumerConfig) -> None:
    policy, required_option = _STARTS[config.deliver_policy]
    set_options = {"sequence": config.opt_start_seq > 0, "time": config.opt_start_time is not None}
    prefix = f"consumer delivery policy is deliver {policy}, but optional"
    if required_option is not None and not set_options[required_option]:
        raise errors.CONSUMER_INVALID_POLICY(reason=f"{prefix} start {required_option} is not set")
    for option, present in set_options.items():
        if present and option != required_option:
            raise errors.CONSUMER_INVALID_POLICY(reason=f"{prefix} start {option} is also set")
    if config.deliver_policy == "last_per_subject" and not config.filters:
        raise errors.CONSUMER_INVALID_POLICY(reason=f"{prefix} filter subject is not set")
    if config.opt_start_time is not None and parse_time(config.opt_start_time) is None:
        raise errors.INVALID_JSON(detail=f': parsing time "{config.opt_start_time}"')
