"""A certificate authority for tests, and certificates of it: of a server, of another name, of a client."""

from __future__ import annotations

from pathlib import Path

import trustme

CLIENT = "plumb"  # the common name of the client


class Certificates:
    """PEM files in ``folder``: ``ca``, ``stranger`` (an authority that no server knows), and with a key each
    ``server`` (127.0.0.1, localhost), ``other`` (mq.example) and ``client``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.pem("ca")))
        trustme.CA().cert_pem.write_to_path(str(self.pem("stranger")))
        for name, leaf in {
            "server": authority.issue_cert("127.0.0.1", "localhost"),
            "other": authority.issue_cert("mq.example"),
            "client": authority.issue_cert("plumb@example.com", common_name=CLIENT),
        }.items():
            leaf.cert_chain_pems[0].write_to_path(str(self.pem(name)))
            leaf.private_key_pem.write_to_path(str(self.key(name)))

    def pem(self, name: str) -> Path:
        return self.folder / f"{name}.pem"

    def key(self, name: str) -> Path:
        return self.folder / f"{name}.key"
