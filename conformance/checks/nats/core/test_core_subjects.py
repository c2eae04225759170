"""Which subscriptions a subject matches. docs.nats.io, "Client Protocol", "Protocol conventions".

Subscriptions on ``>`` and ``*`` hear what everybody else on the target publishes, so what does not carry this
session's names is left aside.
"""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.nats.session import NatsSession
from plumbline.wire.nats import Msg, Pub, Sub

SOURCE = 'docs.nats.io, "Client Protocol", "Protocol conventions"'


def heard_by(session: NatsSession, subject: str, patterns: list[str]) -> list[str]:
    """The patterns whose subscription gets a message on ``subject``, as often as it gets it."""
    connection = session.connect()
    for sid, pattern in enumerate(patterns):
        connection.send(Sub.make(pattern, sid))
    connection.send(Pub.make(subject, b"x"))
    came = connection.flush()
    return sorted(
        patterns[int(message.sid)]
        for message in came
        if isinstance(message, Msg) and message.subject == subject and message.payload == b"x"
    )


def require_heard(session: NatsSession, subject: str, patterns: list[str], expected: list[str]) -> None:
    """Exactly the ``expected`` patterns hear ``subject``, each once."""
    heard = heard_by(session, subject, patterns)
    session.require(
        heard == sorted(expected),
        f"{subject} is not delivered to the right subscriptions",
        expected=f"once to each of {' '.join(sorted(expected))}",
        actual=" ".join(heard) or "to none",
    )


@verifies("CORE-083", source=SOURCE, alone=True)
def test_two_tokens_match_literal_and_wildcards(session: NatsSession) -> None:
    """A message on foo.bar is delivered once to each subscription on foo.bar, foo.*, foo.> and >."""
    foo = session.name("foo")
    matching = [f"{foo}.bar", f"{foo}.*", f"{foo}.>", ">"]
    others = [foo, f"{foo}.baz", f"{foo}.bar.*", "*"]
    require_heard(session, f"{foo}.bar", matching + others, matching)


@verifies("CORE-084", source=SOURCE, alone=True)
def test_one_token_matches_top_level_wildcards_only(session: NatsSession) -> None:
    """A message on foo is delivered to subscriptions on * and >, and not to those on foo.* and foo.>."""
    foo = session.name("foo")
    require_heard(session, foo, [f"{foo}.*", f"{foo}.>", ">", "*"], [">", "*"])


@verifies("CORE-085", source=SOURCE)
def test_full_wildcard_matches_several_tokens(session: NatsSession) -> None:
    """A message on foo.bar.baz is delivered to a subscription on foo.> and not to one on foo.*."""
    foo = session.name("foo")
    require_heard(session, f"{foo}.bar.baz", [f"{foo}.*", f"{foo}.>"], [f"{foo}.>"])


@verifies("CORE-087", source="observed, nats-server 2.9.10 and 2.15", alone=True)
def test_full_wildcard_matches_dollar_subjects(session: NatsSession) -> None:
    """A subscription on > receives what clients publish on subjects that begin with $."""
    require_heard(session, f"${session.name('foo')}.x", [">"], [">"])


@verifies("CORE-087", source="observed, nats-server 2.9.10 and 2.15", alone=True)
def test_full_wildcard_matches_inboxes(session: NatsSession) -> None:
    """A subscription on > receives what clients publish on subjects that begin with _."""
    require_heard(session, session.inbox(), [">"], [">"])


@verifies(
    "CORE-146",
    source='docs.nats.io, "Subject-Based Messaging", "Characters allowed and recommended for subject names"',
)
def test_characters_that_are_no_ascii(session: NatsSession) -> None:
    """Characters that are no ASCII are compared and delivered as others are, in any token."""
    prefix = session.name("grüße")
    patterns = [f"{prefix}.東京", f"{prefix}.*", f"{prefix}.>", f"{prefix}.京都", f"{prefix}.東"]
    require_heard(session, f"{prefix}.東京", patterns, patterns[:3])
