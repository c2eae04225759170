"""Statements about a result file that can be signed: in-toto statements in DSSE envelopes.

Sources: in-toto Attestation Framework v1, "Statement" and "Predicate type: Test Result"; DSSE v1.0.2,
"Protocol". ``cryptography`` signs and verifies; without it both say what to install.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec
from msgspec import Struct

from plumbline.errors import PlumblineError, UsageProblem
from plumbline.reports.digest import tone
from plumbline.untrusted import BadInputError, parse_json, read_file
from plumbline.verdicts import Level, Outcome, RunResult

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

STATEMENT = "https://in-toto.io/Statement/v1"
TEST_RESULT = "https://in-toto.io/attestation/test-result/v0.1"
PAYLOAD_TYPE = "application/vnd.in-toto+json"
_INSTALL = "to sign or verify attestations: pip install 'plumbline-mq[nkeys]'"


class AttestationError(PlumblineError, ValueError):
    """It is no attestation of this file; the text says why."""


class _Subject(Struct):
    digest: dict[str, str]
    name: str = ""


class _Statement(Struct, rename={"type_": "_type", "predicate_type": "predicateType"}):
    type_: str
    subject: tuple[_Subject, ...]
    predicate_type: str
    predicate: dict[str, Any] = {}


class _Signature(Struct, omit_defaults=True):
    sig: str
    keyid: str = ""


class _Envelope(Struct, rename={"payload_type": "payloadType"}):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...]


class _SigstoreBundle(Struct, rename={"envelope": "dsseEnvelope", "material": "verificationMaterial"}):
    envelope: _Envelope
    material: dict[str, Any]


class PublicKey(Struct, frozen=True):
    """A key that may have signed. ``name``: of its file."""

    name: str
    key: Any  # Ed25519PublicKey

    @property
    def id(self) -> str:
        return _key_id(self.key)


class Attestation(Struct, frozen=True):
    """An attestation of a result file. ``signed_by``: the name of the key whose signature was verified.

    A sigstore bundle (as GitHub's actions/attest writes it) is not verified here; its statement is compared.
    """

    kind: Literal["DSSE", "sigstore"]
    signed_by: str = ""

    @property
    def text(self) -> str:
        """In words."""
        if self.kind == "sigstore":
            return "attested by a sigstore bundle, which 'gh attestation verify' verifies"
        return (
            f"signed with {self.signed_by}" if self.signed_by else "signed with a key that is not known here"
        )


def statement(name: str, data: bytes, result: RunResult) -> bytes:
    """The in-toto statement about the file ``name`` with the bytes ``data``, which are ``result``."""
    verdicts: dict[str, list[str]] = {"passed": [], "warned": [], "failed": []}
    for one in result.requirements:
        if one.verdict in (Outcome.PASSED, Outcome.STALE_WAIVER):
            verdicts["passed"].append(one.id)
        elif one.verdict == Outcome.FAILED:
            verdicts["failed" if one.level is Level.MUST else "warned"].append(one.id)
        elif one.verdict == Outcome.WAIVED:
            verdicts["warned"].append(one.id)
    reached = "PASSED" if tone(result.summary.exit_code) == "good" else "FAILED"
    made = _Statement(
        STATEMENT,
        (_Subject({"sha256": hashlib.sha256(data).hexdigest()}, name),),
        TEST_RESULT,
        {
            "result": "WARNED" if reached == "PASSED" and verdicts["warned"] else reached,
            "configuration": [
                {
                    "name": f"requirement set {result.suite.requirement_set}",
                    "uri": f"pkg:pypi/plumbline-mq@{result.suite.version}",
                }
            ],
            **{f"{word}Tests": names for word, names in verdicts.items()},
        },
    )
    return msgspec.json.encode(made)


def signed(payload: bytes, key: Ed25519PrivateKey) -> bytes:
    """The DSSE envelope of a statement."""
    signature = key.sign(_signed_bytes(PAYLOAD_TYPE, payload))
    found = _Signature(base64.b64encode(signature).decode(), _key_id(key.public_key()))
    envelope = _Envelope(base64.b64encode(payload).decode(), PAYLOAD_TYPE, (found,))
    return msgspec.json.format(msgspec.json.encode(envelope), indent=2) + b"\n"


def verify(data: bytes, subject: bytes, keys: Iterable[PublicKey]) -> Attestation:
    """Whether ``data`` (an envelope or a sigstore bundle) is about a file with the bytes ``subject``.

    Raises ``AttestationError``: no envelope, another file, a signature of a known key that is wrong.
    """
    envelope, kind = _envelope(data)
    payload = _base64(envelope.payload, "payload")
    found = _read(payload, _Statement, "the payload is no in-toto statement")
    if (envelope.payload_type, found.type_) != (PAYLOAD_TYPE, STATEMENT):
        raise AttestationError(f"the payload is {found.type_!r}, not an in-toto statement of version 1")
    digest = hashlib.sha256(subject).hexdigest()
    if digest not in {one.digest.get("sha256", "").lower() for one in found.subject}:
        raise AttestationError(f"it is about another file: none of its subjects has the sha256 {digest}")
    if kind == "sigstore":
        return Attestation("sigstore")
    if not envelope.signatures:
        raise AttestationError("it has no signature")
    return Attestation("DSSE", _signer(envelope, payload, {one.id: one for one in keys}))


def _signer(envelope: _Envelope, payload: bytes, keys: dict[str, PublicKey]) -> str:
    signed_bytes = _signed_bytes(envelope.payload_type, payload)
    for one in envelope.signatures:
        known = keys.get(one.keyid)
        if known is not None:
            _verify_signature(known, _base64(one.sig, "signature"), signed_bytes)
            return known.name
    return ""


def _verify_signature(key: PublicKey, signature: bytes, signed_bytes: bytes) -> None:
    from cryptography.exceptions import InvalidSignature

    try:
        key.key.verify(signature, signed_bytes)
    except InvalidSignature:
        raise AttestationError(f"the signature is not that of {key.name}") from None


def read_private_key(path: Path) -> Ed25519PrivateKey:
    """A PEM file of ``openssl genpkey -algorithm ed25519``. Raises ``UsageProblem`` and ``OSError``."""
    data = read_file(path)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ImportError:
        raise UsageProblem(_INSTALL) from None
    try:
        key = load_pem_private_key(data, None)
    except (ValueError, TypeError, UnsupportedAlgorithm):
        key = None  # no key at all
    if not isinstance(key, Ed25519PrivateKey):
        raise UsageProblem(f"{path}: expected an Ed25519 key: openssl genpkey -algorithm ed25519 -out {path}")
    return key


def read_public_key(path: Path) -> PublicKey:
    """A PEM file, as ``openssl pkey -pubout`` writes it. Raises ``UsageProblem``, ``OSError``."""
    data = read_file(path)
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_pem_public_key
    except ImportError:
        raise UsageProblem(_INSTALL) from None
    try:
        key = load_pem_public_key(data)
    except (ValueError, UnsupportedAlgorithm):
        key = None  # no key at all
    if not isinstance(key, Ed25519PublicKey):
        raise UsageProblem(
            f"{path}: expected an Ed25519 public key: openssl pkey -in KEY.pem -pubout -out {path}"
        )
    return PublicKey(path.name, key)


def _signed_bytes(payload_type: str, payload: bytes) -> bytes:
    """What is signed (DSSE, "PAE")."""
    kind = payload_type.encode()
    return b" ".join((b"DSSEv1", b"%d" % len(kind), kind, b"%d" % len(payload), payload))


def _key_id(key: Ed25519PublicKey) -> str:
    """The SHA-256 of the key itself, in hexadecimal digits."""
    return hashlib.sha256(key.public_bytes_raw()).hexdigest()


def _envelope(data: bytes) -> tuple[_Envelope, Literal["DSSE", "sigstore"]]:
    try:
        return parse_json(data, _Envelope), "DSSE"
    except BadInputError:
        found = _read(data, _SigstoreBundle, "neither a DSSE envelope nor a sigstore bundle")
        return found.envelope, "sigstore"


def _read(data: bytes, shape: type[Any], otherwise: str) -> Any:
    try:
        return parse_json(data, shape)
    except BadInputError as error:
        raise AttestationError(f"{otherwise}: {error}") from error


def _base64(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise AttestationError(f"the {what} is not base64: {error}") from error
