"""The fields of CONNECT that authenticate: what a capture, a report or a log must not show.

Source: docs.nats.io, "Client Protocol", CONNECT. Servers match keys without their case.
"""

from __future__ import annotations

SECRETS = ("pass", "auth_token", "jwt", "sig", "nkey")
