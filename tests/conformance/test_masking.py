"""Secrets are masked by value at equal length, in every spelling; weak ones only where one is expected."""

from __future__ import annotations

import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from plumbline.conformance.sessions.journal import MAX_RAW_BYTES, Journal
from plumbline.masking import MIN_CHARACTERS, Mask, mask_of_arguments, masked_url
from plumbline.wire.escapes import escaped, escaped_bytes
from plumbline.wire.nats import Connect, Decoder, Sender, printable

SECRET = 's3c"r3t/P\\W +é🙂'
SPELLINGS: list[Callable[[str], str]] = [
    str,
    json.dumps,
    lambda text: json.dumps(text, ensure_ascii=False),
    lambda text: json.dumps(text).replace("/", "\\/"),
    lambda text: json.dumps(json.dumps(text)),
    lambda text: re.sub("(....)", r"\\u\1", text.encode("utf-16-be").hex().upper()),
    repr,
    ascii,
    lambda text: repr(text.encode()),
    lambda text: repr(json.dumps(text).encode()),
    lambda text: quote(text, safe=""),
    quote,
    quote_plus,
    lambda text: re.sub("%..", lambda found: found[0].lower(), quote(text, safe="")),
    lambda text: quote(quote(text, safe=""), safe=""),
    escaped,
    lambda text: escaped_bytes(text.encode() + b"\xff"),
    lambda text: printable(text.encode()),
]


def all_masked(masked: str) -> bool:
    """Whether between the marks only asterisks, and quotes of the spelling, are left."""
    inner = masked.partition("[")[2].rpartition("]")[0]
    return not set(inner) - set("*\"'\\bxf")


@pytest.mark.parametrize("spelled", SPELLINGS)
@pytest.mark.parametrize("secret", [SECRET, "s3cr3tPW", "a b\tc\nd\x00e"])
def test_every_spelling_is_masked_at_equal_length(spelled: Callable[[str], str], secret: str) -> None:
    text = f"before [{spelled(secret)}] after"
    mask = Mask.of(secret)
    masked = mask.text(text)
    assert len(masked) == len(text)
    assert all_masked(masked), masked
    raw = mask.raw(text.encode())
    assert len(raw) == len(text.encode())
    assert all_masked(raw.decode()), raw


@given(st.text(st.characters(codec="utf-8"), min_size=MIN_CHARACTERS, max_size=12), st.binary(max_size=8))
@example("s3cr3tPW", b"\0alice\0")
@example("******", b"")
def test_any_secret_is_masked_plain_in_json_and_in_base64(secret: str, before: bytes) -> None:
    mask = Mask.of(secret)
    assert set(mask.text(secret)) == {"*"}
    for quoted in (json.dumps(secret), json.dumps(secret, ensure_ascii=False)):
        masked = mask.text(quoted)
        assert json.loads(masked) == "*" * (len(quoted) - 2)
    for encode in (b64encode, urlsafe_b64encode):
        encoded = encode(before + secret.encode() + b"tail").decode()
        masked = mask.text(encoded)
        assert len(masked) == len(encoded)
        size = len(secret.encode())
        known = encode(before + b"*" * size + b"tail").decode()
        shown = sum(char != "*" for char in masked)
        assert shown <= len(known) - (8 * size // 6 - 2)  # at most a few bits of its first and last byte


def test_the_length_of_what_is_around_a_secret_still_holds() -> None:
    connect = Connect.make({"user": "alice", "pass": SECRET, "verbose": False}).raw
    (shown,) = Decoder(Sender.CLIENT).feed(Mask.of(SECRET, user="alice").raw(connect))
    assert isinstance(shown, Connect)
    assert shown.fields == {"user": "alice", "pass": shown.fields["pass"], "verbose": False}
    assert set(shown.fields["pass"]) == {"*"}
    assert len(shown.raw) == len(connect)


@pytest.mark.parametrize("secret", ["guest", "x", "abc"])
def test_a_short_secret_is_masked_where_a_secret_is_expected(secret: str) -> None:
    mask = Mask.of(secret, user="alice")
    stars = "*" * len(secret)
    for pattern in (
        '{{"user":"alice","pass":"{}"}}',
        '{{"auth_token" : "{}"}}',
        '{{\\"pass\\":\\"{}\\"}}',
        "nats://alice:{}@host:4222",
        "\0alice\0{}",
        "\\x00alice\\x00{}",
        "LOGINS\0\0\0\5alicePASSWORDS\0\0\0\5{}",
    ):
        assert mask.text(pattern.format(secret)) == pattern.format(stars)
        assert mask.raw(pattern.format(secret).encode()) == pattern.format(stars).encode()
    encoded = b64encode(f"\0alice\0{secret}".encode()).decode()
    assert mask.text(f"AUTH {encoded}") == f"AUTH {'*' * len(encoded)}"


@pytest.mark.parametrize(
    ("secret", "user", "shown"),
    [("x", "alice", ""), ("guest", "guest", ""), ("limited", "limited", ""), ("localhost", "a", "nats://a@localhost:4222")],
)  # fmt: skip
def test_a_short_secret_and_one_that_is_shown_leave_other_text_alone(
    secret: str, user: str, shown: str
) -> None:
    text = f"PUB {secret}.{secret} 5 the {secret} at nats://{user}@{secret}:4222"
    assert Mask.of(secret, user=user, shown=shown).text(text) == text


def test_nothing_is_masked_without_a_secret() -> None:
    for secret in (None, ""):
        assert Mask.of(secret).text('x * \'\' "pass":""') == 'x * \'\' "pass":""'


def test_masks_add_up() -> None:
    both = Mask.of("s3cr3t-1") | Mask.of("s3cr3t-2") | Mask()
    assert both.text("s3cr3t-1 s3cr3t-2 s3cr3t-3") == "******** ******** s3cr3t-3"


@pytest.mark.parametrize("missing", range(9))
def test_a_journal_masks_a_secret_that_its_limit_cuts(missing: int) -> None:
    journal = Journal(Mask.of("s3cr3tPW"))
    raw = b"x" * (MAX_RAW_BYTES - 8 + missing) + b"s3cr3tPW" + b"y" * 100
    journal.add(0, "client", "<", "s3cr3tPW", raw)
    journal.mark_offending("client", raw)
    (line,) = journal.lines
    assert line.text == "********"
    assert set(line.raw) == set(b"x*") if missing < 8 else set(b"x")
    assert len(line.raw) == MAX_RAW_BYTES
    assert line.offending


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("nats://alice:s3cr3t@h:1", "nats://***@h:1"),
        ("nats://alice:s3c/r3t@h:1", "nats://***@h:1"),
        ("nats://alice:s3c//r3t#?@h:1", "nats://***@h:1"),
        ("nats:/alice:s3cr3t@h:1", "***@h:1"),
        ("alice:s3c//r3t@h:1", "***@h:1"),
        ("nats://alice:s3c@r3t@h:1", "nats://***@h:1"),
        ("nats://alice:s3cr3t", "nats://alice:***"),
        ("alice:s3c:r3t", "alice:***"),
        ("nats://h:4222", "nats://h:4222"),
        ("amqp://h:5672/a", "amqp://h:5672/a"),
        ("nats://[::1]:4222", "nats://[::1]:4222"),
        ("nats://[::1]", "nats://[::1]"),
        ("h", "h"),
    ],
)
def test_what_should_be_a_url_is_shown_without_what_may_be_a_password(url: str, shown: str) -> None:
    assert masked_url(url) == shown


@pytest.mark.parametrize(
    "argument",
    [
        "nats://alice:s3c%2fr3t@h:1",
        "nats://alice:s3c/r3t@h:1",
        "nats:/alice:s3c/r3t@h:1",
        "alice:s3c/r3t@h",
        "--target=nats://alice:s3c/r3t@h",
        "auth=amqp://alice:s3c/r3t@h",
    ],
)
def test_the_password_of_an_argument_is_masked_wherever_it_is_repeated(argument: str) -> None:
    mask = mask_of_arguments(["verify", argument])
    repeated = mask.text(f"{argument} s3c/r3t s3c%2Fr3t")
    assert ("alice:**" in repeated, "s3c" in repeated, "r3t" in repeated) == (True, False, False)


@pytest.mark.parametrize(
    "argument",
    ["nats-server@2.10.14", "amqp://guest:guest@h", "nats://h:4222", "drop PUB a:secret @b", "nats://a@h:1"],
)
def test_an_argument_without_a_password_masks_nothing(argument: str) -> None:
    assert mask_of_arguments([argument]).text(argument) == argument
