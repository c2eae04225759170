"""What the scenarios of TLS have in common, of both protocols: a server that a client has to refuse, and
bytes in the clear."""

from __future__ import annotations

from plumbline.conformance.clients.scene import Scene

REFUSED_WITHIN_S = 12.0  # until a library has reported it: some try for ten seconds
CLOSED_WITHIN_S = 2.0  # until the proxy has seen the end of what was refused
SHOWN_BYTES = 12  # of what was sent in the clear: what follows may be a password
HANDSHAKE = b"\x16"  # of TLS, as a decoder of the protocol sees it: RFC 8446 section 5.1
ENDS = ("no connection", "closed by", "reset")  # of remarks


def require_refusal(scene: Scene, *, scheme: str = "", trusting: bool = True) -> None:
    """Evidence: the client does not connect, says so, and sends nothing that the protocol has.

    ``scheme``: of the URL in the place of the broker's. ``trusting``: whether it is given the authority.
    """
    require_error(scene, scheme=scheme, trusting=trusting)
    scene.await_wire(lambda: any(one.text.startswith(ENDS) for one in scene.broker.remarks), CLOSED_WITHIN_S)
    require_nothing_in_the_clear(scene)
    sent = [seen for seen in scene.sent_operations() if seen.operation.raw[:1] != HANDSHAKE]
    scene.require(
        not sent,
        "the client goes on with a server that it has to refuse",
        expected="nothing",
        actual=f"{len(sent)} operations, the first: {sent[0].operation.raw[:SHOWN_BYTES]!r}" if sent else "",
        at=sent[0] if sent else None,
    )


def require_error(scene: Scene, *, scheme: str = "", trusting: bool = True) -> None:
    """Evidence: ``connect`` ends in an error."""
    url = f"{scheme}://{scene.broker.url.partition('://')[2]}" if scheme else scene.broker.url
    fields = {"tls_ca": str(scene.broker.authority)} if trusting and scene.broker.authority else {}
    answer = scene.try_command("connect", within=REFUSED_WITHIN_S, url=url, **fields)
    scene.require(
        answer.error is not None,
        "the client connects to a server that it has to refuse",
        expected="an error",
        actual="connect succeeds",
    )


def require_nothing_in_the_clear(scene: Scene) -> None:
    """Evidence: where TLS had to begin, nothing else was sent."""
    found = [data[:SHOWN_BYTES] for data in scene.broker.clear_text]
    scene.require(
        not found,
        "the client sends in the clear what has to be sent inside TLS",
        expected="a handshake of TLS",
        actual=", ".join(f"{data!r}..." for data in found),
    )
