"""A claims file is read whole or refused with all that is wrong; claimed and announced are compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from plumbline.conformance.claims import (
    Announcement,
    Claims,
    ClaimsError,
    announcement,
    compare,
    contradictions,
    draft_claims,
    load_claims,
    with_results,
)
from plumbline.conformance.nats.grants import Grants
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.verdicts import CLAIMED, NOT_CLAIMED, Level, RequirementResult, Tally, Target, tally

NATS = Target("nats://h:1", version="2.10.14", features=("headers", "jetstream"))
INFO = {"max_payload": 1048576, "headers": True, "jetstream": True}
AMQP = Target("amqp://h:1", "amqp", version="3.10.8", features=("publisher_confirms", "RabbitMQ"))


def nats(info: dict[str, Any] | None = None, **limits: Any) -> Announcement:
    return announcement(NATS, {**INFO, **(info or {})}, Grants(limits=limits))


def written(folder: Path, text: str) -> Path:
    path = folder / "plumbline.claims.toml"
    path.write_text(text)
    return path


def test_claims_file_may_have_profiles_only(tmp_path: Path) -> None:
    path = written(tmp_path, 'profiles = ["nats-core", "kv"]')
    assert load_claims(path, "nats") == Claims(profiles=("nats-core", "kv"), file=str(path))


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("profile = []", ["unknown key 'profile'; did you mean profiles?"]),
        ('profiles = ["kw"]', ["unknown profile of nats 'kw'"]),
        ('profiles = ["amqp-core"]', ["unknown profile of nats 'amqp-core'"]),
        ('profiles = ["client-nats"]', ["unknown profile of nats 'client-nats'"]),
        ("profiles = []", ["profiles is empty; known: nats-core"]),
        ('product = "x"', ["missing required field `profiles`"]),
        ("profiles = 7", ["Expected `array`"]),
        ('profiles = ["kv"]\n[options]\nheders = true', ["'heders'; did you mean headers?"]),
        ('profiles = ["kv"]\n[options]\nheaders = 1', ["Expected `bool`"]),
        ('profiles = ["kv"]\n[limits]\nmax_pay = 1', ["'max_pay'; did you mean max_payload?"]),
        ('profiles = ["kv"]\n[limits]\nframe_max = 1', ["unknown limit of nats 'frame_max'"]),
        ('profiles = ["kv"]\nversions = "new"', ["versions: 'new' is not a version condition"]),
        ('profiles = ["kv"]\nlevel = "2"', ["level: '2' is not a protocol level"]),
        ('profiles = ["kv"]\nlevel = "two"', ["level: 'two' is not a protocol level"]),
        ('profiles = ["kv"]\nrestart = "server"', ["restart: write a command with {port} and {store}"]),
        ("profiles = [\"kv\"]\nrestart = \"'\"", ["restart: it is no command line"]),
        ('profiles = ["kw"]\n[limits]\nmax_pay = 1', ["'kw'", "'max_pay'"]),
        ("profiles = ", ["it is not TOML"]),
        ("a = " + "[" * 100_000, ["plumbline.claims.toml: it is"]),
    ],
)  # fmt: skip
def test_everything_wrong_with_a_file_is_one_error(tmp_path: Path, text: str, sentences: list[str]) -> None:
    path = written(tmp_path, text)
    with pytest.raises(ClaimsError) as refused:
        load_claims(path, "nats")
    lines = str(refused.value).splitlines()
    assert len(lines) == len(sentences)
    for line, sentence in zip(lines, sentences, strict=True):
        assert line.startswith(str(path))
        assert sentence in line


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ClaimsError, match="No such file"):
        load_claims(tmp_path / "none.toml", "nats")


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({}, ""),
        ({"options": {"headers": True}, "limits": {"max_payload": 1048576}, "versions": "==2.10"}, ""),
        ({"options": {"tls_required": False}, "limits": {"max_streams": 7}}, ""),
        ({"options": {"headers": False}}, "headers is claimed to be absent, and INFO announces it"),
        ({"options": {"tls_required": True}}, "tls_required is claimed, and INFO does not announce it"),
        ({"limits": {"max_payload": 9}}, "max_payload is claimed to be 9, and INFO announces 1048576"),
        (
            {"limits": {"max_streams": 9}},
            "max_streams is claimed to be 9, and the account information announces 7",
        ),
        (
            {"limits": {"max_consumers": 9}},
            "max_consumers is claimed to be 9, and the account information does not announce it",
        ),
        ({"versions": ">=2.11"}, "the claims are about version >=2.11, and the server announces 2.10.14"),
    ],
)  # fmt: skip
def test_each_contradiction_is_one_sentence(fields: dict[str, Any], sentence: str) -> None:
    report = compare(Claims(profiles=("nats-core",), **fields), nats(max_streams=7))
    found = contradictions(report)
    assert len(found) == bool(sentence)
    assert all(sentence in one for one in found)


def test_a_profile_that_is_claimed_must_be_announced() -> None:
    silent = announcement(Target("nats://h:1", version="2.10.14"), {}, Grants())
    (sentence,) = contradictions(compare(Claims(profiles=("nats-core", "kv")), silent))
    assert sentence == "the profile kv is claimed, and INFO does not announce jetstream"


def test_what_a_server_cannot_announce_is_no_contradiction() -> None:
    announced = announcement(
        AMQP, {"capabilities": {"publisher_confirms": True}, "frame_max": 131072}, Grants()
    )
    claims = Claims(profiles=("amqp-core", "rabbitmq-acks", "durability"), limits={"frame_max": 131072})
    assert contradictions(compare(claims, announced)) == []


def test_what_is_announced_and_not_claimed_is_shown_and_no_contradiction() -> None:
    report = compare(Claims(profiles=("nats-core",)), nats())
    (row,) = (row for row in report.rows if row.name == "kv")
    assert (row.claimed, row.announced, row.contradiction) == ("no", "yes", "")


@pytest.mark.parametrize(
    ("announced", "protocol"),
    [
        (nats(max_streams=7, max_memory=-1), "nats"),
        (announcement(AMQP, {"channel_max": 2047, "frame_max": 8192, "heartbeat": 60}, Grants()), "amqp"),
    ],
)
def test_a_draft_contradicts_nothing(tmp_path: Path, announced: Announcement, protocol: str) -> None:
    claims = load_claims(written(tmp_path, draft_claims(announced)), protocol)
    report = compare(claims, announced)
    assert contradictions(report) == []
    assert all(row.claimed == row.announced for row in report.rows if row.announced and row.kind != "version")


def test_every_profile_of_a_server_can_be_claimed() -> None:
    profiles = {row.profile for row in Catalogue.load().requirements} - {
        "client",
        "client-nats",
        "client-amqp",
    }
    known = [row.name for target in (NATS, AMQP)
             for row in compare(Claims(profiles=()), announcement(target, {}, Grants())).rows
             if row.kind == "profile"]  # fmt: skip
    assert set(known) == profiles


def requirement(verdict: str, claim: str, profile: str = "kv") -> RequirementResult:
    return RequirementResult("JS-KV-001", Level.MUST, verdict, (), profile=profile, claim=claim)


def test_what_is_claimed_and_could_not_be_tested_counts_as_claimed() -> None:
    found = [
        requirement("passed", CLAIMED),
        requirement("failed", CLAIMED),
        requirement("unsupported", CLAIMED),
        requirement("unsupported", NOT_CLAIMED),
        requirement("unsupported", ""),
        requirement("not scored", CLAIMED),
    ]
    assert tally(found) == Tally(claimed=3, tested=2, passed=1)
    report = compare(Claims(profiles=("kv",)), nats())
    rows = {row.name: row.requirements for row in with_results(report, found).rows}
    assert rows["kv"] == Tally(claimed=3, tested=2, passed=1)
    assert rows["jetstream"] == rows["headers"] == Tally()
