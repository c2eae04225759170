"""Dead lettering: where a dead message is republished, and its ``x-death`` headers.

Source: RabbitMQ, "Dead Letter Exchanges".
"""

from __future__ import annotations

from typing import Any

from plumbline.reference_broker.amqp.config import NS
from plumbline.reference_broker.amqp.messages.message import CC, PublishedMessage, altered, further_keys
from plumbline.reference_broker.amqp.topology.arguments import is_integer
from plumbline.reference_broker.amqp.topology.queues import Queue
from plumbline.wire.amqp import Integer, Timestamp

MOST_DEATHS = 2**63 - 1  # what the type of the count can have
REJECTED, EXPIRED, MAXLEN, DELIVERY_LIMIT = "rejected", "expired", "maxlen", "delivery_limit"


def dead_letter(queue: Queue, message: PublishedMessage, reason: str, now: int) -> PublishedMessage:
    """The message as it is published again. Its own time to live is taken off, lest it dies once more."""
    assert queue.dead_letter_exchange is not None
    key = queue.dead_letter_routing_key
    headers = dict(message.headers)
    if key is not None:
        headers.pop(CC, None)
    deaths = headers.get("x-death")
    headers["x-death"] = _deaths(deaths if isinstance(deaths, list) else [], queue, message, reason, now)
    if not isinstance(deaths, list):
        headers["x-first-death-exchange"] = message.exchange
        headers["x-first-death-queue"] = queue.name
        headers["x-first-death-reason"] = reason
    properties = {name: value for name, value in message.properties.items() if name != "expiration"}
    properties["headers"] = headers
    return altered(
        message, queue.dead_letter_exchange, message.routing_key if key is None else key, properties
    )


def _deaths(deaths: list[Any], queue: Queue, message: PublishedMessage, reason: str, now: int) -> list[Any]:
    """``x-death`` with this death first: one entry for each queue and reason."""
    same = [one for one in deaths if _is_same_death(one, queue.name, reason)]
    others = [one for one in deaths if not _is_same_death(one, queue.name, reason)]
    if same:
        before = same[0].get("count")  # a publisher may have made it up
        count = min((before if is_integer(before) else 0) + 1, MOST_DEATHS)
        entry = {**same[0], "count": Integer(count, "l")}
    else:
        entry = {
            "count": Integer(1, "l"),
            "exchange": message.exchange,
            "queue": queue.name,
            "reason": reason,
            "routing-keys": [message.routing_key, *further_keys(message.headers)],
            "time": Timestamp(now // NS),
        }
        if (own := message.properties.get("expiration")) is not None:
            entry["original-expiration"] = own
    return [dict(sorted(entry.items())), *others]


def _is_same_death(death: Any, queue: str, reason: str) -> bool:
    return isinstance(death, dict) and death.get("queue") == queue and death.get("reason") == reason


def would_cycle(letter: PublishedMessage, target: Queue, reason: str) -> bool:
    """Whether it died in ``target`` before and was not rejected since: then it is dropped there."""
    if reason == REJECTED:
        return False
    since = []
    for death in letter.headers["x-death"]:
        since.append(death)
        if isinstance(death, dict) and death.get("queue") == target.name:
            return all(one.get("reason") != REJECTED for one in since if isinstance(one, dict))
    return False
