"""On what terms clients of a port with TLS get in, and whom a client certificate names. Pure.

Source: RabbitMQ, "Access Control" (x509 certificate authentication, ``ssl_cert_login_from``); RFC 4514.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.reference_broker.amqp.config import LOGINS, TlsSettings

DISTINGUISHED_NAME, COMMON_NAME = LOGINS
SHORT = {
    "commonName": "CN", "surname": "SN", "givenName": "GIVENNAME", "initials": "INITIALS",
    "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "title": "TITLE", "countryName": "C", "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM", "domainComponent": "DC", "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
_ESCAPED = str.maketrans({one: f"\\{one}" for one in ',+"\\<>;'})


class TlsTerms:
    """Of one port. The handshake itself is for the shell."""

    def __init__(self, settings: TlsSettings) -> None:
        self.settings = settings

    def is_encrypted(self, first: bytes) -> bool:
        """Whether a connection that begins with these bytes is one with TLS: each is."""
        return True

    def user_of(self, certificate: Mapping[str, Any]) -> str | None:
        """Who logs in with EXTERNAL."""
        return user_of(certificate, self.settings.login_from)


def user_of(certificate: Mapping[str, Any], login_from: str) -> str | None:
    """From what ``ssl.SSLObject.getpeercert`` gives; None without a certificate or such a name."""
    parts: list[list[tuple[str, str]]] = [list(part) for part in certificate.get("subject", ())]
    if login_from == COMMON_NAME:
        names = [value for part in parts for name, value in part if name == "commonName"]
        return ",".join(names) or None
    shown = ["+".join(f"{SHORT.get(name, name)}={_escaped(value)}" for name, value in part) for part in parts]
    return ",".join(reversed(shown)) or None


def _escaped(value: str) -> str:
    text = value.translate(_ESCAPED)
    return f"\\{text}" if text.startswith(("#", " ")) else text
