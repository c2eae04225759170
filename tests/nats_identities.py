"""NKeys and JWTs for tests: an operator, an account with JetStream, and users. Signed with ``cryptography``.

Source: docs.nats.io, "In Depth JWT Guide"; nats-io/jwt, version 2 of the claims.
"""

from __future__ import annotations

import binascii
import hashlib
import json
from base64 import b32encode, urlsafe_b64encode
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

SEED, OPERATOR, ACCOUNT, USER = 18 << 3, 14 << 3, 0, 20 << 3  # prefixes: S, O, A, U


class NKey:
    """A key pair of this kind, always the same for the same ``name``."""

    def __init__(self, kind: int, name: str) -> None:
        secret = hashlib.sha256(name.encode()).digest()
        self._key = Ed25519PrivateKey.from_private_bytes(secret)
        self.seed = _text(bytes([SEED | kind >> 5, (kind & 31) << 3]) + secret)
        self.public = _text(bytes([kind]) + self._key.public_key().public_bytes_raw())

    def sign(self, data: bytes) -> bytes:
        return self._key.sign(data)

    def jwt(self, subject: str, name: str, claims: dict[str, Any], **times: int) -> str:
        """Signed by this key. ``times``: ``exp`` and ``nbf``."""
        body = {"iat": 1700000000, "iss": self.public, "name": name, "sub": subject, "nats": claims, **times}
        body["jti"] = b32encode(hashlib.sha256(json.dumps(body).encode()).digest()).rstrip(b"=").decode()
        parts = ".".join(_base64(json.dumps(one).encode()) for one in (HEADER, body))
        return f"{parts}.{_base64(self._key.sign(parts.encode()))}"


HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
ANY = {"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": True, "conn": -1}
JETSTREAM = {"mem_storage": -1, "disk_storage": -1, "streams": -1, "consumer": -1}


def write_nkey(path: Path) -> str:
    """The seed of a user; the public key."""
    user = NKey(USER, "alone")
    path.write_text(f"{user.seed}\n")
    return user.public


def write_creds(path: Path, *, denied: str = "") -> dict[str, Any]:
    """A user's .creds file; the configuration of a server that knows the operator and two accounts.

    ``denied``: subjects that the user may not subscribe to.
    """
    operator, account, system = NKey(OPERATOR, "operator"), NKey(ACCOUNT, "account"), NKey(ACCOUNT, "system")
    user = NKey(USER, "user")
    kind = {"type": "account", "version": 2}
    accounts = {
        account.public: operator.jwt(account.public, "STREAMS", {"limits": ANY | JETSTREAM, **kind}),
        system.public: operator.jwt(system.public, "SYS", {"limits": ANY, **kind}),
    }
    of_operator = {"type": "operator", "version": 2, "system_account": system.public}
    of_user: dict[str, Any] = {"subs": -1, "data": -1, "payload": -1, "type": "user", "version": 2}
    if denied:
        of_user["sub"] = {"deny": [denied]}
    path.write_text(
        f"-----BEGIN NATS USER JWT-----\n{account.jwt(user.public, 'suite', of_user)}\n"
        "------END NATS USER JWT------\n\n"
        f"-----BEGIN USER NKEY SEED-----\n{user.seed}\n------END USER NKEY SEED------\n"
    )
    return {
        "operator": operator.jwt(operator.public, "zoo", of_operator),
        "resolver": "MEMORY",
        "resolver_preload": accounts,
        "system_account": system.public,
    }


def _text(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return b32encode(body + checksum).rstrip(b"=").decode()


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
