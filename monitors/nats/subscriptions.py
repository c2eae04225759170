"""Rules of one connection's subscriptions: what a server sends is for a live subscription, as often as asked.

A server may still send until it has read an UNSUB. It has read it when it answers a PING sent after it.
"""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from plumbline.monitors.facts import Fact
from plumbline.monitors.monitor import Monitor, MonitorScope
from plumbline.monitors.nats import facts
from plumbline.monitors.observation import Place, Side, Violation
from plumbline.wire.nats.subjects import covers


class _Subscription(Struct):
    subject: str
    place: Place
    received: int = 0
    max_msgs: int | None = None  # of UNSUB; 0: at once
    unsubscribed: Place | None = None
    pings_before: int = 0  # sent before UNSUB


class SubscriptionsState(Struct):
    """``seen_from_start``: the connection was seen from its beginning."""

    seen_from_start: bool = False
    pings: int = 0
    pongs: int = 0
    subscriptions: dict[str, _Subscription] = {}


class LiveSubscriptions(Monitor):
    """No message for a sid that is not subscribed, and no more than UNSUB allows."""

    rule = "live-subscription"
    title = (
        "A server sends messages for live subscriptions only, and no more than the max_msgs of their UNSUB."
    )
    requirements = ("CORE-088", "CORE-091")
    source = 'docs.nats.io, "Client Protocol", SUB and UNSUB'
    side = Side.SERVER
    scope = MonitorScope.CONNECTION
    State = SubscriptionsState
    looks_at = frozenset(
        {
            facts.ClientConnected, facts.Pinged, facts.Ponged, facts.Subscribed, facts.Unsubscribed,
            facts.MessageReceived,
        }
    )  # fmt: skip
    state: SubscriptionsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        state = self.state
        match fact:
            case facts.ClientConnected():
                state.seen_from_start = True
            case facts.Pinged():
                state.pings += 1
            case facts.Ponged():
                state.pongs += 1
            case facts.Subscribed():
                live = state.subscriptions.get(fact.sid)
                # A second SUB with a live sid changes nothing (CORE-093).
                if live is None or live.max_msgs is not None:
                    state.subscriptions[fact.sid] = _Subscription(fact.subject, fact.place)
            case facts.Unsubscribed():
                self._unsubscribe(fact)
            case facts.MessageReceived():
                yield from self._received(fact)

    def _unsubscribe(self, fact: facts.Unsubscribed) -> None:
        live = self.state.subscriptions.get(fact.sid)
        if live is None:
            return
        live.max_msgs = fact.max_msgs or 0
        live.unsubscribed = fact.place
        live.pings_before = self.state.pings

    def _received(self, fact: facts.MessageReceived) -> Iterator[Violation]:
        live = self.state.subscriptions.get(fact.sid)
        if live is None:
            if self.state.seen_from_start:
                yield self.violation("messages for subscribed sids", f"sid {fact.sid} is none", fact.place)
            return
        live.received += 1
        if live.max_msgs is None or live.unsubscribed is None or live.received <= live.max_msgs:
            return
        if self.state.pongs > live.pings_before:
            allowed = f"no more than {live.max_msgs} messages" if live.max_msgs else "no more messages"
            yield self.violation(
                f"{allowed} for sid {fact.sid} once UNSUB was read",
                f"message {live.received} after a PONG that came later than UNSUB",
                fact.place,
                live.place,
                live.unsubscribed,
            )


class SubjectsState(Struct):
    """By sid: what it was subscribed to, each subject with its SUB. A sid may be used again."""

    subjects: dict[str, dict[str, Place]] = {}


class SubjectsMatch(Monitor):
    """A subject is one that the subscription asked for; JetStream's deliveries keep their stream subject."""

    rule = "subject-matches"
    title = "A message has a subject that its subscription's subject matches, unless a consumer delivers it."
    requirements = ("CORE-083", "CORE-084", "CORE-085")
    source = 'docs.nats.io, "Subject-Based Messaging", Wildcards'
    side = Side.SERVER
    scope = MonitorScope.CONNECTION
    State = SubjectsState
    looks_at = frozenset({facts.Subscribed, facts.MessageReceived})
    state: SubjectsState

    def observe(self, fact: Fact) -> Iterator[Violation]:
        if isinstance(fact, facts.Subscribed):
            self.state.subjects.setdefault(fact.sid, {})[fact.subject] = fact.place
        elif (
            isinstance(fact, facts.MessageReceived) and not fact.delivery and fact.sid in self.state.subjects
        ):
            subscribed = self.state.subjects[fact.sid]
            if not any(covers(pattern, fact.subject) for pattern in subscribed):
                patterns = " or ".join(subscribed)
                yield self.violation(
                    f"a subject that {patterns} matches",
                    f"subject {fact.subject}",
                    fact.place,
                    *subscribed.values(),
                )
