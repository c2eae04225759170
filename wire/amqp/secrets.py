"""The arguments that authenticate, by method: what a capture, a report or a log must not show.

Sources: AMQP 0-9-1, section 1.4 (connection.start-ok, secure-ok); RabbitMQ, update-secret.
"""

from __future__ import annotations

SECRETS = {
    "connection.start-ok": "response",
    "connection.secure-ok": "response",
    "connection.update-secret": "new_secret",
}
