"""pika's ordinary API on the reference broker: a client that knows nothing of us."""

from __future__ import annotations

from collections.abc import Iterator

import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker, NackError, UnroutableError

from plumbline.reference_broker.amqp.server import AmqpBroker


@pytest.fixture
def channel() -> Iterator[BlockingChannel]:
    """A channel of a connection to a fresh broker."""
    with AmqpBroker.in_thread() as url:
        connection = pika.BlockingConnection(pika.URLParameters(url))
        yield connection.channel()
        connection.close()


def test_publishing_with_confirms(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    channel.queue_declare("q", arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
    channel.basic_publish("", "q", b"taken", mandatory=True)
    with pytest.raises(NackError):
        channel.basic_publish("", "q", b"rejected")
    with pytest.raises(UnroutableError) as returned:
        channel.basic_publish("", "nowhere", b"returned", mandatory=True)
    assert [message.body for message in returned.value.messages] == [b"returned"]


def test_consuming_with_acknowledgements_and_prefetch(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    for number in range(5):
        channel.basic_publish("", "q", str(number).encode())
    channel.basic_qos(prefetch_count=2)
    got: list[tuple[int, bytes]] = []
    for method, _, body in channel.consume("q", inactivity_timeout=5):
        assert method is not None
        got.append((method.delivery_tag, body))
        channel.basic_ack(method.delivery_tag)
        if len(got) == 5:
            break
    channel.cancel()
    assert got == [(number + 1, str(number).encode()) for number in range(5)]


def test_getting_and_requeueing(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    properties = pika.BasicProperties(headers={"nested": [1, {"deep": None}]}, delivery_mode=2)
    channel.basic_publish("", "q", b"message", properties)
    method, came, body = channel.basic_get("q")
    assert method is not None
    assert came is not None
    assert (method.redelivered, came.headers, body) == (False, {"nested": [1, {"deep": None}]}, b"message")
    channel.basic_nack(method.delivery_tag, requeue=True)
    method, _, _ = channel.basic_get("q")
    assert method is not None
    assert method.redelivered
    channel.basic_reject(method.delivery_tag, requeue=False)
    assert channel.basic_get("q") == (None, None, None)


def test_transactions(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    channel.tx_select()
    channel.basic_publish("", "q", b"rolled back")
    channel.tx_rollback()
    channel.basic_publish("", "q", b"committed")
    assert channel.basic_get("q") == (None, None, None)
    channel.tx_commit()
    assert channel.basic_get("q", auto_ack=True)[2] == b"committed"


def test_error_texts_match_rabbitmq(channel: BlockingChannel) -> None:
    with pytest.raises(ChannelClosedByBroker) as caught:
        channel.queue_declare("nosuch", passive=True)
    assert caught.value.reply_code == 404
    assert caught.value.reply_text == "NOT_FOUND - no queue 'nosuch' in vhost '/'"


def test_a_body_of_many_frames_comes_back_whole(channel: BlockingChannel) -> None:
    channel.queue_declare("q")
    body = bytes(range(256)) * 4096
    channel.basic_publish("", "q", body)
    assert channel.basic_get("q", auto_ack=True)[2] == body


def test_a_reply_comes_without_a_queue(channel: BlockingChannel) -> None:
    replies: list[tuple[str, bytes]] = []
    channel.queue_declare("requests")
    request = pika.BasicProperties(reply_to="amq.rabbitmq.reply-to")
    with pytest.raises(ChannelClosedByBroker, match="reply consumer cannot acknowledge"):
        channel.connection.channel().basic_consume("amq.rabbitmq.reply-to", lambda *delivery: None)
    channel.basic_consume(
        "amq.rabbitmq.reply-to",
        lambda _, method, properties, body: replies.append((properties.correlation_id, body)),
        auto_ack=True,
    )
    channel.basic_publish("", "requests", b"ping", request)
    responder = channel.connection.channel()
    _, properties, _ = responder.basic_get("requests", auto_ack=True)
    assert properties is not None
    address = properties.reply_to
    assert responder.queue_declare(address, passive=True).method.consumer_count == 1
    responder.basic_publish("", address, b"pong", pika.BasicProperties(correlation_id="1"))
    while not replies:
        channel.connection.process_data_events(5)
    assert replies == [("1", b"pong")]
    channel.close()
    with pytest.raises(ChannelClosedByBroker, match="no queue"):
        responder.queue_declare(address, passive=True)


def test_a_request_without_a_consumer_of_replies_is_refused(channel: BlockingChannel) -> None:
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match="fast reply consumer does not exist"):
        channel.basic_publish("", "q", b"", pika.BasicProperties(reply_to="amq.rabbitmq.reply-to"))


def test_a_message_goes_to_the_keys_in_cc_and_bcc(channel: BlockingChannel) -> None:
    for name in ("to", "cc", "bcc"):
        channel.queue_declare(name)
    headers = {"CC": ["cc", "nowhere", "to"], "BCC": ["bcc"], "other": 1}
    channel.basic_publish("", "to", b"m", pika.BasicProperties(headers=headers))
    for name in ("to", "cc", "bcc"):
        _, properties, _ = channel.basic_get(name, auto_ack=True)
        assert properties is not None
        assert properties.headers == {"CC": ["cc", "nowhere", "to"], "other": 1}
        assert channel.basic_get(name)[0] is None
    channel.confirm_delivery()
    with pytest.raises(ChannelClosedByBroker, match='unacceptable_type_in_header,"CC",longstr'):
        channel.basic_publish("", "to", b"m", pika.BasicProperties(headers={"CC": "cc"}))


def test_dead_letters_go_to_the_keys_in_cc(channel: BlockingChannel) -> None:
    channel.queue_declare("dead", arguments={"x-dead-letter-exchange": "amq.direct", "x-max-length": 0})
    channel.queue_declare("q")
    channel.queue_bind("q", "amq.direct", "further")
    channel.basic_publish("", "dead", b"m", pika.BasicProperties(headers={"CC": ["further"]}))
    _, properties, _ = channel.basic_get("q")
    assert properties is not None
    assert properties.headers["x-death"][0]["routing-keys"] == ["dead", "further"]


@pytest.mark.parametrize(
    ("forged", "count"), [("abc", 1), (None, 1), (True, 1), ([], 1), (7, 8), (2**63 - 1, 2**63 - 1)]
)
def test_a_publishers_own_count_of_deaths_does_no_harm(
    channel: BlockingChannel, forged: object, count: int
) -> None:
    channel.queue_declare("q", arguments={"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"})
    channel.queue_declare("dead")
    deaths = [{"queue": "q", "reason": "rejected", "count": forged}]
    channel.basic_publish("", "q", b"m", pika.BasicProperties(headers={"x-death": deaths}))
    method, _, _ = channel.basic_get("q")
    assert method is not None
    channel.basic_reject(method.delivery_tag, requeue=False)
    _, properties, _ = channel.basic_get("dead")
    assert properties is not None
    assert properties.headers["x-death"][0]["count"] == count
