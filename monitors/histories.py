"""Judges a history by unique payloads, as Jepsen does: compares published with delivered messages.

Pure, and every type is plain data that ``msgspec`` writes and reads. What was published without an answer may
show up or not; a history that was not read to its end may still hold what is missing. Neither is ever counted
as a fault.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

from msgspec import Struct


class PublishOutcome(StrEnum):
    """How one attempt to publish ended."""

    OK = "ok"  # acknowledged
    FAILED = "failed"  # refused: it must not be delivered
    UNKNOWN = "unknown"  # no answer: a lost acknowledgement, a crash


class Settlement(StrEnum):
    """What happened to one delivery."""

    CONFIRMED = "confirmed"  # acknowledged, and the server confirmed it: never again
    OPEN = "open"  # surely not acknowledged: it must come again
    UNKNOWN = "unknown"  # acknowledged perhaps: it may come again or not


class PublishAttempt(Struct, frozen=True):
    """One attempt. The same ``id`` again is a retry, and counts as one message."""

    id: str
    outcome: PublishOutcome = PublishOutcome.OK


class HistoryDelivery(Struct, frozen=True):
    """One delivery, in the order of the history. ``position`` is where the message is stored (its stream
    sequence, its offset): the same message keeps it over all of its deliveries. None if that is not known."""

    id: str
    position: int | None = None
    settlement: Settlement = Settlement.CONFIRMED


class History(Struct, frozen=True):
    """``complete``: reading went on until nothing was left to be delivered."""

    published: tuple[PublishAttempt, ...]
    delivered: tuple[HistoryDelivery, ...]
    complete: bool = True


class HistoryOutcome(StrEnum):
    """Of a history as a whole: the worst of what is in it, worst first."""

    LOST = "lost"
    DUPLICATED = "duplicated"
    UNEXPECTED = "unexpected"
    INDETERMINATE = "indeterminate"
    OK = "ok"


class Judgement(Struct, frozen=True):
    """Ids by their outcomes, in the order of publishing (``unexpected``: of delivery).

    Losses are counted by place: before everything that arrived (``prefix``), between (``middle``), or after
    it (``postfix``), since a log that lost its end has another fault than one that skips.
    """

    ok: tuple[str, ...] = ()
    lost_prefix: tuple[str, ...] = ()
    lost_middle: tuple[str, ...] = ()
    lost_postfix: tuple[str, ...] = ()
    duplicated: tuple[str, ...] = ()
    unexpected: tuple[str, ...] = ()
    indeterminate: tuple[str, ...] = ()

    @property
    def lost(self) -> tuple[str, ...]:
        return self.lost_prefix + self.lost_middle + self.lost_postfix

    @property
    def outcome(self) -> HistoryOutcome:
        """The worst that was found; an empty history has no verdict."""
        for outcome in (
            HistoryOutcome.LOST,
            HistoryOutcome.DUPLICATED,
            HistoryOutcome.UNEXPECTED,
            HistoryOutcome.INDETERMINATE,
        ):
            if getattr(self, outcome.value):
                return outcome
        return HistoryOutcome.OK if self.ok else HistoryOutcome.INDETERMINATE

    @property
    def has_fault(self) -> bool:
        """Whether something was lost, duplicated or made up."""
        return bool(self.lost or self.duplicated or self.unexpected)

    def __str__(self) -> str:
        """``97 ok, 1 lost (middle: m4), 2 indeterminate``."""
        parts = [f"{len(self.ok)} ok"]
        for name in ("lost_prefix", "lost_middle", "lost_postfix", "duplicated", "unexpected"):
            ids = getattr(self, name)
            if ids:
                kind, _, where = name.partition("_")
                parts.append(f"{len(ids)} {kind} ({where + ': ' if where else ''}{_first_ids(ids)})")
        if self.indeterminate:
            parts.append(f"{len(self.indeterminate)} indeterminate")
        return ", ".join(parts)


class _MessageHistory:
    """All that happened to one id."""

    __slots__ = ("again", "arrived", "confirmed", "maybe", "outcome", "positions")

    def __init__(self, outcome: PublishOutcome | None) -> None:
        self.outcome = outcome  # None: it was not published
        self.arrived = False
        self.confirmed = False
        self.maybe = False
        self.again = False  # delivered after its confirmation
        self.positions: set[int] = set()

    def add_attempt(self, outcome: PublishOutcome) -> None:
        """One attempt that succeeded is enough; one of unknown end weighs more than refusals."""
        order = (PublishOutcome.OK, PublishOutcome.UNKNOWN, PublishOutcome.FAILED)
        known = self.outcome
        self.outcome = outcome if known is None else min(known, outcome, key=order.index)

    def add_delivery(self, delivery: HistoryDelivery) -> None:
        self.again |= self.confirmed
        self.arrived = True
        self.confirmed |= delivery.settlement is Settlement.CONFIRMED
        self.maybe |= delivery.settlement is Settlement.UNKNOWN
        if delivery.position is not None:
            self.positions.add(delivery.position)

    @property
    def is_duplicated(self) -> bool:
        return self.again or len(self.positions) > 1


def judge_history(history: History) -> Judgement:
    """The outcome of every id of ``history``."""
    fates = _message_histories(history)
    expected = [one for one, fate in fates.items() if fate.outcome not in (None, PublishOutcome.FAILED)]
    missing = [one for one in expected if _is_lost(fates[one], complete=history.complete)]
    arrived = [number for number, one in enumerate(expected) if fates[one].arrived]
    first, last = (arrived[0], arrived[-1]) if arrived else (-1, -1)
    number_of = {one: number for number, one in enumerate(expected)}
    return Judgement(
        ok=tuple(one for one in expected if fates[one].confirmed and not fates[one].is_duplicated),
        lost_prefix=tuple(one for one in missing if number_of[one] < first),
        lost_middle=tuple(one for one in missing if first <= number_of[one] <= last),
        lost_postfix=tuple(one for one in missing if number_of[one] > last),
        duplicated=tuple(one for one in expected if fates[one].is_duplicated),
        unexpected=tuple(
            one
            for one, fate in fates.items()
            if fate.outcome in (None, PublishOutcome.FAILED) and fate.arrived
        ),
        indeterminate=tuple(
            one
            for one in expected
            if not fates[one].confirmed
            and not fates[one].is_duplicated
            and not _is_lost(fates[one], complete=history.complete)
        ),
    )


def _message_histories(history: History) -> dict[str, _MessageHistory]:
    fates: dict[str, _MessageHistory] = {}
    for attempt in history.published:
        fates.setdefault(attempt.id, _MessageHistory(None)).add_attempt(attempt.outcome)
    for delivery in history.delivered:
        fates.setdefault(delivery.id, _MessageHistory(None)).add_delivery(delivery)
    return fates


def _is_lost(fate: _MessageHistory, *, complete: bool) -> bool:
    """In the stream for certain (acknowledged, or seen), and never confirmed though all was read."""
    if not complete or fate.confirmed or fate.maybe or fate.is_duplicated:
        return False
    return fate.arrived or fate.outcome is PublishOutcome.OK


def _first_ids(ids: Iterable[str], limit: int = 5) -> str:
    shown = list(ids)
    return " ".join(shown[:limit]) + (f" and {len(shown) - limit} more" if len(shown) > limit else "")
