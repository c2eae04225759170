"""Ed25519 signatures in plain integers, for published test keys alone: a check needs no package for them.

Takes milliseconds, and its time tells of the key. Source: RFC 8032, sections 5.1.5 and 5.1.6.
"""

from __future__ import annotations

from hashlib import sha512

P = 2**255 - 19
ORDER = 2**252 + 27742317777372353535851937790883648493  # of the base point
D = -121665 * pow(121666, -1, P) % P

Point = tuple[int, int]

BASE: Point = (
    15112221349535400772501151409588531511454012693041857206046113283949847762202,
    46316835694926478169428394003475163141307993866256225615783033603165251855960,
)


def sign(secret: bytes, message: bytes) -> bytes:
    """The 64 bytes of a signature with a secret key of 32 bytes."""
    digest = sha512(secret).digest()
    scalar = int.from_bytes(digest[:32], "little") & ((1 << 254) - 8) | (1 << 254)
    public = _encoded(_multiple(scalar, BASE))
    nonce = int.from_bytes(sha512(digest[32:] + message).digest(), "little") % ORDER
    commitment = _encoded(_multiple(nonce, BASE))
    challenge = int.from_bytes(sha512(commitment + public + message).digest(), "little") % ORDER
    return commitment + ((nonce + challenge * scalar) % ORDER).to_bytes(32, "little")


def _multiple(factor: int, point: Point) -> Point:
    result: Point = (0, 1)
    while factor:
        if factor & 1:
            result = _sum(result, point)
        point = _sum(point, point)
        factor >>= 1
    return result


def _sum(p: Point, q: Point) -> Point:
    product = D * p[0] * q[0] * p[1] * q[1] % P
    x = (p[0] * q[1] + q[0] * p[1]) * pow(1 + product, -1, P)
    y = (p[1] * q[1] + p[0] * q[0]) * pow(1 - product, -1, P)
    return x % P, y % P


def _encoded(point: Point) -> bytes:
    return (point[1] | (point[0] & 1) << 255).to_bytes(32, "little")
