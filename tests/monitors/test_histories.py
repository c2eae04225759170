"""The judge of histories: by example, and against histories whose faults were put in on purpose."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from plumbline.monitors.histories import (
    History,
    HistoryDelivery,
    HistoryOutcome,
    Judgement,
    PublishAttempt,
    PublishOutcome,
    Settlement,
    judge_history,
)

IDS = [f"m{number}" for number in range(8)]


def history(published: str, delivered: str, *, complete: bool = True) -> History:
    """``a b? c!``: b without an answer, c refused; delivered ``a@1 a.@1 b?``: ``.`` not acknowledged."""
    return History(
        tuple(map(_published, published.split())), tuple(map(_delivered, delivered.split())), complete
    )


def _published(text: str) -> PublishAttempt:
    outcome = {"?": PublishOutcome.UNKNOWN, "!": PublishOutcome.FAILED}.get(text[-1], PublishOutcome.OK)
    return PublishAttempt(text.rstrip("?!"), outcome)


def _delivered(text: str) -> HistoryDelivery:
    name, _, position = text.partition("@")
    settlement = {"?": Settlement.UNKNOWN, ".": Settlement.OPEN}.get(name[-1], Settlement.CONFIRMED)
    return HistoryDelivery(name.rstrip("?."), int(position) if position else None, settlement)


def test_everything_delivered_once_is_ok() -> None:
    assert judge_history(history("a b c", "a b c")) == Judgement(ok=("a", "b", "c"))


def test_lost_messages_are_grouped_by_position() -> None:
    found = judge_history(history("a b c d e", "b d"))
    assert (found.lost_prefix, found.lost_middle, found.lost_postfix) == (("a",), ("c",), ("e",))
    assert found.outcome is HistoryOutcome.LOST


def test_undelivered_history_is_lost_postfix() -> None:
    assert judge_history(history("a b", "")).lost_postfix == ("a", "b")


def test_a_history_not_read_to_its_end_has_lost_nothing() -> None:
    assert judge_history(history("a b", "a", complete=False)) == Judgement(ok=("a",), indeterminate=("b",))


def test_a_delivery_after_its_confirmation_is_a_duplicate() -> None:
    assert judge_history(history("a b", "a b a")).duplicated == ("a",)


def test_a_redelivery_of_what_was_not_acknowledged_is_none() -> None:
    assert judge_history(history("a", "a.@1 a?@1 a@1")) == Judgement(ok=("a",))


def test_message_at_two_positions_is_duplicate() -> None:
    assert judge_history(history("a a?", "a.@1 a@2")).duplicated == ("a",)


def test_a_retry_is_the_same_message() -> None:
    assert judge_history(history("a? a", "a@1")) == Judgement(ok=("a",))


def test_a_publish_without_an_answer_may_arrive_or_not() -> None:
    assert judge_history(history("a? b?", "a")) == Judgement(ok=("a",), indeterminate=("b",))


def test_delivered_but_unpublished_is_unexpected() -> None:
    assert judge_history(history("a b!", "a b c")).unexpected == ("b", "c")


def test_delivered_and_never_acknowledged_is_lost_once_all_is_read() -> None:
    assert judge_history(history("a b?", "a. b.")).lost == ("a", "b")


def test_an_acknowledgement_without_its_reply_is_indeterminate() -> None:
    assert judge_history(history("a", "a?")) == Judgement(indeterminate=("a",))


def test_an_empty_history_proves_nothing() -> None:
    assert judge_history(history("", "")).outcome is HistoryOutcome.INDETERMINATE


def test_a_history_is_plain_data() -> None:
    given_ = history("a b? c!", "a@1 b.@2")
    assert msgspec.json.decode(msgspec.json.encode(given_), type=History) == given_


def test_a_judgement_reads_as_a_sentence() -> None:
    assert str(judge_history(history("a b c d?", "a c a x"))) == (
        "1 ok, 1 lost (middle: b), 1 duplicated (a), 1 unexpected (x), 1 indeterminate"
    )


@st.composite
def faulty(draw: st.DrawFn) -> tuple[History, set[str], set[str], set[str]]:
    """A history, and what was done to it: ids lost, duplicated, unexpected."""
    outcomes = {name: draw(st.sampled_from(list(PublishOutcome))) for name in IDS}
    chosen = {name: draw(st.sampled_from(["once", "again", "missing", "redelivered"])) for name in IDS}
    published = [PublishAttempt(name, outcome) for name, outcome in outcomes.items()]
    retried = draw(st.lists(st.sampled_from(IDS), max_size=3))
    published += [PublishAttempt(name, outcomes[name]) for name in retried]
    delivered: list[HistoryDelivery] = []
    for position, name in enumerate(draw(st.permutations(IDS))):
        sure = HistoryDelivery(name, position)
        opened = HistoryDelivery(name, position, Settlement.OPEN)
        delivered += {"once": [sure], "again": [sure, sure], "missing": [], "redelivered": [opened, sure]}[
            chosen[name]
        ]
    refused = {name for name in IDS if outcomes[name] is PublishOutcome.FAILED}
    lost = {name for name in IDS if outcomes[name] is PublishOutcome.OK and chosen[name] == "missing"}
    duplicated = {name for name in IDS if chosen[name] == "again"} - refused
    unexpected = {name for name in refused if chosen[name] != "missing"}
    return History(tuple(published), tuple(delivered)), lost, duplicated, unexpected


@given(faulty())
def test_exactly_the_faults_put_in_are_found(
    case: tuple[History, set[str], set[str], set[str]],
) -> None:
    given_, lost, duplicated, unexpected = case
    found = judge_history(given_)
    assert (set(found.lost), set(found.duplicated), set(found.unexpected)) == (lost, duplicated, unexpected)
    assert found.has_fault == bool(lost or duplicated or unexpected)


@given(faulty(), st.booleans())
def test_every_id_has_one_fate(case: tuple[History, set[str], set[str], set[str]], complete: bool) -> None:
    given_ = msgspec.structs.replace(case[0], complete=complete)
    found = judge_history(given_)
    judged = [*found.ok, *found.lost, *found.duplicated, *found.unexpected, *found.indeterminate]
    silent = {one.id for one in given_.published if one.outcome is PublishOutcome.FAILED} - set(
        found.unexpected
    )
    assert sorted(judged) == sorted({one.id for one in given_.published} - silent)
