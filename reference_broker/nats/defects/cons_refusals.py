"""Defects of what a consumer's configuration may say. What is right: ``consumer_config.check``."""

from __future__ import annotations

from reference_broker.nats.core import Broker
from reference_broker.nats.defects.api_alterations import alter_error
from reference_broker.nats.defects.jetstream_parts import jetstream_defect
from reference_broker.nats.jetstream import errors
from reference_broker.nats.jetstream.errors import Kind

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
    ("short-max-expires", "JS-CONS-039", errors.PULL_MAX_EXPIRES_TOO_SMALL, ""),
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
