"""AMQP: protocol header, login, tuning, virtual host; and how a connection is closed."""

from __future__ import annotations

from functools import partial

from plumbline.conformance.amqp.connection import AmqpConnection
from plumbline.conformance.amqp.handshake import start_ok
from plumbline.conformance.amqp.probe import offered_mechanisms
from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.check import verifies
from plumbline.conformance.checks.amqp.amqp_answers import expect_refusal
from plumbline.conformance.checks.amqp.amqp_opening import (
    ENDS_WITHIN_S,
    bare,
    expect_end,
    expect_matching,
    greeted,
    logged_in,
    opening,
)
from plumbline.conformance.outcomes import Failed, Unsupported
from plumbline.conformance.sessions.connection import ConnectionClosed
from plumbline.wire.amqp import FRAME_MIN_SIZE, Method, Operation, ProtocolHeader, Raw

HEADER = "AMQP 0-9-1, section 4.2.2"
START = "AMQP 0-9-1 XML, connection.start"
START_OK = "AMQP 0-9-1 XML, connection.start-ok"
TUNE = "AMQP 0-9-1 XML, connection.tune"
TUNE_OK = "AMQP 0-9-1 XML, connection.tune-ok"
OPEN = "AMQP 0-9-1 XML, connection.open"
CLOSE = "AMQP 0-9-1 XML, connection.close"
FAILURES = 'RabbitMQ, "Authentication Failure Notifications"'
EXTENSIONS = 'RabbitMQ, "Protocol Extensions"'
REFUSED = {"authentication_failure_close": True}
# A frame of a type that there is not.
NO_FRAME = Raw.make(b"\x09\x00\x00\x00\x00\x00\x00\xce")
DESCRIBED_BY = ("product", "version", "platform", "copyright", "information")
# 0-9-1 with another revision, 0-10, a web browser, noise: no server speaks these.
OTHER_HEADERS = (
    b"AMQP\x00\x00\x09\x02",
    b"AMQP\x01\x01\x00\x0a",
    b"GET / HT",
    b"\x16\x03\x01\x02\x00\x01\x00\x01",
)
# Those of 0-9 and 0-8, whose specification says 8.0, and the version that each asks for.
OLDER_HEADERS = {b"AMQP\x01\x01\x00\x09": (0, 9), b"AMQP\x01\x01\x08\x00": (8, 0)}


@verifies("AMQP-CONN-001", source=HEADER)
def test_start_answers_the_protocol_header(session: AmqpSession) -> None:
    """The protocol header of 0-9-1 is answered with connection.start on channel 0, version 0.9."""
    connection = bare(session)
    connection.send(ProtocolHeader.make())
    connection.expect("connection.start", version_major=0, version_minor=9)


@verifies("AMQP-CONN-002", source=f'{START}, rule "protocol-name"')
def test_other_headers_are_answered_with_a_header_and_closed(session: AmqpSession) -> None:
    """A header that the server does not speak is answered with one that it does, and then it closes.

    It does so, too, if a right header comes right behind it.
    """
    followed = OTHER_HEADERS[0] + ProtocolHeader.make().raw
    for number, header in enumerate((*OTHER_HEADERS, followed)):
        connection = bare(session, f"client{number}")
        connection.send(Raw.make(header))
        expect_matching(
            session,
            connection,
            "a protocol header of AMQP, 8 octets",
            lambda operation: isinstance(operation, ProtocolHeader) and operation.raw[:4] == b"AMQP",
        )
        connection.expect_closed(within=3.0)


@verifies("AMQP-CONN-003", source='RabbitMQ, "AMQP 0-9-1 Protocol Compliance"')
def test_older_headers_start_or_are_refused(session: AmqpSession) -> None:
    """The headers of 0-9 and 0-8 get connection.start of their version, or are refused with a header."""
    for number, (header, version) in enumerate(OLDER_HEADERS.items()):
        connection = bare(session, f"client{number}")
        connection.send(Raw.make(header))
        major, minor = version
        expect_matching(
            session,
            connection,
            f"connection.start version_major={major} version_minor={minor}, or a protocol header",
            partial(_starts_or_refuses, version),
        )


def _starts_or_refuses(version: tuple[int, int], answer: Operation) -> bool:
    """Whether it is connection.start of that version, or a protocol header."""
    if not isinstance(answer, Method):
        return isinstance(answer, ProtocolHeader)
    names = ("version_major", "version_minor")
    return answer.method == "connection.start" and tuple(answer.arguments[name] for name in names) == version


@verifies("AMQP-CONN-004", source=f"{HEADER}; observed, RabbitMQ 3.10.8")
def test_part_of_a_header_is_no_header(session: AmqpSession) -> None:
    """Seven octets of the header get no answer; the eighth gets connection.start."""
    connection = bare(session)
    whole = ProtocolHeader.make().raw
    connection.send(Raw.make(whole[:7]))
    connection.expect_silence(for_s=0.3)
    connection.send(Raw.make(whole[7:]))
    connection.expect("connection.start")


@verifies("AMQP-CONN-005", source=f'{START}, parameter server-properties, rule "required-fields"')
def test_server_says_what_it_is(session: AmqpSession) -> None:
    """server_properties have product, version, platform, copyright and information."""
    properties = greeted(session)[1].arguments["server_properties"]
    missing = [name for name in DESCRIBED_BY if not properties.get(name)]
    session.require(
        not missing,
        "server_properties lack something",
        expected=", ".join(DESCRIBED_BY),
        actual=", ".join(name for name in properties if name in DESCRIBED_BY) or "none of them",
    )


@verifies("AMQP-CONN-006", source=EXTENSIONS)
def test_extensions_are_claimed_as_booleans(session: AmqpSession) -> None:
    """server_properties have a table capabilities, whose values are true or false."""
    capabilities = greeted(session)[1].arguments["server_properties"].get("capabilities")
    session.require(
        isinstance(capabilities, dict) and all(isinstance(value, bool) for value in capabilities.values()),
        "capabilities are no table of booleans",
        expected="a table of booleans",
        actual=repr(capabilities),
    )


@verifies("AMQP-CONN-007", source=f'{START}, parameter locales, rule "required-support"')
def test_locale_en_us_is_offered(session: AmqpSession) -> None:
    """The locales contain en_US, among others separated by blanks."""
    locales = greeted(session)[1].arguments["locales"]
    text = locales.decode() if isinstance(locales, bytes) else str(locales)
    session.require("en_US" in text.split(), "en_US is not offered", expected="en_US", actual=text)


def needs_password(session: AmqpSession) -> None:
    """Raises ``Unsupported`` if the run logs in without one."""
    mechanism = session.url(None).mechanism
    if mechanism == "EXTERNAL":
        raise Unsupported("this run logs in with a client certificate (EXTERNAL), which has no password")


def needs_plain(start: Method) -> None:
    """Raises ``Unsupported`` if the server does not offer PLAIN."""
    if "PLAIN" not in offered_mechanisms(start):
        raise Unsupported("connection.start does not offer PLAIN")


@verifies("AMQP-CONN-008", source=START_OK)
def test_valid_login_is_tuned(session: AmqpSession) -> None:
    """connection.start-ok with PLAIN and the right password is answered with connection.tune."""
    connection, start = greeted(session)
    needs_password(session)
    needs_plain(start)
    connection.send(start_ok(session.url(None), {"mechanism": "PLAIN"}))
    connection.expect("connection.tune")


@verifies("AMQP-CONN-009", source=FAILURES, is_long=True)
def test_wrong_password_ends_the_connection(session: AmqpSession) -> None:
    """A wrong password, from a client without authentication_failure_close, ends the connection."""
    needs_password(session)
    connection, _ = greeted(session)
    connection.send(start_ok(session.url(None), {"password": "wrong", "capabilities": {}}))
    expect_end(session, connection, "a wrong password", 403)


@verifies("AMQP-CONN-010", source=FAILURES)
def test_wrong_password_is_told(session: AmqpSession) -> None:
    """A client with authentication_failure_close gets 403 for a wrong password."""
    connection, start = greeted(session)
    claimed = start.arguments["server_properties"].get("capabilities") or {}
    if not claimed.get("authentication_failure_close"):
        raise Unsupported("connection.start does not claim 'authentication_failure_close'")
    needs_password(session)
    connection.send(start_ok(session.url(None), {"password": "wrong", "capabilities": REFUSED}))
    connection.expect("connection.close", reply_code=403, class_id=0, method_id=0)


@verifies("AMQP-CONN-011", source=f'{START_OK}, parameter mechanism, rule "validity"', is_long=True)
def test_mechanism_that_was_not_offered(session: AmqpSession) -> None:
    """A login with a mechanism that connection.start did not offer ends the connection."""
    connection, _ = greeted(session)
    connection.send(start_ok(session.url(None), {"mechanism": "X-NONE", "capabilities": REFUSED}))
    expect_end(session, connection, "an unknown mechanism")


@verifies("AMQP-CONN-012", source=START_OK, is_long=True)
def test_malformed_plain_response(session: AmqpSession) -> None:
    """A PLAIN response without its two zero octets ends the connection."""
    connection, start = greeted(session)
    needs_plain(start)
    malformed = {"mechanism": "PLAIN", "response": "guest", "capabilities": {}}
    connection.send(start_ok(session.url(None), malformed))
    expect_end(session, connection, "a malformed PLAIN response")


@verifies("AMQP-CONN-013", source=TUNE)
def test_tune_proposes_limits(session: AmqpSession) -> None:
    """connection.tune proposes channel_max, a frame_max of 0 or at least 4096, and a heartbeat."""
    _, tune = logged_in(session)
    frame_max = tune.arguments["frame_max"]
    session.require(
        frame_max == 0 or frame_max >= FRAME_MIN_SIZE,
        "frame_max is below frame-min-size",
        expected="0 or at least 4096",
        actual=str(frame_max),
    )


@verifies("AMQP-CONN-014", source=f'{TUNE_OK}, parameter frame-max, rule "upper-limit"', is_long=True)
def test_frame_max_above_the_proposal(session: AmqpSession) -> None:
    """connection.tune-ok with a larger frame_max than was proposed ends the connection."""
    connection, tune = logged_in(session)
    if not (proposed := tune.arguments["frame_max"]):
        raise Unsupported("connection.tune proposes no limit (frame_max 0)")
    connection.send(*opening(session, tune, frame_max=proposed + 1))
    expect_end(session, connection, "a frame_max above the proposal")


@verifies("AMQP-CONN-015", source=f'{TUNE}, parameter frame-max, rule "minimum"', is_long=True)
def test_frame_max_below_the_minimum(session: AmqpSession) -> None:
    """connection.tune-ok with a frame_max below 4096 ends the connection."""
    connection, tune = logged_in(session)
    connection.send(*opening(session, tune, frame_max=FRAME_MIN_SIZE - 1))
    expect_end(session, connection, "a frame_max below frame-min-size")


@verifies("AMQP-CONN-056", source=f'{TUNE}, parameter frame-max, rule "minimum"')
def test_smallest_frame_max(session: AmqpSession) -> None:
    """connection.tune-ok with a frame_max of 4096 is accepted."""
    connection, tune = logged_in(session)
    connection.send(*opening(session, tune, frame_max=FRAME_MIN_SIZE))
    connection.expect("connection.open-ok")


@verifies("AMQP-CONN-016", source='RabbitMQ, "AMQP 0-9-1 Errata"; observed, RabbitMQ 3.10.8', is_long=True)
def test_frame_max_without_a_limit(session: AmqpSession) -> None:
    """connection.tune-ok with frame_max 0, where a limit was proposed, ends the connection."""
    connection, tune = logged_in(session)
    if not tune.arguments["frame_max"]:
        raise Unsupported("connection.tune proposes no limit (frame_max 0)")
    connection.send(*opening(session, tune, frame_max=0))
    expect_end(session, connection, "a frame_max of 0")


@verifies("AMQP-CONN-017", source=f'{TUNE_OK}, parameter channel-max, rule "upper-limit"', is_long=True)
def test_channel_max_above_the_proposal(session: AmqpSession) -> None:
    """connection.tune-ok with a larger channel_max than was proposed ends the connection."""
    connection, tune = logged_in(session)
    proposed = tune.arguments["channel_max"]
    if proposed in (0, 65535):
        raise Unsupported(f"connection.tune proposes no limit (channel_max {proposed})")
    connection.send(*opening(session, tune, channel_max=proposed + 1))
    expect_end(session, connection, "a channel_max above the proposal")


@verifies("AMQP-CONN-018", source='RabbitMQ, "AMQP 0-9-1 Errata"; observed, RabbitMQ 3.10.8', is_long=True)
def test_channel_max_without_a_limit(session: AmqpSession) -> None:
    """connection.tune-ok with channel_max 0, where a limit was proposed, ends the connection."""
    connection, tune = logged_in(session)
    if not tune.arguments["channel_max"]:
        raise Unsupported("connection.tune proposes no limit (channel_max 0)")
    connection.send(*opening(session, tune, channel_max=0))
    expect_end(session, connection, "a channel_max of 0")


@verifies("AMQP-CONN-019", source=f"{TUNE_OK}, parameter heartbeat")
def test_heartbeat_may_be_lower_or_none(session: AmqpSession) -> None:
    """connection.tune-ok with another heartbeat than was proposed, or with 0, is accepted."""
    for heartbeat in (0, 5):
        connection, tune = logged_in(session, f"heartbeat{heartbeat}")
        connection.send(*opening(session, tune, heartbeat=heartbeat))
        connection.expect("connection.open-ok")


@verifies("AMQP-CONN-020", source=OPEN)
def test_known_virtual_host_opens(session: AmqpSession) -> None:
    """connection.open of a virtual host that exists is answered with connection.open-ok."""
    connection, tune = logged_in(session)
    connection.send(*opening(session, tune))
    connection.expect("connection.open-ok")


@verifies("AMQP-CONN-021", source=OPEN)
def test_unknown_virtual_host_is_refused(session: AmqpSession) -> None:
    """connection.open of a virtual host that does not exist is a connection error: 530, 404, 402 or 403."""
    connection, tune = logged_in(session)
    tuned, opened = opening(session, tune, virtual_host=session.name("nowhere"))
    connection.send(tuned)
    expect_refusal(session, connection, opened, 530, 404, 402, 403)


@verifies("AMQP-CONN-022", source="AMQP 0-9-1 XML, class connection, grammar", is_long=True)
def test_no_step_of_the_opening_can_be_left_out(session: AmqpSession) -> None:
    """connection.open before tune-ok, and channel.open before start-ok, end the connection."""
    early, tune = logged_in(session, "untuned")
    early.send(opening(session, tune)[1])
    stranger, _ = greeted(session, "stranger")
    stranger.send(Method.make("channel.open", 1))
    expect_end(session, early, "connection.open before connection.tune-ok")
    expect_end(session, stranger, "channel.open before connection.start-ok")


@verifies("AMQP-CONN-023", source="AMQP 0-9-1 XML, class connection, grammar")
def test_connection_is_opened_once(session: AmqpSession) -> None:
    """A second start-ok, or a second open, on an open connection is a connection error."""
    again = start_ok(session.url(None), {})
    expect_refusal(session, session.connect("login"), again)
    expect_refusal(session, session.connect("open"), Method.make("connection.open", virtual_host="/"))


@verifies("AMQP-ERRORS-018", source='RabbitMQ, "Protocol Extensions"')
def test_secret_may_be_renewed(session: AmqpSession) -> None:
    """A client may renew its secret; it sends the one that it has logged in with."""
    needs_password(session)
    password = getattr(session.url(None), "password", "")
    session.connect().call("connection.update-secret", 0, new_secret=password, reason="it is time")


@verifies("AMQP-CONN-024", source=CLOSE)
def test_close_is_answered_and_the_last_word(session: AmqpSession) -> None:
    """connection.close is answered with close-ok, and what follows it is ignored."""
    client = session.connect()
    client.call("basic.qos", 1)
    queue = session.name("LATE")
    client.send(
        Method.make("connection.close", reply_code=200, reply_text="bye"),
        Method.make("queue.declare", 1, queue=queue),
    )
    client.expect("connection.close-ok")
    session.stage.expect_queue(queue, exists=False)


@verifies("AMQP-CONN-055", source=CLOSE, is_long=True)
def test_connection_may_be_closed_while_it_opens(session: AmqpSession) -> None:
    """connection.close, instead of tune-ok or of open, is answered with close or close-ok, or the
    connection ends."""
    early, _ = logged_in(session, "untuned")
    tuned, tune = logged_in(session, "tuned")
    tuned.send(opening(session, tune)[0])
    for connection in (early, tuned):
        connection.send(Method.make("connection.close", reply_code=200, reply_text="bye"))
    for connection in (early, tuned):
        try:
            answer = connection.take(ENDS_WITHIN_S)
        except ConnectionClosed:
            connection.expect_closed(0.1)
            continue
        session.require(
            answer is not None and answer.method in ("connection.close", "connection.close-ok"),
            "connection.close before connection.open has no effect",
            expected="connection.close-ok, connection.close, or the connection closed",
            actual=str(answer or "nothing"),
        )


@verifies("AMQP-CONN-025", source=f'{CLOSE}, rule "stability"')
def test_close_ok_ends_the_connection(session: AmqpSession) -> None:
    """After the server's connection.close, close-ok ends the connection at once, also behind other methods,
    which are ignored."""
    connection = session.connect(channels="manual")
    expect_refusal(session, connection, Method.make("basic.qos", 1), 504)
    connection.send(Method.make("channel.open", 1), Method.make("basic.qos", 1))
    connection.send(Method.make("connection.close-ok"))
    connection.expect_closed(within=1.0)


def _expect_end_for_good(session: AmqpSession, connection: AmqpConnection, what: str) -> None:
    """As ``expect_end``; and after connection.close nothing comes."""
    expect_end(session, connection, what)
    try:
        answer = connection.take(0.3)
    except ConnectionClosed:
        return
    if answer is not None:
        connection.mark_offending(answer)
        raise Failed(f"after {what} the connection goes on", expected="nothing", actual=str(answer))


@verifies("AMQP-CONN-058", source=FAILURES, is_long=True)
def test_no_second_login_on_a_connection(session: AmqpSession) -> None:
    """The right password behind a wrong one, with the capability for 403 or without it, comes too late."""
    needs_password(session)
    connections = []
    for name, capabilities in (("without", {}), ("with", REFUSED)):
        connection, _ = greeted(session, name)
        connection.send(start_ok(session.url(None), {"password": "wrong", "capabilities": capabilities}))
        connection.send(start_ok(session.url(None), {}))
        connections.append(connection)
    for connection in connections:
        _expect_end_for_good(session, connection, "a wrong password")


@verifies("AMQP-CONN-058", source=f'{TUNE_OK}, parameter frame-max, rule "upper-limit"', is_long=True)
def test_no_second_tuning_of_a_connection(session: AmqpSession) -> None:
    """Terms that are acceptable, behind others that are not, come too late."""
    connections = []
    for name, terms in (("small", {"frame_max": FRAME_MIN_SIZE - 1}), ("large", {"frame_max": 0xFFFFFFFF})):
        connection, tune = logged_in(session, name)
        if name == "large" and not tune.arguments["frame_max"]:
            continue  # no limit is proposed
        connection.send(opening(session, tune, **terms)[0])
        connection.send(*opening(session, tune))
        connections.append(connection)
    for connection in connections:
        _expect_end_for_good(session, connection, f"a frame_max that is too {connection.name}")


@verifies("AMQP-CONN-058", source=HEADER, is_long=True)
def test_nothing_opens_behind_bytes_that_are_no_frame(session: AmqpSession) -> None:
    """A frame of an unknown type, before start-ok, tune-ok and open, ends the connection, and what would have
    been right there comes too late."""
    start, _ = greeted(session, "start")
    tuning, tune = logged_in(session, "tuning")
    tuned, _ = logged_in(session, "tuned")
    terms, opens = opening(session, tune)
    tuned.send(terms)
    due: dict[AmqpConnection, tuple[Method, ...]] = {
        start: (start_ok(session.url(None), {}),),
        tuning: (terms, opens),
        tuned: (opens,),
    }
    for connection in due:
        connection.send(NO_FRAME)
    session.connect("meanwhile")  # so that the server reads what follows by itself
    for connection, methods in due.items():
        connection.send(*methods)
    for connection in due:
        _expect_end_for_good(session, connection, "a frame of an unknown type")


@verifies("AMQP-CONN-059", source="AMQP 0-9-1 XML, class connection, grammar", is_long=True)
def test_close_ok_that_answers_nothing(session: AmqpSession) -> None:
    """connection.close-ok of a client, where the server closes nothing, ends the connection."""
    connection = session.connect()
    connection.send(Method.make("connection.close-ok"))
    expect_end(session, connection, "connection.close-ok")
