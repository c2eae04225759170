"""The options that say how to get in at a server, besides its URL: for the command line and for pytest.

Declared once, as plain values. pytest reads them wherever Plumbline is installed: nothing is imported here.
"""

from __future__ import annotations

from typing import NamedTuple


class AccessOption(NamedTuple):
    """``name`` as a parameter of ``conformance.targets.access.access_of``."""

    name: str
    metavar: str
    help: str
    is_file: bool = False


TLS_OPTIONS = (
    AccessOption(
        "tls_ca",
        "FILE",
        "Certificate authority of a tls:// or amqps:// server (PEM). Default: those of the system.",
        is_file=True,
    ),
    AccessOption("tls_cert", "FILE", "Certificate to show to the server (PEM), with its key.", is_file=True),
    AccessOption("tls_key", "FILE", "Key of --tls-cert (PEM), if it is in a file of its own.", is_file=True),
    AccessOption(
        "tls_name",
        "NAME",
        "Name of the server in its certificate, and in SNI. Default: the host of the URL.",
    ),
)
ACCESS_OPTIONS = (
    *TLS_OPTIONS,
    AccessOption("nkey", "FILE", "NATS: log in with the NKey whose seed is in FILE.", is_file=True),
    AccessOption("creds", "FILE", "NATS: log in with the JWT and the seed in FILE (.creds).", is_file=True),
    AccessOption(
        "auth_mechanism",
        "NAME",
        "AMQP: PLAIN (the default), AMQPLAIN, or EXTERNAL: the client certificate logs in.",
    ),
    AccessOption(
        "inbox_prefix",
        "PREFIX",
        "NATS: subjects for answers begin with this, where the login may not use _INBOX.",
    ),
    AccessOption("js_domain", "NAME", "NATS: the JetStream domain whose API is used: $JS.NAME.API."),
    AccessOption("js_api_prefix", "PREFIX", "NATS: what is used in place of $JS.API, as for imported APIs."),
)
