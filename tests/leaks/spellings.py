"""The ways in which a secret may be written. Independent of ``plumbline.masking``, which this judges."""

from __future__ import annotations

import html
import json
from base64 import b64encode, urlsafe_b64encode
from urllib.parse import quote, quote_plus


def spellings(secret: str) -> dict[bytes, str]:
    """What must be nowhere, and the name of each spelling."""
    escaped = {
        "plain": secret,
        "JSON": json.dumps(secret)[1:-1],
        "JSON in UTF-8": json.dumps(secret, ensure_ascii=False)[1:-1],
        "JSON in JSON": json.dumps(json.dumps(secret))[3:-3],
        "JSON with \\/": json.dumps(secret)[1:-1].replace("/", "\\/"),
        "repr": repr(secret)[1:-1],
        "ascii": ascii(secret)[1:-1],
        "repr of bytes": repr(secret.encode())[2:-1],
        "percent-encoded": quote(secret, safe=""),
        "percent-encoded as a path": quote(secret),
        "percent-encoded as a form": quote_plus(secret),
        "percent-encoded in lower case": _in_lower_case(quote(secret, safe="")),
        "HTML": html.escape(secret),
        "HTML without quotes": html.escape(secret, quote=False),
    }
    found = {text.encode(): name for name, text in reversed(escaped.items())}
    raw = secret.encode()
    for offset in range(3):
        for encode, name in ((b64encode, "base64"), (urlsafe_b64encode, "base64 of URLs")):
            encoded = encode(bytes(offset) + raw)
            first, last = -(-8 * offset // 6), 8 * (offset + len(raw)) // 6  # the same in any neighbourhood
            found.setdefault(encoded[first:last], name)
    found.setdefault(raw.hex().encode(), "hexadecimal")
    found.setdefault(secret.encode("utf-16-le"), "UTF-16")
    return found


def _in_lower_case(encoded: str) -> str:
    """The digits of its percent signs."""
    first, *others = encoded.split("%")
    return "%".join((first, *(other[:2].lower() + other[2:] for other in others)))
