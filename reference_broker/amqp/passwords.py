"""Passwords as salted hashes, in the form that definitions of RabbitMQ have.

Source: RabbitMQ, "Passwords".
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac

from msgspec import Struct

SHA256 = "rabbit_password_hashing_sha256"
ALGORITHMS = {
    SHA256: "sha256",
    "rabbit_password_hashing_sha512": "sha512",
    "rabbit_password_hashing_md5": "md5",
}
SALT_BYTES = 4


class PasswordHash(Struct, frozen=True):
    """``text`` is base64 of the salt and the digest of salt and password."""

    text: str
    algorithm: str = SHA256

    @classmethod
    def of(cls, password: str, salt: bytes) -> PasswordHash:
        digest = hashlib.sha256(salt + _encoded(password)).digest()
        return cls(base64.b64encode(salt + digest).decode())

    def matches(self, password: str) -> bool:
        """False for a text or an algorithm that is none."""
        try:
            stored = base64.b64decode(self.text, validate=True)
            name = ALGORITHMS[self.algorithm]
        except (binascii.Error, ValueError, KeyError):
            return False
        salt, digest = stored[:SALT_BYTES], stored[SALT_BYTES:]
        found = hashlib.new(name, salt + _encoded(password), usedforsecurity=False).digest()
        return hmac.compare_digest(digest, found)


def _encoded(password: str) -> bytes:
    return password.encode("utf-8", "surrogateescape")
