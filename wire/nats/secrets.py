"""The fields of CONNECT that authenticate: what a capture, a report or a log must not show.

Servers match keys without their case.
Sources: docs.nats.io, "Client Protocol", CONNECT; nats-server 2.12, ClientOpts (proxy_sig).
"""

from __future__ import annotations

SECRETS = ("pass", "auth_token", "jwt", "sig", "nkey", "proxy_sig")
