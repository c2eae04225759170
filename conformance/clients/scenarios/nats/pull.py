"""How a client asks for messages: ADR-13, "Pull(n)"; ADR-37 where it says otherwise."""

from __future__ import annotations

import time

from plumbline.conformance.clients.nats.scene import CONSUMER, STREAM, NatsScene, ObservedPull, payload_of
from plumbline.conformance.clients.scenario import scenario
from plumbline.conformance.clients.scene import NS
from plumbline.wire.nats import HMsg, Sub, Unsub
from plumbline.wire.nats.headers import encode_headers
from plumbline.wire.nats.jetstream import REQUEST_TIMEOUT
from plumbline.wire.nats.subjects import covers

EARLIER_NS = 100_000_000  # ADR-13: expires is 100 ms before the client side time-out
MANY = 100_000
SLACK_S = 4.0
SLACK_NS = 400_000_000


@scenario("CLIENT-PULL-001", needs=["fetch"])
def no_wait_comes_first(scene: NatsScene) -> None:
    """The first request of a fetch has no_wait; only then one lingers."""
    scene.orders()
    scene.fetch(5, expires_ms=500)
    first = _pulls(scene)[0]
    scene.require(
        first.request.no_wait,
        "the first request lingers",
        expected='{"batch":5,"no_wait":true}',
        actual=first.observation.operation,
        at=first.observation,
    )


@scenario("CLIENT-PULL-002", needs=["fetch"])
def a_request_that_lingers_expires_by_the_time_out(scene: NatsScene) -> None:
    """Every request that may wait carries an expires, no longer than the user's time-out."""
    scene.orders()
    for batch in (5, 1):
        scene.fetch(batch, expires_ms=1200)
    for pull in _pulls(scene):
        request = pull.request
        # Less than 0 is over when it comes: nats-server 2.9.10 and 2.15.2 answer 408 at once. A library that
        # computes it sends that when the time is up.
        scene.require(
            request.expires <= 1_200_000_000 if request.expires else request.no_wait,
            "a request outlives the fetch it belongs to",
            expected="expires of at most 1.2 s, or no_wait",
            actual=pull.observation.operation,
            at=pull.observation,
        )


@scenario("CLIENT-PULL-002", needs=["fetch"])
def what_follows_a_status_expires_by_the_time_out(scene: NatsScene) -> None:
    """A request that follows the end of another has no longer than the fetch still lasts."""
    scene.orders()
    began: list[int] = []

    def end_the_request() -> None:
        began.append(scene.pulls()[0].observation.at)
        scene.client.wait_until(lambda: False, 0.8)  # the protocol's own time: the fetch is half over
        status = encode_headers(status=REQUEST_TIMEOUT)
        inbox = scene.pulls()[-1].inbox
        scene.broker.inject(HMsg.make(inbox, scene.sid_receiving(inbox), status).raw)

    with scene.act_during(scene.is_waiting, end_the_request):
        scene.fetch(5, expires_ms=1600)
    for pull in _pulls(scene)[1:]:
        left = 1_600_000_000 - (pull.observation.at - began[0]) if began else 1_600_000_000
        scene.require(
            pull.request.expires <= left + SLACK_NS,
            "a request outlives the fetch it belongs to: it will take messages that no fetch waits for",
            expected=f"expires of at most {left / 1e6:.0f} ms",
            actual=pull.observation.operation,
            at=pull.observation,
        )
    scene.count_observation()


@scenario("CLIENT-PULL-011", needs=["fetch"])
def a_fetch_ends_with_its_request(scene: NatsScene) -> None:
    """A fetch that has messages ends when a status ends its request, without waiting for its time-out."""
    scene.orders("m1")
    began = time.monotonic()

    def end_the_request() -> None:
        status = encode_headers(
            [("Nats-Pending-Messages", "4"), ("Nats-Pending-Bytes", "0")], REQUEST_TIMEOUT
        )
        inbox = scene.pulls()[-1].inbox
        scene.broker.inject(HMsg.make(inbox, scene.sid_receiving(inbox), status).raw)

    with scene.act_during(scene.deliveries, end_the_request):
        fetched = scene.fetch(5, expires_ms=4000)
    took = time.monotonic() - began
    scene.require(
        took < 3 and "m1" in fetched.data,
        "a fetch waits on though its request has ended",
        expected="['m1'], long before the 4 s are over",
        actual=f"{fetched.data} after {took:.1f} s",
    )


@scenario("CLIENT-PULL-003", needs=["fetch"])
def expires_is_earlier_than_the_time_out(scene: NatsScene) -> None:
    """The expires of a request that lingers is 100 ms before the client's own time-out."""
    scene.orders()
    scene.fetch(5, expires_ms=2000)
    for pull in _pulls(scene):
        if pull.request.expires:
            scene.require(
                pull.request.expires <= 2 * NS - EARLIER_NS,
                "the request expires when the client gives up, or later: its status comes too late",
                expected=f"expires of at most {2 * NS - EARLIER_NS}",
                actual=pull.observation.operation,
                at=pull.observation,
            )
    scene.count_observation()


@scenario("CLIENT-PULL-004", needs=["fetch"])
def no_more_is_asked_for_than_is_wanted(scene: NatsScene) -> None:
    """The batches of the requests that are open never exceed what the user still waits for."""
    scene.orders("m1", "m2")
    scene.fetch(5, expires_ms=500)
    for pull in _pulls(scene):
        before = [seen for seen in scene.deliveries() if seen.index < pull.observation.index]
        scene.require(
            1 <= pull.request.batch <= 5 - len(before),
            "more is asked for than the user wants",
            expected=f"a batch of at most {5 - len(before)}",
            actual=pull.observation.operation,
            at=pull.observation,
        )


@scenario("CLIENT-PULL-005", needs=["fetch"])
def the_inbox_is_subscribed_before_the_request(scene: NatsScene) -> None:
    """The reply subject of a pull request is subscribed before the request is sent."""
    scene.orders()
    scene.fetch(1, expires_ms=300)
    for pull in _pulls(scene):
        heard = any(
            seen.index < pull.observation.index
            and isinstance(seen.operation, Sub)
            and covers(seen.operation.subject, pull.inbox)
            for seen in scene.sent_operations(Sub)
        )
        scene.require(
            heard,
            "no subscription receives the answer",
            expected=f"SUB {pull.inbox} before",
            actual="none",
            at=pull.observation,
        )


@scenario("CLIENT-PULL-006", needs=["fetch"])
def an_unsubscribe_follows_the_status(scene: NatsScene) -> None:
    """After the 404 of the first request, if it has one, UNSUB takes batch + 1 messages in all."""
    scene.orders()
    with scene.act_during(lambda: scene.statuses(404), lambda: scene.publish("m1", "m2", "m3")):
        scene.fetch(3, expires_ms=1500)
    found = [getattr(seen.operation, "max_msgs", None) for seen in scene.sent_operations(Unsub)]
    ended = scene.statuses(404) and scene.pulls()[0].request.no_wait  # a 408 comes when the fetch is over
    scene.require(
        4 in found or not ended, "no UNSUB with batch + 1", expected="UNSUB sid 4", actual=f"UNSUB {found}"
    )


@scenario("CLIENT-PULL-007", needs=["fetch"])
def a_batch_that_comes_late_is_handed_over_whole(scene: NatsScene) -> None:
    """Messages that come while a fetch lingers are all handed over, and no UNSUB cuts them short."""
    scene.orders()
    with scene.act_during(scene.is_waiting, lambda: scene.publish("m1", "m2", "m3")):
        data = scene.fetch(3, expires_ms=2500).data
    data += [message.data for message in scene.fetch_all(3 - len(data))]
    scene.require(
        data == ["m1", "m2", "m3"], "messages were lost", expected="['m1', 'm2', 'm3']", actual=data
    )
    for seen in scene.sent_operations(Unsub):
        most = getattr(seen.operation, "max_msgs", None)
        statuses = [one for one in scene.statuses() if one.index < seen.index]
        scene.require(
            most is None or most >= 3 + len(statuses),
            "the UNSUB ends before the batch does: statuses count as well",
            expected=f"UNSUB sid {3 + len(statuses)} or more",
            actual=seen.operation,
            at=seen,
        )


@scenario("CLIENT-PULL-008", needs=["fetch"])
def interest_ends_when_a_client_leaves_early(scene: NatsScene) -> None:
    """A fetch that leaves with less than it asked for unsubscribes."""
    scene.orders("m1")
    scene.fetch(5, expires_ms=500)
    scene.run_command("flush")
    scene.require(
        scene.sent_operations(Unsub),
        "the interest stays",
        expected="UNSUB sid",
        actual="no UNSUB after the time-out",
    )


@scenario(
    "CLIENT-PULL-009", needs=["fetch"], faults=['delay 700ms MSG where payload = "m1" on downstream the 1st']
)
def a_late_message_is_not_lost(scene: NatsScene) -> None:
    """A message that arrives after its fetch timed out is handed over by a later one, in the end."""
    scene.orders("m1", ack_wait=1_500_000_000)
    data = scene.fetch(1, expires_ms=400).data
    deadline = time.monotonic() + 6
    while "m1" not in data and time.monotonic() < deadline:
        data += scene.fetch(1, expires_ms=1500).data
    scene.require(
        set(data) == {"m1"},
        "a late message is lost",
        expected="m1, by a later fetch or delivered again",
        actual=data,
    )


@scenario("CLIENT-PULL-010", needs=["fetch"])
def a_fetch_ends_by_its_time_out(scene: NatsScene) -> None:
    """A fetch that gets no answer at all ends by its time-out, and hands nothing over."""
    scene.orders("m1")
    scene.take("m1")  # with it the library has looked up what it wants to know
    scene.broker.set_faults("drop HMSG on downstream", "drop MSG on downstream")
    scene.publish("m2")
    began = time.monotonic()
    fetched = scene.fetch(5, expires_ms=800)
    took = time.monotonic() - began
    scene.require(
        took <= 0.8 + SLACK_S and not fetched.messages,
        "a fetch outlasts its time-out",
        expected="no message, within 0.8 s and a little",
        actual=f"{fetched.data} after {took:.1f} s",
    )


def _pulls(scene: NatsScene) -> list[ObservedPull]:
    pulls = scene.pulls()
    if not pulls:
        scene.fail("nothing was asked for", expected="a pull request", actual="none")
    return pulls


@scenario("CLIENT-PULL-012", needs=["fetch"])
def a_batch_has_no_limit_of_the_client(scene: NatsScene) -> None:
    """A fetch of 100,000 messages asks for as many."""
    scene.orders("m1")
    scene.fetch(MANY)
    found = [pull.request.batch for pull in scene.pulls()]
    scene.require(
        found and found[0] == MANY, "another batch is asked for", expected=f"batch {MANY}", actual=found
    )


@scenario("CLIENT-PULL-013", needs=["fetch"])
def each_consumer_has_its_own_inbox(scene: NatsScene) -> None:
    """Requests to two consumers have different reply subjects."""
    scene.stage.stream(STREAM, ["orders.>"])
    names = (CONSUMER, "INVOICES")
    for name in names:
        scene.stage.consumer(STREAM, name)
    scene.publish("m1")
    scene.connect()
    for name in names:
        scene.try_command("fetch", stream=STREAM, consumer=name, batch=1, expires_ms=1000)
    inboxes = [
        {pull.inbox for pull in scene.pulls() if payload_of(pull.observation).subject.endswith(f".{name}")}
        for name in names
    ]
    scene.require(
        all(inboxes) and not inboxes[0] & inboxes[1],
        "two consumers have the same reply subject",
        expected="a reply subject for each",
        actual=inboxes,
    )
