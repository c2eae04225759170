"""Services: ADR-32, "Service API"."""

from __future__ import annotations

import itertools
import json
import re
import time
from typing import Any

from plumbline.conformance.clients.nats.scene import NatsScene, expect_error, expect_success, payload_of
from plumbline.conformance.clients.protocol import AdapterAnswer
from plumbline.conformance.clients.scenario import scenario
from plumbline.conformance.sessions.polling import POLL_INTERVAL_S
from plumbline.monitors import Observation
from plumbline.wire.nats import HPub, Pub, Sub, Unsub

NAME, VERSION, DESCRIPTION = "Thumbnails", "1.2.3", "Makes small pictures"
METADATA = {"region": "eu"}
ENDPOINT_METADATA = {"format": "jpeg"}
COMMAND_WITHIN_S = 5.0
ANSWERED_WITHIN_S = 5.0  # on a busy machine; an answer that comes ends the wait
COUNTED_WITHIN_S = 2.0
UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|\+00:00)")


def run(scene: NatsScene, command: str, **fields: Any) -> AdapterAnswer:
    """A command for the service; its answer may be an error."""
    return scene.try_command(f"service.{command}", within=COMMAND_WITHIN_S, **{"service": "s", **fields})


def add(scene: NatsScene, service: str = "s", **fields: Any) -> None:
    """Add a service with one endpoint, ``resize``."""
    described = {"name": NAME, "version": VERSION, "description": DESCRIPTION, "metadata": METADATA, **fields}
    expect_success(scene, "adding a service", run(scene, "add", service=service, **described))
    endpoint(scene, "resize", service=service, metadata=ENDPOINT_METADATA)


def endpoint(scene: NatsScene, name: str, **fields: Any) -> None:
    """One more endpoint of the service."""
    expect_success(scene, "adding an endpoint", run(scene, "endpoint", name=name, **fields))
    scene.run_command("flush")


def started(scene: NatsScene, **fields: Any) -> None:
    """Connect, and add the service."""
    scene.connect()
    add(scene, **fields)


_numbers = itertools.count(1)


def send_request(scene: NatsScene, subject: str, *payloads: bytes) -> str:
    """Publish requests behind the back of the client under test; their reply subject."""
    reply = f"answers.{next(_numbers)}"
    client = scene.direct_session.connect("requester")
    client.send(*(Pub.make(subject, payload, reply) for payload in payloads or (b"",)))
    client.flush()
    return reply


def answers(scene: NatsScene, reply: str) -> list[Observation]:
    """What the client under test has answered there so far."""
    return [seen for seen in scene.sent_operations(Pub, HPub) if payload_of(seen).subject == reply]


def ask(scene: NatsScene, subject: str, *payloads: bytes) -> list[Observation]:
    """Requests, and the answers to them: as many, unless some do not come in time."""
    reply = send_request(scene, subject, *payloads)
    scene.await_wire(lambda: len(answers(scene, reply)) >= max(1, len(payloads)))
    return answers(scene, reply)


def verb(scene: NatsScene, name: str) -> dict[str, Any]:
    """The answer to ``$SRV.<verb>.<name of the service>``. Raises ``Failed`` if there is none."""
    found = ask(scene, f"$SRV.{name}.{NAME}")
    if not found:
        scene.fail(f"{name} is not answered", expected=f"an answer to $SRV.{name}.{NAME}", actual="nothing")
    try:
        described: dict[str, Any] = json.loads(payload_of(found[-1]).payload)
    except ValueError as error:
        scene.fail(f"the answer to {name} is no JSON", expected="JSON", actual=error, at=found[-1])
    return described


def of_endpoint(scene: NatsScene, described: dict[str, Any], name: str = "resize") -> dict[str, Any]:
    """What an answer has about one endpoint. Raises ``Failed`` if there is nothing."""
    found = [one for one in described.get("endpoints") or [] if one.get("name") == name]
    if not found:
        scene.fail("an endpoint is missing", expected=f"an endpoint {name}", actual=described)
    endpoint: dict[str, Any] = found[0]
    return endpoint


def stats(scene: NatsScene, name: str, requests: int) -> dict[str, Any]:
    """STATS of one endpoint, once it has counted so many requests: a library counts after the answer."""
    deadline = time.monotonic() + COUNTED_WITHIN_S
    while True:
        found = of_endpoint(scene, verb(scene, "STATS"), name)
        if found.get("num_requests") == requests or time.monotonic() > deadline:
            return found
        scene.direct_session.pause(POLL_INTERVAL_S)


def expect_fields(scene: NatsScene, what: str, described: dict[str, Any], **expected: Any) -> None:
    """Evidence: these fields have these values."""
    actual = {name: described.get(name) for name in expected}
    scene.require(actual == expected, f"{what} is another one", expected=str(expected), actual=actual)


def subscriptions(scene: NatsScene, subject: str) -> list[tuple[str, str]]:
    """The sid and the queue group of each subscription to it."""
    found = [seen.operation for seen in scene.sent_operations(Sub)]
    return [(one.sid, one.queue or "") for one in found if isinstance(one, Sub) and one.subject == subject]


def expect_group(scene: NatsScene, subject: str, group: str) -> None:
    """Evidence: the endpoint is one subscription, in this queue group."""
    found = [queue for _, queue in subscriptions(scene, subject)]
    scene.require(
        found == [group],
        f"the endpoint {subject} is subscribed in another way",
        expected=f"SUB {subject} {group}",
        actual=found,
    )


@scenario("CLIENT-SERVICE-001", needs=["service"])
def all_nine_subjects_are_answered(scene: NatsScene) -> None:
    """Three verbs: of all services, of those of the name, of the instance."""
    started(scene)
    own = str(verb(scene, "PING").get("id"))
    for name in ("PING", "INFO", "STATS"):
        for subject in (f"$SRV.{name}", f"$SRV.{name}.{NAME}", f"$SRV.{name}.{NAME}.{own}"):
            found = ask(scene, subject)
            scene.require(
                len(found) == 1, f"{subject} has another number of answers", expected="1", actual=len(found)
            )


@scenario("CLIENT-SERVICE-002", needs=["service"])
def ping_says_who_answers(scene: NatsScene) -> None:
    """The standard fields."""
    started(scene)
    found = verb(scene, "PING")
    kind = "io.nats.micro.v1.ping_response"
    expect_fields(scene, "a PING", found, type=kind, name=NAME, version=VERSION, metadata=METADATA)
    scene.require(found.get("id"), "a PING has no id", expected="an id", actual=found)


@scenario("CLIENT-SERVICE-003", needs=["service"])
def info_describes_the_endpoints(scene: NatsScene) -> None:
    """The description and each endpoint."""
    started(scene)
    found = verb(scene, "INFO")
    kind = "io.nats.micro.v1.info_response"
    expect_fields(scene, "INFO", found, type=kind, name=NAME, description=DESCRIPTION, metadata=METADATA)
    expect_fields(
        scene,
        "the endpoint of INFO",
        of_endpoint(scene, found),
        subject="resize",
        queue_group="q",
        metadata=ENDPOINT_METADATA,
    )


@scenario("CLIENT-SERVICE-004", needs=["service"])
def stats_has_each_endpoint(scene: NatsScene) -> None:
    """Its type, the time of the start, and an endpoint without requests."""
    started(scene)
    found = verb(scene, "STATS")
    expect_fields(scene, "STATS", found, type="io.nats.micro.v1.stats_response", name=NAME)
    scene.require(
        UTC_TIME.fullmatch(str(found.get("started"))),
        "STATS does not have the time of the start in UTC",
        expected="such as 2026-11-23T10:00:00Z",
        actual=found.get("started"),
    )
    one = of_endpoint(scene, found)
    expect_fields(scene, "the endpoint of STATS", one, subject="resize", queue_group="q", num_requests=0)


@scenario("CLIENT-SERVICE-005", needs=["service"])
def each_instance_answers_for_itself(scene: NatsScene) -> None:
    """Two instances of one service on one connection."""
    started(scene)
    add(scene, service="t")
    reply = send_request(scene, f"$SRV.PING.{NAME}")
    scene.await_wire(lambda: len(answers(scene, reply)) >= 2, ANSWERED_WITHIN_S)
    ids = {json.loads(payload_of(seen).payload).get("id") for seen in answers(scene, reply)}
    scene.require(len(ids) == 2, "two instances do not answer", expected="two ids", actual=ids)


@scenario("CLIENT-SERVICE-006", needs=["service"])
def endpoints_share_their_requests(scene: NatsScene) -> None:
    """Queue group q, or the one of the endpoint."""
    started(scene)
    endpoint(scene, "rotate", queue="own")
    expect_group(scene, "resize", "q")
    expect_group(scene, "rotate", "own")


@scenario("CLIENT-SERVICE-007", needs=["service"])
def the_nearest_queue_group_counts(scene: NatsScene) -> None:
    """Of the endpoint, else of the group, else of the service."""
    started(scene, queue="of-service")
    endpoint(scene, "a", group="g", group_queue="of-group")
    endpoint(scene, "b", group="g", group_queue="of-group", queue="of-endpoint")
    expect_group(scene, "resize", "of-service")
    expect_group(scene, "g.a", "of-group")
    expect_group(scene, "g.b", "of-endpoint")


@scenario("CLIENT-SERVICE-008", needs=["service"])
def a_group_is_a_prefix(scene: NatsScene) -> None:
    """Before the subject of an endpoint, or its name; requests come there."""
    started(scene)
    endpoint(scene, "a", group="pictures")
    endpoint(scene, "b", group="pictures", subject="b.>")
    for subject, sent in (("pictures.a", b"1"), ("pictures.b.c", b"2")):
        found = [payload_of(seen).payload for seen in ask(scene, subject, sent)]
        scene.require(found == [sent], f"{subject} is not answered", expected=sent.decode(), actual=found)


@scenario("CLIENT-SERVICE-009", needs=["service"])
def an_error_is_two_headers(scene: NatsScene) -> None:
    """Its code and its text."""
    started(scene)
    endpoint(scene, "faulty", error_code="417", error_text="too small")
    found = ask(scene, "faulty", b"x")
    headers = found[0].operation.headers if found and isinstance(found[0].operation, HPub) else None
    names = ("Nats-Service-Error-Code", "Nats-Service-Error")
    actual = [headers.get(name) if headers is not None else None for name in names]
    scene.require(
        actual == ["417", "too small"],
        "an error is answered in another way",
        expected="Nats-Service-Error-Code: 417, Nats-Service-Error: too small",
        actual=str(found[0].operation) if found else "no answer",
    )


def used(scene: NatsScene) -> None:
    """A service with two requests to an endpoint, and one to an endpoint whose handler ends in an error."""
    started(scene)
    endpoint(scene, "faulty", error_code="417", error_text="too small")
    ask(scene, "resize", b"1", b"2")
    ask(scene, "faulty", b"3")


@scenario("CLIENT-SERVICE-010", needs=["service"])
def stats_counts(scene: NatsScene) -> None:
    """Two requests, and one that ended in an error."""
    used(scene)
    expect_fields(scene, "an endpoint", stats(scene, "resize", 2), num_requests=2, num_errors=0)
    faulty = stats(scene, "faulty", 1)
    expect_fields(scene, "an endpoint with an error", faulty, num_requests=1, num_errors=1)
    scene.require(
        "too small" in str(faulty.get("last_error")),
        "the last error is another one",
        expected="too small",
        actual=faulty.get("last_error"),
    )


@scenario("CLIENT-SERVICE-011", needs=["service"])
def the_average_is_of_all_requests(scene: NatsScene) -> None:
    """Two requests that take some time."""
    started(scene)
    endpoint(scene, "slow", delay_ms=20)
    ask(scene, "slow", b"1", b"2")
    slow = stats(scene, "slow", 2)
    total, average = (int(slow.get(name) or 0) for name in ("processing_time", "average_processing_time"))
    scene.require(
        total > 0 and abs(total // 2 - average) <= 1,
        "the average is another one",
        expected="half of processing_time after two requests",
        actual=slow,
    )


@scenario("CLIENT-SERVICE-012", needs=["service"])
def stop_ends_the_subscriptions(scene: NatsScene) -> None:
    """Those of the service, and not those of another one on the connection."""
    started(scene)
    own = [seen.operation.sid for seen in scene.sent_operations(Sub) if isinstance(seen.operation, Sub)]
    add(scene, service="t")
    expect_success(scene, "stop", run(scene, "stop"))
    scene.run_command("flush")
    scene.await_wire(lambda: set(own) <= ended(scene), ANSWERED_WITHIN_S)
    scene.require(
        set(own) == ended(scene),
        "other subscriptions were ended",
        expected=f"UNSUB of {sorted(own)}",
        actual=sorted(ended(scene)),
    )


def ended(scene: NatsScene) -> set[str]:
    """The sids of the subscriptions that the client under test has ended."""
    found = [seen.operation for seen in scene.sent_operations(Unsub)]
    return {one.sid for one in found if isinstance(one, Unsub)}


@scenario("CLIENT-SERVICE-013", needs=["service"])
def stop_answers_what_came_before(scene: NatsScene) -> None:
    """Three requests are there, the first one is in its handler: stop."""
    started(scene)
    endpoint(scene, "slow", delay_ms=200)
    reply = send_request(scene, "slow", b"1", b"2", b"3")
    scene.await_wire(lambda: len([seen for seen in scene.wire if f" {reply} " in str(seen.operation)]) >= 3)
    expect_success(scene, "stop", run(scene, "stop"))
    scene.await_wire(lambda: len(answers(scene, reply)) >= 3, ANSWERED_WITHIN_S)
    found = sorted(payload_of(seen).payload.decode() for seen in answers(scene, reply))
    scene.require(
        found == ["1", "2", "3"], "requests were dropped at stop", expected="1, 2, 3", actual=", ".join(found)
    )


@scenario("CLIENT-SERVICE-014", needs=["service"])
def a_name_with_other_characters_is_refused(scene: NatsScene) -> None:
    """A dot and a blank."""
    scene.connect()
    for name in ("pictures.small", "small pictures"):
        answer = run(scene, "add", name=name, version=VERSION)
        expect_error(scene, f"a service with the name {name!r}", answer)


@scenario("CLIENT-SERVICE-015", needs=["service"])
def a_version_that_is_none_is_refused(scene: NatsScene) -> None:
    """Two numbers are no version of SemVer."""
    scene.connect()
    expect_error(scene, "a service of version 1.2", run(scene, "add", name=NAME, version="1.2"))


@scenario("CLIENT-SERVICE-016", needs=["service", "service.reset"])
def reset_begins_at_nothing(scene: NatsScene) -> None:
    """No requests and no errors."""
    used(scene)
    stats(scene, "resize", 2)
    stats(scene, "faulty", 1)
    expect_success(scene, "reset", run(scene, "reset"))
    found = verb(scene, "STATS")
    for name in ("resize", "faulty"):
        one = of_endpoint(scene, found, name)
        expect_fields(scene, f"the endpoint {name} after a reset", one, num_requests=0, num_errors=0)


@scenario("CLIENT-SERVICE-017", needs=["service", "service.no_queue"])
def an_endpoint_may_get_every_request(scene: NatsScene) -> None:
    """A subscription without a queue group."""
    started(scene)
    endpoint(scene, "all", no_queue=True)
    expect_group(scene, "all", "")


@scenario("CLIENT-SERVICE-018", needs=["service"])
def a_late_endpoint_is_in_info(scene: NatsScene) -> None:
    """It is added after INFO was asked for."""
    started(scene)
    verb(scene, "INFO")
    endpoint(scene, "late")
    expect_fields(scene, "a late endpoint", of_endpoint(scene, verb(scene, "INFO"), "late"), subject="late")
