"""Certificates that the proxy generates, signed by an authority that it creates once in a private folder.

The folder may also be that of mitmproxy: then its authority is used. Whoever trusts the authority trusts
whoever can read its key: the folder is its owner's alone.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import re
import socket
import ssl
import threading
from collections.abc import Iterable
from enum import StrEnum
from pathlib import Path

from plumbline.tls import TlsError

AUTHORITY_FILE = "authority.pem"  # certificate and key
TRUSTED = "ca.pem"  # the certificate alone, for clients
OF_MITMPROXY = "mitmproxy-ca.pem"  # certificate and key
OTHER_NAME = "other.invalid"
LOCAL_NAMES = ("localhost", "127.0.0.1", "::1")
_BLOCK = re.compile(rb"-----BEGIN ([A-Z ]+)-----.+?-----END \1-----\n?", re.DOTALL)


def default_folder() -> Path:
    """Where the authority is kept by default: in the user's own folder."""
    base = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(base) / "plumbline" / "tls"


class Flaw(StrEnum):
    """Why a client has to refuse a certificate."""

    FOREIGN = "foreign"  # another authority issued it
    OTHER_NAME = "other name"  # it was issued for another server
    EXPIRED = "expired"


def generated(folder: Path, names: Iterable[str], flaw: Flaw | None = None) -> tuple[ssl.SSLContext, Path]:
    """What to show to clients that call the proxy by one of these names, and the file that they trust.

    Raises ``TlsError``.
    """
    try:
        import trustme  # only who makes certificates needs it
    except ImportError:
        raise TlsError("to make certificates: pip install 'plumbline-mq[tls]'") from None
    try:
        trusted, pem, key = _authority(folder)
        authority = trustme.CA() if flaw is Flaw.FOREIGN else trustme.CA.from_pem(pem, key)
        ours = dict.fromkeys([*LOCAL_NAMES, socket.gethostname(), *filter(None, names)])
        now = datetime.datetime.now(datetime.UTC)
        until = now - datetime.timedelta(days=1) if flaw is Flaw.EXPIRED else None
        leaf = authority.issue_cert(*([OTHER_NAME] if flaw is Flaw.OTHER_NAME else ours), not_after=until)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        leaf.configure_cert(context)
    except (OSError, ValueError, ssl.SSLError) as error:
        raise TlsError(f"{folder}: no certificate authority: {error}") from None
    return context, trusted


def _authority(folder: Path) -> tuple[Path, bytes, bytes]:
    """The file to trust, its certificate and its key; made if there is none yet."""
    if (folder / OF_MITMPROXY).exists():
        return folder / "mitmproxy-ca-cert.pem", *_blocks(folder / OF_MITMPROXY)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / AUTHORITY_FILE).exists():
        _make(folder)
    certificate, key = _blocks(folder / AUTHORITY_FILE)
    trusted = folder / TRUSTED
    if not trusted.exists() or trusted.read_bytes() != certificate:
        trusted.write_bytes(certificate)
    return trusted, certificate, key


def _blocks(file: Path) -> tuple[bytes, bytes]:
    """The certificate and the key in it."""
    found = {block[1].split()[-1]: block[0] for block in _BLOCK.finditer(file.read_bytes())}
    if found.keys() < {b"CERTIFICATE", b"KEY"}:
        raise ValueError(f"{file.name} does not contain a certificate and its key")
    return found[b"CERTIFICATE"], found[b"KEY"]


def _make(folder: Path) -> None:
    """In one step, so that of two who make it at once both use the same."""
    import trustme

    made = trustme.CA(organization_name="Plumbline", organization_unit_name="recording proxy")
    whole = folder / f"{AUTHORITY_FILE}.{os.getpid()}.{threading.get_ident()}"
    with os.fdopen(os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(made.cert_pem.bytes() + made.private_key_pem.bytes())
    try:
        with contextlib.suppress(FileExistsError):
            os.link(whole, folder / AUTHORITY_FILE)
    finally:
        whole.unlink()
