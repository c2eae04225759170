"""Certificates for a server of our own that has TLS, and for its clients: made for one run of it.

Each client certificate that a check may show has a name; ``CERTIFIED`` is that of one that should get in, and
its common name is that of a user.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
from pathlib import Path
from typing import Any

from msgspec import Struct

from plumbline.conformance.outcomes import Unsupported
from plumbline.tls import TlsOptions

SERVER = "server"
CERTIFIED = "certified"  # of a user of this name
STRANGER = "stranger"  # of the same authority, and no user has this name
FOREIGN = "foreign"  # names the user, and is of an authority that the server does not know
EXPIRED = "expired"  # names the user, and is no longer valid
CLIENTS = (CERTIFIED, STRANGER, FOREIGN, EXPIRED)
HOSTS = ("localhost", "127.0.0.1")
NAMED = "client.example"  # Erlang refuses a certificate without an alternative name


class Certificates(Struct, frozen=True):
    """A folder of PEM files: ``NAME.pem`` is a certificate and its key."""

    folder: Path

    @property
    def authority(self) -> Path:
        """The certificate that server and clients trust."""
        return self.folder / "ca.pem"

    def file(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    @property
    def settings(self) -> dict[str, str]:
        """For the server."""
        server = str(self.file(SERVER))
        return {"cacertfile": str(self.authority), "certfile": server, "keyfile": server}

    def options(self, client: str = CERTIFIED) -> TlsOptions:
        """For a client that shows this certificate; empty: none."""
        return TlsOptions(self.authority, self.file(client) if client else None)


def require_certificates() -> None:
    """Raises ``Unsupported`` where none can be made."""
    if importlib.util.find_spec("trustme") is None:
        raise Unsupported("the check makes certificates: pip install 'plumbline-mq[tls]'")


def make_certificates(folder: Path) -> Certificates:
    """In a new folder that is its owner's alone."""
    import trustme  # only who makes certificates needs it

    made = Certificates(folder)
    folder.mkdir(mode=0o700)
    authority, other = trustme.CA(), trustme.CA()
    made.authority.write_bytes(authority.cert_pem.bytes())
    _write(made.file(SERVER), authority.issue_cert(*HOSTS))
    _write(made.file(CERTIFIED), authority.issue_cert(NAMED, common_name=CERTIFIED))
    _write(made.file(STRANGER), authority.issue_cert(NAMED, common_name=STRANGER))
    _write(made.file(FOREIGN), other.issue_cert(NAMED, common_name=CERTIFIED))
    year = datetime.timedelta(days=365)
    now = datetime.datetime.now(datetime.UTC)
    old = authority.issue_cert(NAMED, common_name=CERTIFIED, not_before=now - 2 * year, not_after=now - year)
    _write(made.file(EXPIRED), old)
    return made


def _write(path: Path, leaf: Any) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(leaf.private_key_and_cert_chain_pem.bytes())
