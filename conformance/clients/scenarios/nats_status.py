"""Statuses on a pull request's inbox: ADR-13, "Errors and Status messages handling"."""

from __future__ import annotations

from conformance.clients.nats_scene import NatsScene
from conformance.clients.scenario import scenario


@scenario("CLIENT-STATUS-001", needs=["fetch"])
def no_messages_is_no_message(scene: NatsScene) -> None:
    """A fetch from an empty consumer hands nothing over."""
    scene.orders()
    fetched = scene.fetch(1, expires_ms=300)
    scene.require(
        not fetched.messages, "a status was handed over", expected="no message", actual=fetched.data
    )
