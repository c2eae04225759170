"""The judge of histories: by example, and against histories whose faults were put in on purpose."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from plumbline.monitors.histories import (
    Delivered,
    History,
    Judgement,
    Outcome,
    Publication,
    Published,
    Settlement,
    judge,
)

IDS = [f"m{number}" for number in range(8)]


def history(published: str, delivered: str, *, complete: bool = True) -> History:
    """``a b? c!``: b without an answer, c refused; delivered ``a@1 a.@1 b?``: ``.`` not acknowledged."""
    return History(
        tuple(map(_published, published.split())), tuple(map(_delivered, delivered.split())), complete
    )


def _published(text: str) -> Published:
    outcome = {"?": Publication.UNKNOWN, "!": Publication.FAILED}.get(text[-1], Publication.OK)
    return Published(text.rstrip("?!"), outcome)


def _delivered(text: str) -> Delivered:
    name, _, position = text.partition("@")
    settlement = {"?": Settlement.UNKNOWN, ".": Settlement.OPEN}.get(name[-1], Settlement.CONFIRMED)
    return Delivered(name.rstrip("?."), int(position) if position else None, settlement)


def test_everything_delivered_once_is_ok() -> None:
    assert judge(history("a b c", "a b c")) == Judgement(ok=("a", "b", "c"))


def test_what_is_lost_is_told_by_where() -> None:
    found = judge(history("a b c d e", "b d"))
    assert (found.lost_prefix, found.lost_middle, found.lost_postfix) == (("a",), ("c",), ("e",))
    assert found.outcome is Outcome.LOST


def test_a_history_of_nothing_has_lost_its_end() -> None:
    assert judge(history("a b", "")).lost_postfix == ("a", "b")


def test_a_history_not_read_to_its_end_has_lost_nothing() -> None:
    assert judge(history("a b", "a", complete=False)) == Judgement(ok=("a",), indeterminate=("b",))


def test_a_delivery_after_its_confirmation_is_a_duplicate() -> None:
    assert judge(history("a b", "a b a")).duplicated == ("a",)


def test_a_redelivery_of_what_was_not_acknowledged_is_none() -> None:
    assert judge(history("a", "a.@1 a?@1 a@1")) == Judgement(ok=("a",))


def test_stored_at_two_positions_is_a_duplicate_whoever_read_it() -> None:
    assert judge(history("a a?", "a.@1 a@2")).duplicated == ("a",)


def test_a_retry_is_the_same_message() -> None:
    assert judge(history("a? a", "a@1")) == Judgement(ok=("a",))


def test_a_publish_without_an_answer_may_arrive_or_not() -> None:
    assert judge(history("a? b?", "a")) == Judgement(ok=("a",), indeterminate=("b",))


def test_what_was_refused_or_never_published_is_unexpected() -> None:
    assert judge(history("a b!", "a b c")).unexpected == ("b", "c")


def test_delivered_and_never_acknowledged_is_lost_once_all_is_read() -> None:
    assert judge(history("a b?", "a. b.")).lost == ("a", "b")


def test_an_acknowledgement_without_its_reply_is_indeterminate() -> None:
    assert judge(history("a", "a?")) == Judgement(indeterminate=("a",))


def test_an_empty_history_proves_nothing() -> None:
    assert judge(history("", "")).outcome is Outcome.INDETERMINATE


def test_a_history_is_plain_data() -> None:
    given_ = history("a b? c!", "a@1 b.@2")
    assert msgspec.json.decode(msgspec.json.encode(given_), type=History) == given_


def test_a_judgement_reads_as_a_sentence() -> None:
    assert str(judge(history("a b c d?", "a c a x"))) == (
        "1 ok, 1 lost (middle: b), 1 duplicated (a), 1 unexpected (x), 1 indeterminate"
    )


@st.composite
def faulty(draw: st.DrawFn) -> tuple[History, set[str], set[str], set[str]]:
    """A history, and what was done to it: ids lost, duplicated, unexpected."""
    outcomes = {name: draw(st.sampled_from(list(Publication))) for name in IDS}
    chosen = {name: draw(st.sampled_from(["once", "again", "missing", "redelivered"])) for name in IDS}
    published = [Published(name, outcome) for name, outcome in outcomes.items()]
    retried = draw(st.lists(st.sampled_from(IDS), max_size=3))
    published += [Published(name, outcomes[name]) for name in retried]
    delivered: list[Delivered] = []
    for position, name in enumerate(draw(st.permutations(IDS))):
        sure = Delivered(name, position)
        opened = Delivered(name, position, Settlement.OPEN)
        delivered += {"once": [sure], "again": [sure, sure], "missing": [], "redelivered": [opened, sure]}[
            chosen[name]
        ]
    refused = {name for name in IDS if outcomes[name] is Publication.FAILED}
    lost = {name for name in IDS if outcomes[name] is Publication.OK and chosen[name] == "missing"}
    duplicated = {name for name in IDS if chosen[name] == "again"} - refused
    unexpected = {name for name in refused if chosen[name] != "missing"}
    return History(tuple(published), tuple(delivered)), lost, duplicated, unexpected


@given(faulty())
def test_exactly_the_faults_put_in_are_found(
    case: tuple[History, set[str], set[str], set[str]],
) -> None:
    given_, lost, duplicated, unexpected = case
    found = judge(given_)
    assert (set(found.lost), set(found.duplicated), set(found.unexpected)) == (lost, duplicated, unexpected)
    assert found.has_fault == bool(lost or duplicated or unexpected)


@given(faulty(), st.booleans())
def test_every_id_has_one_fate(case: tuple[History, set[str], set[str], set[str]], complete: bool) -> None:
    given_ = msgspec.structs.replace(case[0], complete=complete)
    found = judge(given_)
    told = [*found.ok, *found.lost, *found.duplicated, *found.unexpected, *found.indeterminate]
    silent = {one.id for one in given_.published if one.outcome is Publication.FAILED} - set(found.unexpected)
    assert sorted(told) == sorted({one.id for one in given_.published} - silent)
