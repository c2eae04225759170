"""Ed25519 verification, by the vectors of RFC 8032, section 7.1."""

from __future__ import annotations

import base64

import pytest

from plumbline.reference_broker.nats.nkeys import decode_signature, public_key, verify

VECTORS = [
    (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555"
        "fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da0"
        "85ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac1"
        "8ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]


@pytest.mark.parametrize(("key", "message", "signature"), VECTORS)
def test_the_signature_of_each_vector_is_right_and_any_other_wrong(
    key: str, message: str, signature: str
) -> None:
    owner, signed, right = (bytes.fromhex(text) for text in (key, message, signature))
    assert verify(owner, signed, right)
    assert not verify(owner, signed + b"x", right)
    for place in (0, 31, 32, 63):
        wrong = bytearray(right)
        wrong[place] ^= 1
        assert not verify(owner, signed, bytes(wrong))
    assert not verify(owner, signed, right[:-1])


def test_a_name_holds_the_key() -> None:
    name = "UDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"
    assert public_key(name).hex() == VECTORS[0][0]


@pytest.mark.parametrize(
    "name", ["", "U", "not base32!", "U" * 56, "SDLVVGABQKYQVN6VJP7NHSLEA45A5YLS6PNKMIZFV4BBU2HXA5IRUVAL"]
)
def test_invalid_user_key_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="is not a public user key"):
        public_key(name)


def test_signatures_come_in_either_alphabet() -> None:
    right = bytes.fromhex(VECTORS[0][2])
    assert decode_signature(base64.b64encode(right).decode()) == right
    assert decode_signature(base64.urlsafe_b64encode(right).decode().rstrip("=")) == right
    assert decode_signature("no, not at all") == b""
