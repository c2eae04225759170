"""JWTs of operators, accounts and users: claims that an NKey has signed. Pure.

Source: docs.nats.io, "In Depth JWT Guide"; nats-io/jwt, versions 1 and 2 of the claims.
"""

from __future__ import annotations

import base64
import binascii
from typing import Any

import msgspec
from msgspec import Struct, field

from plumbline.bounds import JWT_BYTES
from plumbline.errors import UNDECODABLE
from plumbline.reference_broker.nats.nkeys import decode_signature, public_key, verify

_SIGNED_WHOLE = "ed25519-nkey"  # version 2: the signature is of head and claims
_SIGNED_CLAIMS = "ed25519"  # version 1: of the claims alone


class Claims(
    Struct,
    frozen=True,
    rename={"issuer": "iss", "subject": "sub", "expires": "exp", "not_before": "nbf", "issued": "iat"},
):
    """What a JWT says. Times are seconds since 1970; 0 is never. ``nats`` depends on what it is of."""

    issuer: str
    subject: str
    name: str = ""
    issued: int = 0
    not_before: int = 0
    expires: int = 0
    type: str = ""
    nats: dict[str, Any] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        """``operator``, ``account``, ``user`` or ``activation``. Version 1 says it outside of ``nats``."""
        return str(self.nats.get("type", self.type))

    def holds(self, now_s: float) -> bool:
        """Whether it is valid at that time."""
        return self.not_before <= now_s and (not self.expires or now_s < self.expires)


class _Head(Struct):
    alg: str


def read_jwt(token: str, kind: str) -> Claims:
    """The claims of a ``kind``, whose signature is of the issuer they name. Raises ``ValueError``."""
    parts = token.split(".")
    if len(parts) != 3 or len(token) > JWT_BYTES:
        raise ValueError("expected 3 chunks")
    try:
        head = msgspec.json.decode(_bytes_of(parts[0]), type=_Head)
        claims = msgspec.json.decode(_bytes_of(parts[1]), type=Claims)
    except UNDECODABLE as error:
        raise ValueError(f"not a JWT: {error}") from None
    signed = {_SIGNED_WHOLE: f"{parts[0]}.{parts[1]}", _SIGNED_CLAIMS: parts[1]}.get(head.alg)
    if signed is None:
        raise ValueError("unexpected algorithm")
    if claims.kind != kind:
        raise ValueError(f"it is of kind {claims.kind[:20]!r}, not {kind!r}")
    issuer = public_key(claims.issuer, "O" if kind in ("operator", "account") else "A")
    if not verify(issuer, signed.encode(), decode_signature(parts[2])):
        raise ValueError("the signature is not of its issuer")
    return claims


def _bytes_of(part: str) -> bytes:
    """Raises ``ValueError``."""
    try:
        return base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))
    except binascii.Error as error:
        raise ValueError(str(error)) from None
