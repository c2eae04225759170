"""What a login lacks is unsupported, and a refusal that no limit explains is judged."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plumbline.conformance.nats.grants import Grants, grants_of
from plumbline.verdicts import WireLine

UNLIMITED = {"max_memory": -1, "max_storage": -1, "max_streams": -1, "max_consumers": -1}


def received(text: str, raw: bytes = b"") -> WireLine:
    return WireLine(0.0, "client", "<", text, raw)


def refusal(code: int) -> WireLine:
    return received("MSG", b'{"error":{"code":500,"err_code":%d,"description":"refused"}}' % code)


def info(**limits: Any) -> bytes:
    return json.dumps({"memory": 0, "limits": {**UNLIMITED, **limits}}).encode()


@pytest.mark.parametrize(
    ("answer", "storage", "options"),
    [
        (info(), "memory", {}),
        (info(max_memory=0), "file", {}),
        (info(max_memory=0, max_storage=0), "memory", {}),
        (info(max_bytes_required=True), "memory", {"max_bytes": 16 * 1024 * 1024}),
        (b'{"tiers":{"R1":{"limits":{"max_memory":-1}}},"limits":{"max_memory":0}}', "memory", {}),
        (b"no JSON", "memory", {}),
        (b"[]", "memory", {}),
        (b'{"limits":7}', "memory", {}),
    ],
)
def test_streams_are_made_as_the_account_allows(answer: bytes, storage: str, options: Any) -> None:
    grants = grants_of(answer)
    assert (grants.storage, grants.stream_options, grants.no_jetstream) == (storage, options, "")


def test_account_without_jetstream_is_reported() -> None:
    error = b'{"error":{"code":503,"err_code":10039,"description":"not enabled for account"}}'
    grants = grants_of(error)
    assert grants.no_jetstream == "503 not enabled for account (10039)"
    assert grants.missing([received("MSG", error)], is_plain=False).startswith("this login has no JetStream")
    assert Grants().missing([received("MSG", error)], is_plain=False) == ""


def test_another_error_of_the_account_info_shows_no_grant() -> None:
    assert grants_of(b'{"error":{"code":500,"err_code":10008,"description":"busy"}}') == Grants()
    assert grants_of(b'{"error":"busy"}') == Grants()


NO_PUBLISH = received("-ERR 'Permissions Violation for Publish to \"$JS.API.INFO\"'")
NO_SUBSCRIPTION = received("-ERR 'Permissions Violation for Subscription to \">\"'")
SIZED = "this account requires max_bytes of every stream (max_bytes_required)"


@pytest.mark.parametrize(
    ("limits", "line", "sentence"),
    [
        ({}, NO_PUBLISH, 'this login may not publish to "$JS.API.INFO"'),
        ({}, NO_SUBSCRIPTION, 'this login may not subscribe to ">"'),
        ({}, received("-ERR 'Invalid Subject'"), ""),
        ({"max_memory": 0}, refusal(10028), "this account is limited in memory (max_memory 0)"),
        ({"max_memory": -1}, refusal(10028), ""),
        ({}, refusal(10028), ""),
        ({"max_streams": 3}, refusal(10027), "this account is limited in streams (max_streams 3)"),
        ({"max_streams": 3}, refusal(10028), ""),
        ({"max_bytes_required": True}, refusal(10113), SIZED),
        ({"max_bytes_required": False}, refusal(10113), ""),
        ({"max_memory": 0}, WireLine(0.0, "client", ">", "PUB", b'"err_code":10028'), ""),
    ],
)
def test_a_refusal_shows_a_missing_grant_only_with_its_limit(
    limits: dict[str, Any], line: WireLine, sentence: str
) -> None:
    assert Grants(limits=limits).missing([received("PONG"), line], is_plain=True) == sentence


def test_a_limit_of_the_server_is_believed_where_it_may_be_configured() -> None:
    text = "consumer max ack pending exceeds system limit of 500"
    line = received("MSG", b'{"error":{"code":400,"err_code":10121,"description":"%b"}}' % text.encode())
    assert Grants().missing([line], is_plain=False) == f"this server is limited: {text}"
    assert Grants().missing([line], is_plain=True) == ""
