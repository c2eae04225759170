"""The user that a client certificate names, for the mechanism EXTERNAL. Pure.

Source: RabbitMQ, "Access Control" (x509 certificate authentication, ``ssl_cert_login_from``); RFC 4514.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from plumbline.reference_broker.amqp.config import LOGINS

DISTINGUISHED_NAME, COMMON_NAME = LOGINS
SHORT = {
    "commonName": "CN", "surname": "SN", "givenName": "GIVENNAME", "initials": "INITIALS",
    "localityName": "L", "stateOrProvinceName": "ST", "organizationName": "O",
    "organizationalUnitName": "OU", "title": "TITLE", "countryName": "C", "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM", "domainComponent": "DC", "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET", "userId": "UID",
}  # fmt: skip
_ESCAPED = str.maketrans({one: f"\\{one}" for one in ',+"\\<>;'})


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
