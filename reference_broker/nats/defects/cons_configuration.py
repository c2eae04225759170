"""Defects of what a consumer's configuration is taken for. What is right: ``consumer_config.check``.

Those of what is to be refused are in ``cons_refusals``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import replace
from plumbline.reference_broker.nats.defects.api_alterations import Fields, alter_body, alter_success, body_of
from plumbline.reference_broker.nats.defects.jetstream_parts import jetstream_defect, jetstream_of
from plumbline.reference_broker.nats.jetstream import errors
from plumbline.reference_broker.nats.jetstream.api.requests import Request
from plumbline.reference_broker.nats.jetstream.api.routing import Route
from plumbline.reference_broker.nats.jetstream.errors import JetStreamError
from plumbline.wire.durations import SECOND

CREATE = "consumer_create"
Config = dict[str, Any]

# -- defaults --------------------------------------------------------------------------------------

# The requirement, the option, and what it is if a request does not say.
_DEFAULTS = (
    ("JS-CONS-001", "deliver_policy", "new"),
    ("JS-CONS-003", "ack_wait", 60 * SECOND),
    ("JS-CONS-004", "max_deliver", 20),
    ("JS-CONS-005", "replay_policy", "original"),
    ("JS-CONS-006", "max_waiting", 1024),
    ("JS-CONS-007", "max_ack_pending", 20_000),
    ("JS-CONS-008", "num_replicas", 1),
    ("JS-CONS-011", "inactive_threshold", 5 * SECOND),
    ("JS-CONS-048", "ack_policy", "explicit"),
)


def _default(requirement: str, option: str, value: object) -> None:
    @jetstream_defect(
        f"cons-default-of-{option.replace('_', '-')}",
        breaks=(requirement,),
        summary=f"A consumer that is created without {option} has {option} {value}.",
    )
    def _(broker: Broker) -> None:
        alter_config(broker, lambda config: config.setdefault(option, value))


def alter_config(broker: Broker, change: Callable[[Config], object]) -> None:
    """``change`` alters the configuration in each request to create a consumer."""

    def alter(fields: Fields, request: Request) -> None:
        config = fields.get("config")
        if isinstance(config, dict):
            change(config)

    alter_body(broker, CREATE, alter)


for _row in _DEFAULTS:
    _default(*_row)


# -- what is shown ---------------------------------------------------------------------------------

# The requirement, the name, what is wrong, and the change of the answer.
_SHOWN: tuple[tuple[str, str, str, Callable[[Fields], object]], ...] = (
    ("JS-CONS-002", "ack-policy-is-abbreviated", "ack_policy explicit is shown as exp.",
     lambda shown: shown["config"]["ack_policy"] == "explicit" and shown["config"].update(ack_policy="exp")),
    ("JS-CONS-009", "durable-name-is-hidden", "A durable consumer does not show its durable_name.",
     lambda shown: shown["config"].pop("durable_name", None)),
    ("JS-CONS-010", "name-is-hidden", "The configuration of a consumer does not show its name.",
     lambda shown: shown["config"].pop("name", None)),
    ("JS-CONS-011", "num-replicas-is-hidden", "num_replicas is shown only if it is not 0.",
     lambda shown: shown["config"]["num_replicas"] or shown["config"].pop("num_replicas")),
    ("JS-CONS-012", "new-consumer-begins-at-one", "A new consumer shows delivered 1/1.",
     lambda shown: shown["delivered"].update(consumer_seq=1, stream_seq=1)),
)  # fmt: skip


def _shown(requirement: str, name: str, summary: str, change: Callable[[Fields], object]) -> None:
    @jetstream_defect(f"cons-{name}", breaks=(requirement,), summary=summary)
    def _(broker: Broker) -> None:
        alter_success(broker, CREATE, lambda shown, request: change(shown))


for _what in _SHOWN:
    _shown(*_what)


def _as_given(requirement: str, option: str, least: int) -> None:
    """What is below ``least`` stays as it was given."""

    @jetstream_defect(
        f"cons-{option.replace('_', '-')}-below-{least}-stays".replace("--", "-minus-"),
        breaks=(requirement,),
        summary=f"{option} below {least} is shown as it was given.",
    )
    def _(broker: Broker) -> None:
        def change(shown: Fields, request: Request) -> None:
            given = (body_of(request) or {}).get("config", {}).get(option, least)
            if given < least:
                shown["config"][option] = given

        alter_success(broker, CREATE, change)


for _option in (
    ("JS-CONS-030", "max_waiting", 0),
    ("JS-CONS-033", "max_deliver", 1),
    ("JS-CONS-034", "max_deliver", -1),
    ("JS-CONS-038", "max_batch", 0),
):
    _as_given(*_option)


# -- what is refused, and should not be ------------------------------------------------------------


def is_pull(config: Config) -> bool:
    """Whether a request is for a pull consumer."""
    return not config.get("deliver_subject")


def _percent(config: Config) -> int:
    digits = config.get("sample_freq", "").removesuffix("%")
    return int(digits) if digits.isdigit() else 0


_REFUSED: tuple[tuple[str, str, JetStreamError, Callable[[Config], object]], ...] = (
    ("JS-CONS-028", "backoff without max_deliver", errors.CONSUMER_MAX_DELIVER_BACKOFF(),
     lambda config: config.get("backoff") and not config.get("max_deliver")),
    ("JS-CONS-029", "max_ack_pending without acknowledgements", errors.PUSH_MAX_ACK_PENDING_NEEDS_ACKS(),
     lambda config: config.get("max_ack_pending") and config.get("ack_policy") == "none"),
    ("JS-CONS-032", "sample_freq over 100", errors.CONSUMER_INVALID_SAMPLING(reason="over 100"),
     lambda config: _percent(config) > 100),
    ("JS-CONS-033", "max_deliver of zero", errors.CONSUMER_CREATE_FAILED(reason="max deliver can not be 0"),
     lambda config: config.get("max_deliver") == 0),
    ("JS-CONS-041", "pull without acknowledgements", errors.PULL_REQUIRES_ACK(reason="needs ack policy"),
     lambda config: is_pull(config) and config.get("ack_policy") == "none"),
    ("JS-CONS-042", "pull with ack all", errors.PULL_REQUIRES_ACK(reason="needs explicit ack policy"),
     lambda config: is_pull(config) and config.get("ack_policy") == "all"),
    ("JS-CONS-043", "pull with replay original", errors.CONSUMER_CREATE_FAILED(reason="needs push"),
     lambda config: is_pull(config) and config.get("replay_policy") == "original"),
    ("JS-CONS-044", "pull with a deliver_group", errors.CONSUMER_CREATE_FAILED(reason="needs push"),
     lambda config: is_pull(config) and config.get("deliver_group")),
    ("JS-CONS-046", "pull with headers_only", errors.CONSUMER_CREATE_FAILED(reason="needs push"),
     lambda config: is_pull(config) and config.get("headers_only")),
    ("JS-CONS-048", "no ack_policy", errors.CONSUMER_CREATE_FAILED(reason="ack policy is required"),
     lambda config: "ack_policy" not in config),
)  # fmt: skip


def _refused(requirement: str, what: str, error: JetStreamError, when: Callable[[Config], object]) -> None:
    @jetstream_defect(
        f"cons-{what.replace(' ', '-').replace('_', '-')}-is-refused",
        breaks=(requirement,),
        summary=f"A consumer is refused for {what}.",
    )
    def _(broker: Broker) -> None:
        api = jetstream_of(broker).api
        answer = api.answer

        def altered(route: Route, request: Request, header_block: bytes) -> Fields:
            config = (body_of(request) or {}).get("config") if route.kind == CREATE else None
            if isinstance(config, dict) and when(config):
                return {"type": f"io.nats.jetstream.api.v1.{CREATE}_response", "error": error.reply()}
            return answer(route, request, header_block)

        replace(api, "answer", altered)


for _refusal in _REFUSED:
    _refused(*_refusal)


# -- what is taken for something else --------------------------------------------------------------


def _instead(option: str, wrong: object, right: object) -> Callable[[Config], object]:
    """A pull consumer whose option is ``wrong`` is created with ``right``."""

    def change(config: Config) -> None:
        if is_pull(config) and config.get(option) == wrong:
            config[option] = right

    return change


def _needs_acks(config: Config) -> None:
    if config.get("ack_policy") == "none":
        config.pop("max_ack_pending", None)


def _capped(config: Config) -> None:
    if _percent(config) > 100:
        config["sample_freq"] = "100"


_MISTAKEN: tuple[tuple[str, str, str, Callable[[Config], object]], ...] = (
    ("JS-CONS-029", "max-ack-pending-needs-acks", "max_ack_pending is dropped without acknowledgements.",
     _needs_acks),
    ("JS-CONS-032", "sampling-is-capped", "A sample_freq over 100 is taken for 100.", _capped),
    ("JS-CONS-041", "pull-acknowledges-anyway", "A pull consumer with ack_policy none gets explicit.",
     _instead("ack_policy", "none", "explicit")),
    ("JS-CONS-042", "pull-knows-no-ack-all", "A pull consumer with ack_policy all gets explicit.",
     _instead("ack_policy", "all", "explicit")),
    ("JS-CONS-043", "pull-replays-at-once", "A pull consumer with replay_policy original gets instant.",
     _instead("replay_policy", "original", "instant")),
    ("JS-CONS-046", "pull-has-bodies", "headers_only of a pull consumer is dropped.",
     _instead("headers_only", True, False)),
)  # fmt: skip


def _mistaken(requirement: str, name: str, summary: str, change: Callable[[Config], object]) -> None:
    @jetstream_defect(f"cons-{name}", breaks=(requirement,), summary=summary)
    def _(broker: Broker) -> None:
        alter_config(broker, change)


for _mistake in _MISTAKEN:
    _mistaken(*_mistake)
