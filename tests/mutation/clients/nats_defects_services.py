"""Faults of services: CLIENT-SERVICE."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.mutation.clients.defect import defect, replace
from tests.mutation.clients.nats_adapter import Adapter
from tests.mutation.clients.nats_services import Endpoint, Service


def _of(part: type, name: str, value: Callable[..., Any]) -> Callable[[Adapter], None]:
    """A method of every service or endpoint is another one."""
    return lambda adapter: replace(part, name, value)


def _nothing(*_: object) -> None:
    pass


_subjects, _described, _stop, _queue = (
    Service.subjects,
    Service.described,
    Service.stop,
    Endpoint.queue_group,
)


def _described_as(verb: str, **other: object) -> Callable[[Adapter], None]:
    def described(part: Service, asked: str) -> dict[str, Any]:
        return {**_described(part, asked), **(other if asked == verb else {})}

    return _of(Service, "described", described)


def _group_last(part: Endpoint) -> str:
    service = part.service.queue
    return service if service and "queue" not in part.command else _queue(part)


def _stop_leaves_discovery(part: Service) -> None:
    part.sids.clear()
    _stop(part)


def _others_ask(part: Endpoint) -> bool:
    """Whether its group, or its user for no queue group, has a say."""
    return "group" in part.command or bool(part.service.queue) or "no_queue" in part.command


def _by_name(part: Endpoint) -> str:
    command = part.command
    return f"{command['group']}.{part.name}" if "group" in command else command.get("subject") or part.name


def _remember_info() -> None:
    first: dict[str, Any] = {}

    def described(part: Service, verb: str) -> dict[str, Any]:
        found = _described(part, verb)
        return first.setdefault(part.id, found) if verb == "INFO" else found

    replace(Service, "described", described)


_FAULTS: tuple[tuple[str, str, str, Callable[[Adapter], None]], ...] = (
    (
        "answers-no-instance",
        "CLIENT-SERVICE-001",
        "the subjects of the instance are not subscribed",
        _of(Service, "subjects", lambda part, verb: _subjects(part, verb)[:2]),
    ),
    (
        "pings-with-another-type",
        "CLIENT-SERVICE-002",
        "the type of a PING is another one",
        _described_as("PING", type="ping_response"),
    ),
    (
        "describes-nothing",
        "CLIENT-SERVICE-003",
        "INFO has no description",
        _described_as("INFO", description=""),
    ),
    (
        "forgets-when-it-started",
        "CLIENT-SERVICE-004",
        "STATS has no time of the start",
        _described_as("STATS", started=""),
    ),
    (
        "instances-look-the-same",
        "CLIENT-SERVICE-005",
        "all instances have one id",
        _of(Service, "own_id", lambda part: "1"),
    ),
    (
        "ignores-the-queue-of-an-endpoint",
        "CLIENT-SERVICE-006",
        "an endpoint alone is in queue group q",
        _of(Endpoint, "queue_group", lambda part: _queue(part) if _others_ask(part) else "q"),
    ),
    (
        "the-queue-of-the-service-wins",
        "CLIENT-SERVICE-007",
        "the queue group of a group is not used",
        _of(Endpoint, "queue_group", _group_last),
    ),
    (
        "groups-take-names-only",
        "CLIENT-SERVICE-008",
        "in a group the subject of an endpoint is not used",
        _of(Endpoint, "full_subject", _by_name),
    ),
    (
        "errors-have-no-code",
        "CLIENT-SERVICE-009",
        "an error is answered without its code",
        _of(Endpoint, "error_headers", lambda part: {"Nats-Service-Error": part.command["error_text"]}),
    ),
    ("counts-no-errors", "CLIENT-SERVICE-010", "errors are not counted", _of(Endpoint, "failed", _nothing)),
    (
        "averages-nothing",
        "CLIENT-SERVICE-011",
        "the average is the sum",
        _of(Endpoint, "average", lambda part: part.time_ns),
    ),
    (
        "stop-leaves-discovery",
        "CLIENT-SERVICE-012",
        "a stopped service is found",
        _of(Service, "stop", _stop_leaves_discovery),
    ),
    (
        "stop-drops-requests",
        "CLIENT-SERVICE-013",
        "requests that wait at stop are dropped",
        _of(Endpoint, "is_answered_after_stop", lambda part: False),
    ),
    (
        "takes-any-name",
        "CLIENT-SERVICE-014",
        "the name of a service may have any characters",
        _of(Service, "refuse_name", _nothing),
    ),
    (
        "takes-any-version",
        "CLIENT-SERVICE-015",
        "the version of a service may be anything",
        _of(Service, "refuse_version", _nothing),
    ),
    ("resets-nothing", "CLIENT-SERVICE-016", "reset does nothing", _of(Endpoint, "reset", _nothing)),
    (
        "always-shares",
        "CLIENT-SERVICE-017",
        "an endpoint is always in a queue group",
        _of(Endpoint, "queue_group", lambda part: _queue(part) or "q"),
    ),
    (
        "describes-what-was-there-first",
        "CLIENT-SERVICE-018",
        "INFO leaves out an endpoint that came after it was asked for",
        lambda adapter: _remember_info(),
    ),
)


for _name, _requirement, _summary, _alter in _FAULTS:
    defect(_name, breaks=_requirement, summary=_summary)(_alter)
