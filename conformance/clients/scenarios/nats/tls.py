"""TLS: ADR-40, "TLS"; docs.nats.io, "Encrypting Connections with TLS" and "Enabling TLS"."""

from __future__ import annotations

from plumbline.conformance.clients.nats.outages import connect_to_stay, connections, lose_connection
from plumbline.conformance.clients.nats.scene import NatsScene
from plumbline.conformance.clients.refusing import (
    CLOSED_WITHIN_S,
    REFUSED_WITHIN_S,
    require_nothing_in_the_clear,
    require_refusal,
)
from plumbline.conformance.clients.scenario import ServerTls, scenario
from plumbline.wire.nats import Connect


def connect_without_settings(scene: NatsScene) -> None:
    """By nats://, and with no authority to trust; whether that succeeds or not."""
    address = scene.broker.url.partition("://")[2]
    scene.try_command("connect", within=REFUSED_WITHIN_S, url=f"nats://{address}")
    scene.await_wire(lambda: len(scene.broker.remarks), CLOSED_WITHIN_S)


def require_encrypted(scene: NatsScene) -> None:
    """Evidence: CONNECT was sent, inside TLS."""
    require_nothing_in_the_clear(scene)
    scene.require(
        scene.sent_operations(Connect), "no CONNECT inside TLS", expected="CONNECT", actual="nothing"
    )


@scenario("CLIENT-TLS-001", needs=["tls"], tls=ServerTls.TRUSTED)
def tls_begins_before_connect(scene: NatsScene) -> None:
    """INFO says tls_required and the URL says tls://: CONNECT comes after the handshake."""
    scene.connect()
    require_encrypted(scene)


@scenario("CLIENT-TLS-001", needs=["tls"], tls=ServerTls.TRUSTED)
def info_alone_asks_for_tls(scene: NatsScene) -> None:
    """INFO says tls_required and the URL says nats://: CONNECT comes after the handshake."""
    address = scene.broker.url.partition("://")[2]
    scene.run_command("connect", url=f"nats://{address}", tls_ca=str(scene.broker.authority))
    require_encrypted(scene)


@scenario("CLIENT-TLS-001", needs=["tls", "reconnect"], tls=ServerTls.TRUSTED)
def tls_begins_again_after_a_reconnect(scene: NatsScene) -> None:
    """The connection is lost, and the next CONNECT comes after a handshake, too."""
    connect_to_stay(scene)
    lose_connection(scene)
    require_encrypted(scene)
    scene.require(len(connections(scene)) > 1, "no second connection", expected="2", actual="1")


@scenario("CLIENT-TLS-001", needs=["tls"], tls=ServerTls.TRUSTED)
def info_asks_for_tls_without_settings(scene: NatsScene) -> None:
    """INFO says tls_required, and the user gives nats:// and no authority: nothing is sent in the clear."""
    connect_without_settings(scene)
    require_nothing_in_the_clear(scene)


@scenario("CLIENT-TLS-003", needs=["tls"], tls=ServerTls.TRUSTED)
def without_settings_the_authority_is_refused(scene: NatsScene) -> None:
    """The user names no authority, and the machine does not know the one of the server."""
    require_refusal(scene, trusting=False)


@scenario("CLIENT-TLS-002", needs=["tls"], tls=ServerTls.CLEAR)
def a_server_in_the_clear_is_refused(scene: NatsScene) -> None:
    """URL and settings ask for TLS, and INFO does not: no CONNECT in the clear."""
    require_refusal(scene, scheme="tls")


@scenario("CLIENT-TLS-006", needs=["tls"], tls=ServerTls.CLEAR)
def the_scheme_alone_asks_for_tls(scene: NatsScene) -> None:
    """The URL says tls://, and neither INFO nor a setting does: no CONNECT in the clear."""
    require_refusal(scene, scheme="tls", trusting=False)


@scenario("CLIENT-TLS-003", needs=["tls"], tls=ServerTls.FOREIGN)
def another_authority_is_refused(scene: NatsScene) -> None:
    """Another authority issued the server's certificate."""
    require_refusal(scene)


@scenario("CLIENT-TLS-004", needs=["tls"], tls=ServerTls.OTHER_NAME)
def another_name_is_refused(scene: NatsScene) -> None:
    """The server's certificate was issued for another server."""
    require_refusal(scene)


@scenario("CLIENT-TLS-005", needs=["tls"], tls=ServerTls.EXPIRED)
def an_expired_certificate_is_refused(scene: NatsScene) -> None:
    """The server's certificate has expired."""
    require_refusal(scene)
