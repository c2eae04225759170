"""A page's values, as ``gather`` gives them."""

from __future__ import annotations

import math

from plumbline.pipeline.page.gather import (
    BrokenRule,
    ContextLine,
    PageData,
    PageTable,
    ReceiverBuckets,
    TimeBucket,
    ViolationCard,
)

SECOND = 1_000_000_000
FIRST = 1_795_275_468 * SECOND
WIDTH = SECOND // 5


def card(
    actual: str = "ORDERS delivers 7 again", *, certain: bool = True, text: str = "MSG a 1 5"
) -> ViolationCard:
    at = FIRST + 4 * SECOND
    return ViolationCard(
        rule="consumer-sequence",
        side="server",
        certain=certain,
        requirements=("JS-ACK-004", "JS-SEQ-013"),
        expected="a consumer sequence higher than any before",
        actual=actual,
        capture="captures/a.pcapng",
        connection=3,
        client="127.0.0.1:40000",
        server="127.0.0.1:4222",
        library="python3 2.16.0",
        at=at,
        frame=81,
        lines=(
            ContextLine(4, at - SECOND, "server", "MSG o.x 2 $JS.ACK.S.C.1.7.7.1.0 5 | (5 bytes)", "earlier"),
            ContextLine(11, at - 2000, "client", "PUB $JS.ACK.S.C.1.7.7.1.0 0"),
            ContextLine(12, at, "server", text, "offending"),
            ContextLine(13, at + 5000, "client", "PING"),
        ),
        earlier_elsewhere=("connection 9, operation 2: > PUB $JS.API.CONSUMER.MSG.NEXT.S.C",),
    )


def shown(
    *cards: ViolationCard, receiver: str = "ORDERS > DISPATCH", subject: str = "orders.new"
) -> PageData:
    """Ten seconds with two receivers; a rule is broken if there are cards."""
    certain = sum(one.certain for one in cards)
    title = "The consumer sequence rises by one with each delivery."
    rule = BrokenRule(
        "consumer-sequence", title, "server", ("JS-ACK-004",), certain, len(cards) - certain, cards
    )
    broken = TimeBucket(FIRST + 4 * SECOND, {"consumer-sequence": len(cards), "delivery-count": 1})
    deliveries, lags = _deliveries(), _lags()
    repeats = tuple(
        TimeBucket(times, {"messages": number}) for times, number in enumerate((150, 40, 10), start=1)
    )
    return PageData(
        captures=("captures/a.pcapng", "captures/b.pcapng"),
        servers=("127.0.0.1:4222",),
        first=FIRST,
        last=FIRST + 10 * SECOND,
        width=WIDTH,
        counts={"operations": 12345, "connections": 7, "deliveries": 2000, "publishes": 1900},
        certain=certain,
        possible=len(cards) - certain,
        rules=(rule,) if cards else (),
        violations=(broken,) if cards else (),
        lanes=(ReceiverBuckets(receiver, 2000, deliveries), ReceiverBuckets("tasks", 300, deliveries[10:30])),
        lags=(ReceiverBuckets(receiver, 2000, lags), ReceiverBuckets("tasks", 300, lags[:5])),
        repeats=(ReceiverBuckets(receiver, 200, repeats),),
        more_lanes=2,
        grids=(
            PageTable(
                "Acknowledgement lag",
                "From a delivery to its acknowledgement.",
                ("receiver", "library", "deliveries", "p50"),
                ((receiver, "python3 2.16.0", "2,000", "1.21 ms"), (subject, "go 1.37", "3", "9 ns")),
                numbers=2,
                has_more=False,
            ),
        ),
        compliance=(
            _compliance("JS-ACK-004", "127.0.0.1:4222", 2000, "broken" if cards else "kept"),
            _compliance("JS-ACK-004", "127.0.0.1:4223", 10, "kept"),
            _compliance("JS-PULL-057", None, 0, "not seen"),
        ),
        problems=({"capture": "captures/b.pcapng", "kind": "truncated", "text": "17 bytes are left"},),
    )


def _deliveries() -> tuple[TimeBucket, ...]:
    return tuple(
        TimeBucket(
            FIRST + number * WIDTH,
            {"deliveries": round(40 + 30 * math.sin(number / 4)), "redelivered": 9 * (number % 7 == 3)},
        )
        for number in range(50)
    )


def _lags() -> tuple[TimeBucket, ...]:
    return tuple(
        TimeBucket(
            round(10 ** (5 + number / 4)), {"deliveries": round(100 * math.exp(-((number - 6) ** 2) / 9))}
        )
        for number in range(13)
    )


def _compliance(identity: str, server: str | None, observed: int, verdict: str) -> dict[str, object]:
    about = {"requirement": identity, "level": "MUST", "statement": "It is so.", "server": server}
    return {**about, "observed": observed, "violations": 0, "possible": 0, "verdict": verdict}
