"""Logins with an NKey: the seed alone, or with a JWT, as in a ``.creds`` file. The nonce of INFO is signed.

Seeds and public keys are base32 of a prefix, 32 bytes and a CRC-16; signatures are base64url without padding.
Sources: docs.nats.io, "NKey Authentication", "JWT Authentication"; github.com/nats-io/nkeys. ``cryptography``
makes the signatures (Ed25519, RFC 8032).
"""

from __future__ import annotations

import binascii
import re
from base64 import b32decode, b32encode, urlsafe_b64encode
from pathlib import Path

from msgspec import Struct

from plumbline.errors import UsageProblem
from plumbline.masking import Mask
from plumbline.untrusted import read_file

MAX_FILE_BYTES = 64 * 1024  # a larger file is no login: the wrong one was named

_SEED = 18 << 3
_USER = 20 << 3
_SECTION = re.compile(r"-{3,}[^\n]*-{3,}\s*\n\s*([^\s-][^\s]*)\s*\n\s*-{3,}[^\n]*-{3,}")
_SEED_LINE = re.compile(r"^\s*(SU[A-Z2-7]{56})\s*$", re.MULTILINE)


class NatsLogin(Struct, frozen=True):
    """``seed``: 32 bytes, secret. ``option``: what named it on the command line, for the same again."""

    seed: bytes
    text: str  # the seed as it is in the file
    jwt: str = ""
    option: str = ""

    @classmethod
    def of_nkey_file(cls, path: Path) -> NatsLogin:
        """``--nkey FILE``: a file with the seed. Raises ``UsageProblem``."""
        option = f"--nkey {path}"
        found = _SEED_LINE.search(_read(path, option))
        if found is None:
            raise UsageProblem(f"{option}: the file has no line with the seed of a user (SU...)")
        return cls(_seed(found[1], option), found[1], option=f"--nkey={path}")

    @classmethod
    def of_creds_file(cls, path: Path) -> NatsLogin:
        """``--creds FILE``: a user JWT and its seed. Raises ``UsageProblem``."""
        option = f"--creds {path}"
        sections = _SECTION.findall(_read(path, option))
        if len(sections) < 2:
            raise UsageProblem(
                f"{option}: expected a user JWT and its seed, as 'nsc generate creds' writes them"
            )
        jwt, seed = sections[:2]
        return cls(_seed(seed, option), seed, jwt, f"--creds={path}")

    @property
    def mask(self) -> Mask:
        """Masks the seed, and the signature of the JWT, without which it is none."""
        return Mask.of(self.text) | Mask.of(self.jwt.rpartition(".")[2])

    def fields(self, nonce: str) -> dict[str, str]:
        """The fields of CONNECT that answer ``nonce``. Raises ``UsageProblem`` without ``cryptography``."""
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

        key = Ed25519PrivateKey.from_private_bytes(self.seed)
        signature = urlsafe_b64encode(key.sign(nonce.encode())).rstrip(b"=").decode()
        if self.jwt:
            return {"jwt": self.jwt, "sig": signature}
        public = key.public_key().public_bytes_raw()
        return {"nkey": _encoded(bytes([_USER]) + public), "sig": signature}

    def require_signatures(self) -> None:
        """Raises ``UsageProblem`` without ``cryptography``."""
        try:
            self.fields("")
        except ImportError:
            raise UsageProblem("to sign with an NKey: pip install 'plumbline-mq[nkeys]'") from None


def _read(path: Path, option: str) -> str:
    try:
        return read_file(path, MAX_FILE_BYTES).decode()
    except OSError as error:
        raise UsageProblem(f"{option}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageProblem(f"{option}: the file is not UTF-8 text") from None


def _seed(text: str, option: str) -> bytes:
    """The 32 bytes of a user's seed. Raises ``UsageProblem``; no message shows any of it."""
    try:
        raw = b32decode(text + "=" * (-len(text) % 8))
    except binascii.Error:
        raw = b""
    body, checksum = raw[:-2], raw[-2:]
    if len(body) != 34 or binascii.crc_hqx(body, 0).to_bytes(2, "little") != checksum:
        raise UsageProblem(f"{option}: the seed is not valid (its length or its checksum is wrong)")
    kind = (body[0] & 0b111) << 5 | body[1] >> 3
    if body[0] & 0b11111000 != _SEED or kind != _USER:
        raise UsageProblem(f"{option}: the seed is not one of a user (SU...)")
    return body[2:]


def _encoded(body: bytes) -> str:
    checksum = binascii.crc_hqx(body, 0).to_bytes(2, "little")
    return b32encode(body + checksum).rstrip(b"=").decode()
