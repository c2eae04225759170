"""TLS: RabbitMQ, "RabbitMQ URI Specification", "The "amqps" URI scheme", and "TLS Support"."""

from __future__ import annotations

from plumbline.conformance.clients.amqp.scene import AmqpScene
from plumbline.conformance.clients.refusing import require_nothing_in_the_clear, require_refusal
from plumbline.conformance.clients.scenario import ServerTls, scenario


@scenario("CLIENT-AMQPS-001", needs=["tls"], tls=ServerTls.TRUSTED)
def tls_begins_at_once(scene: AmqpScene) -> None:
    """The URL says amqps://: the protocol header and connection.start-ok come after the handshake."""
    scene.connect()
    require_nothing_in_the_clear(scene)
    scene.require(
        scene.sent_methods("connection.start-ok"),
        "no login inside TLS",
        expected="connection.start-ok",
        actual="nothing",
    )


@scenario("CLIENT-AMQPS-001", needs=["tls"], tls=ServerTls.CLEAR)
def a_server_in_the_clear_is_refused(scene: AmqpScene) -> None:
    """The URL says amqps://, and the server does not speak TLS: no protocol header in the clear."""
    require_refusal(scene, scheme="amqps")


@scenario("CLIENT-AMQPS-002", needs=["tls"], tls=ServerTls.FOREIGN)
def another_authority_is_refused(scene: AmqpScene) -> None:
    """Another authority issued the server's certificate."""
    require_refusal(scene)


@scenario("CLIENT-AMQPS-003", needs=["tls"], tls=ServerTls.OTHER_NAME)
def another_name_is_refused(scene: AmqpScene) -> None:
    """The server's certificate was issued for another server."""
    require_refusal(scene)


@scenario("CLIENT-AMQPS-004", needs=["tls"], tls=ServerTls.EXPIRED)
def an_expired_certificate_is_refused(scene: AmqpScene) -> None:
    """The server's certificate has expired."""
    require_refusal(scene)
