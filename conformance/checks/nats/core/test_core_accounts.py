"""Streams and services that another account imports. docs.nats.io, "Multi Tenancy using Accounts".

Servers add headers to a request of another account, so a message with headers is one without, too.
"""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.core.core_refusals import hears_nothing
from plumbline.conformance.checks.nats.core.core_users import client_of, listening, next_message
from plumbline.conformance.nats.connection import NatsConnection
from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.outcomes import Failed
from plumbline.wire.nats import HMsg, HPub, Msg, Pub
from plumbline.wire.nats.headers import Headers, encode_headers

VARIANT = "accounts"
ACCOUNTS = 'docs.nats.io, "Multi Tenancy using Accounts"'
IMPORTS = f'{ACCOUNTS}, "Import Configuration Map"'
_OTHERS = ("stranger", "mapper")
EXPORTS = f'{ACCOUNTS}, "Export Configuration Map"'


def _requested(
    service: NatsConnection, client: NatsConnection, local: str, exported: str, reply: str, payload: bytes
) -> str:
    """``client`` makes a request on ``local``, which ``service`` gets on ``exported``: where to answer it."""
    client.send(Pub.make(local, payload, reply))
    client.flush()
    request = next_message(service, exported, payload)
    if not request.reply:
        service.mark_offending(request)
        raise Failed("the request has no reply subject", expected="one", actual=str(request))
    return request.reply


@verifies("CORE-118", variant=VARIANT, source=IMPORTS)
def test_stream_has_the_prefix_of_its_import(session: NatsSession) -> None:
    """What is imported with a prefix comes with it, and not on the subject of its export."""
    subject = f"{session.name('foo')}.news.closed"
    importer = listening(client_of(session, "default", "importer"), f"{subject}.>", f"from.{subject}.>")
    exporter = client_of(session, "exporter")
    exporter.send(Pub.make(f"{subject}.a", b"m1"), Pub.make(f"{subject}.a.b", b"m2"))
    exporter.flush()
    next_message(importer, f"from.{subject}.a", b"m1")
    next_message(importer, f"from.{subject}.a.b", b"m2")
    hears_nothing(session, importer)


@verifies("CORE-119", variant=VARIANT, source=f'{ACCOUNTS}, "Exporting and Importing"')
def test_each_answer_goes_to_who_has_asked(session: NatsSession) -> None:
    """Of three requests to a service of another account the second is answered first."""
    subject, inbox = f"{session.name('foo')}.ask", session.inbox()
    service = listening(client_of(session, "exporter", "service"), subject)
    others = [listening(client_of(session, role, f"other {role}"), f"{inbox}.>", subject) for role in _OTHERS]
    clients = {
        name: listening(client_of(session, "default", name), f"{inbox}.{name}") for name in ("a", "b", "c")
    }
    replies = {
        name: _requested(service, client, subject, subject, f"{inbox}.{name}", name.encode())
        for name, client in clients.items()
    }
    for name in ("b", "a", "c"):
        service.send(Pub.make(replies[name], b"to " + name.encode()))
        service.flush()
        next_message(clients[name], f"{inbox}.{name}", b"to " + name.encode())
        for connection in (*clients.values(), *others):
            hears_nothing(session, connection)


@verifies("CORE-149", variant=VARIANT, source=f'{ACCOUNTS}, "Exporting and Importing"')
def test_headers_go_with_requests_and_answers(session: NatsSession) -> None:
    """A request to a service of another account, and its answer, have their headers and payload."""
    session.needs("headers")
    subject, inbox = f"{session.name('foo')}.ask", f"{session.inbox()}.1"
    service = listening(client_of(session, "exporter", "service"), subject)
    client = listening(client_of(session, "default", "client"), inbox)
    client.send(HPub.make(subject, encode_headers([("A", "b"), ("A", "c")]), b"q", inbox))
    client.flush()
    request = next_message(service, subject, b"q")
    _has_headers(session, "the request", request, ["A: b", "A: c"])
    service.send(HPub.make(request.reply or "", encode_headers([("D", "e")]), b"a"))
    service.flush()
    _has_headers(session, "the answer", next_message(client, inbox, b"a"), ["D: e"])


def _has_headers(session: NatsSession, what: str, message: Msg | HMsg, expected: list[str]) -> None:
    """``message`` has these header fields, in this order, and may have others."""
    fields = Headers.parse(message.header_block).fields if isinstance(message, HMsg) else []
    found = [f"{name}: {value}" for name, value in fields]
    session.require(
        [field for field in found if field in expected] == expected,
        f"{what} has lost headers",
        expected=", ".join(expected),
        actual=", ".join(found) or "none",
    )


@verifies("CORE-150", variant=VARIANT, source="observed, nats-server 2.9.10 and 2.15")
def test_service_gets_what_wants_no_answer(session: NatsSession) -> None:
    """A message without reply subject on the subject of an imported service is delivered to it."""
    subject = f"{session.name('foo')}.ask"
    service = listening(client_of(session, "exporter", "service"), subject)
    client = client_of(session, "default", "client")
    client.send(Pub.make(subject, b"note"))
    client.flush()
    next_message(service, subject, b"note")
    hears_nothing(session, client)


@verifies("CORE-120", variant=VARIANT, source=IMPORTS)
def test_service_has_the_name_of_its_import(session: NatsSession) -> None:
    """A request on the local name arrives on the exported subject, and one on that subject stays here."""
    name, inbox = session.name("foo"), f"{session.inbox()}.1"
    service = listening(client_of(session, "exporter", "service"), f"{name}.>")
    client = listening(client_of(session, "default", "client"), inbox)
    for local, exported in ((f"{name}.question", f"{name}.one"), (f"{name}.asked.new", f"{name}.two.new")):
        reply = _requested(service, client, local, exported, inbox, b"q")
        service.send(Pub.make(reply, b"a"))
        service.flush()
        next_message(client, inbox, b"a")
    client.send(*(Pub.make(f"{name}.{token}", b"q", inbox) for token in ("one", "two.new", "question.new")))
    client.flush()
    hears_nothing(session, service)


@verifies("CORE-121", variant=VARIANT, source=f'{ACCOUNTS}, "Import/Export Example"')
def test_clients_of_the_account_see_the_request(session: NatsSession) -> None:
    """Who listens on the local name in the importing account gets the request, and can answer it."""
    local, inbox = f"{session.name('foo')}.question", f"{session.inbox()}.1"
    witness = listening(client_of(session, "default", "witness"), local)
    client = listening(client_of(session, "default", "client"), inbox)
    client.send(Pub.make(local, b"q", inbox))
    client.flush()
    request = next_message(witness, local, b"q")
    session.require(request.reply == inbox, "another reply subject", expected=inbox, actual=str(request))
    witness.send(Pub.make(inbox, b"a"))
    witness.flush()
    next_message(client, inbox, b"a")


@verifies("CORE-122", variant=VARIANT, source=EXPORTS)
def test_service_has_one_answer(session: NatsSession) -> None:
    """Of two answers to one request the first is delivered."""
    came = _answered_twice(session, "ask")
    session.require(came == [b"a1"], "not one answer", expected="a1", actual=_shown(came))


@verifies("CORE-130", variant=VARIANT, source=EXPORTS)
def test_service_has_a_stream_of_answers(session: NatsSession) -> None:
    """With response_type stream all answers to a request are delivered."""
    came = _answered_twice(session, "many")
    session.require(came == [b"a1", b"a2"], "not each answer", expected="a1, a2", actual=_shown(came))


def _answered_twice(session: NatsSession, service_name: str) -> list[bytes]:
    """What the client gets of the two answers."""
    subject, inbox = f"{session.name('foo')}.{service_name}", f"{session.inbox()}.1"
    service = listening(client_of(session, "exporter", "service"), subject)
    client = listening(client_of(session, "default", "client"), inbox)
    reply = _requested(service, client, subject, subject, inbox, b"q")
    service.send(Pub.make(reply, b"a1"), Pub.make(reply, b"a2"))
    service.flush()
    return [getattr(operation, "payload", b"") for operation in client.flush()]


def _shown(payloads: list[bytes]) -> str:
    return ", ".join(payload.decode("utf-8", "replace") for payload in payloads) or "none"
