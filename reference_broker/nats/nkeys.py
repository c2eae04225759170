"""NKeys: the public key in a name such as ``U...``, and whether a signature is of that key.

Ed25519 verification in plain integers: slow (milliseconds) and not hardened, which is enough to let
test clients in. Sources: RFC 8032, section 5.1; docs.nats.io, "NKeys" for the spelling of keys.
"""

from __future__ import annotations

import base64
import binascii
from hashlib import sha512

# What a key is of: the first letter of its name, and the byte that makes it so.
PREFIXES = {"U": 20 << 3, "A": 0, "O": 14 << 3}
KINDS = {"U": "user", "A": "account", "O": "operator"}

P = 2**255 - 19
L = 2**252 + 27742317777372353535851937790883648493  # the order of the base point
D = -121665 * pow(121666, -1, P) % P
ROOT_OF_MINUS_ONE = pow(2, (P - 1) // 4, P)

Point = tuple[int, int, int, int]  # extended coordinates: x/z, y/z, z, xy/z


def public_key(nkey: str, letter: str = "U") -> bytes:
    """The 32 bytes of a public key whose name begins with ``letter``. Raises ``ValueError``."""
    kind = KINDS[letter]
    try:
        data = base64.b32decode(nkey + "=" * (-len(nkey) % 8))
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"{nkey!r} is not a public {kind} key ({error})") from None
    is_right = len(data) == 35 and data[0] == PREFIXES[letter]
    if not is_right or _crc16(data[:-2]) != int.from_bytes(data[-2:], "little"):
        raise ValueError(
            f"{nkey!r} is not a public {kind} key: it starts with {letter} and has 56 characters"
        )
    return data[1:33]


def decode_signature(text: str) -> bytes:
    """``sig`` of CONNECT, in either alphabet of base64; nothing if it is neither."""
    try:
        return base64.b64decode(
            text.translate(str.maketrans("-_", "+/")) + "=" * (-len(text) % 4), validate=True
        )
    except (binascii.Error, ValueError):
        return b""


def verify(key: bytes, message: bytes, signature: bytes) -> bool:
    """RFC 8032, section 5.1.7."""
    if len(signature) != 64:
        return False
    owner, commitment = _decompress(key), _decompress(signature[:32])
    factor = int.from_bytes(signature[32:], "little")
    if owner is None or commitment is None or factor >= L:
        return False
    challenge = int.from_bytes(sha512(signature[:32] + key + message).digest(), "little") % L
    return _equal(_multiply(factor, BASE), _add(commitment, _multiply(challenge, owner)))


def _decompress(data: bytes) -> Point | None:
    """RFC 8032, section 5.1.3."""
    number = int.from_bytes(data, "little")
    y, sign = number & ((1 << 255) - 1), number >> 255
    if y >= P:
        return None
    square = (y * y - 1) * pow(D * y * y + 1, -1, P) % P
    x = pow(square, (P + 3) // 8, P)
    if x * x % P != square:
        x = x * ROOT_OF_MINUS_ONE % P
    if x * x % P != square or (x == 0 and sign):
        return None
    if x & 1 != sign:
        x = P - x
    return x, y, 1, x * y % P


def _add(p: Point, q: Point) -> Point:
    """RFC 8032, section 5.1.4."""
    a = (p[1] - p[0]) * (q[1] - q[0]) % P
    b = (p[1] + p[0]) * (q[1] + q[0]) % P
    c = 2 * p[3] * q[3] * D % P
    d = 2 * p[2] * q[2] % P
    e, f, g, h = b - a, d - c, d + c, b + a
    return e * f % P, g * h % P, f * g % P, e * h % P


def _multiply(factor: int, point: Point) -> Point:
    result: Point = (0, 1, 1, 0)
    while factor:
        if factor & 1:
            result = _add(result, point)
        point = _add(point, point)
        factor >>= 1
    return result


def _equal(p: Point, q: Point) -> bool:
    return (p[0] * q[2] - q[0] * p[2]) % P == 0 and (p[1] * q[2] - q[1] * p[2]) % P == 0


def _crc16(data: bytes) -> int:
    """CRC-16/XMODEM, as keys carry it."""
    return binascii.crc_hqx(data, 0)


_BASE_Y = 4 * pow(5, -1, P) % P
BASE = _decompress(_BASE_Y.to_bytes(32, "little")) or (0, 1, 1, 0)
