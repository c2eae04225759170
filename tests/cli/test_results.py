"""Contributed results: what ``results add`` makes is in order; what was changed afterwards is found."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    PublicFormat,
)
from msgspec.structs import replace
from typer.testing import CliRunner, Result

from plumbline.cli.main import app
from plumbline.reports.result_json import encode
from plumbline.verdicts import ClaimRow, ClaimsReport, RunResult, tally
from tests.reports.runs import run_of

CLAIMS = 'product = "ACME MQ"\nprofiles = ["jetstream"]\n'
VERDICTS = {"JS-ACK-001": "passed", "JS-ACK-002": "failed"}


def plumbline(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, [str(argument) for argument in arguments])


def counted(result: RunResult) -> RunResult:
    """With a summary that is right."""
    found = tally(result.requirements)
    counts = {"claimed": found.claimed, "tested": found.tested, "passed": found.passed}
    return replace(result, summary=replace(result.summary, **counts))


def claimed(result: RunResult, *rows: ClaimRow) -> RunResult:
    return replace(result, claims=ClaimsReport("claims.toml", "ACME MQ", rows))


PROFILE = ClaimRow("profile", "jetstream", "yes", "yes")


@pytest.fixture
def key(tmp_path: Path) -> Path:
    """A private key; its public one is among those of the folder."""
    made = Ed25519PrivateKey.generate()
    path = tmp_path / "acme-private.pem"
    path.write_bytes(made.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
    public = tmp_path / "results" / "keys" / "acme.pem"
    public.parent.mkdir(parents=True)
    public.write_bytes(made.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo))
    return path


@pytest.fixture
def result(tmp_path: Path) -> Path:
    path = tmp_path / "result.json"
    path.write_bytes(encode(claimed(counted(run_of(VERDICTS)), PROFILE)))
    (tmp_path / "vendor.toml").write_text(CLAIMS)
    return path


@pytest.fixture
def folder(tmp_path: Path, result: Path, key: Path) -> Path:
    """A contributed result that is in order."""
    into = tmp_path / "results"
    claims = tmp_path / "vendor.toml"
    done = plumbline("results", "add", f"acme@1.2={result}", "--into", into, "--claims", claims, "--key", key)
    assert (done.exit_code, done.output.strip()) == (0, str(into / "acme_1.2"))
    return into / "acme_1.2"


def test_an_added_result_is_in_order_and_signed(folder: Path) -> None:
    done = plumbline("results", "check", folder.parent)
    assert (done.exit_code, done.output) == (
        0,
        "acme@1.2: 1 of 2 passed; contributed, compared with the claims of ACME MQ, signed with acme.pem\n",
    )


def test_the_statement_is_that_of_a_test_result(folder: Path) -> None:
    envelope = json.loads((folder / "attestation.json").read_text())
    statement = json.loads(base64.b64decode(envelope["payload"]))
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert statement["predicate"]["passedTests"] == ["JS-ACK-001"]
    assert statement["predicate"]["failedTests"] == ["JS-ACK-002"]
    assert [one["name"] for one in statement["subject"]] == ["result.json"]


def test_without_a_key_the_statement_is_written_for_another_tool(tmp_path: Path, result: Path) -> None:
    done = plumbline("results", "add", result, "--into", tmp_path / "r", "--claims", tmp_path / "vendor.toml")
    assert done.exit_code == 0, done.stderr
    folder = tmp_path / "r" / "nats-server_2.10.0"
    assert json.loads((folder / "statement.json").read_text())["predicate"]["result"] in ("PASSED", "FAILED")
    assert "not attested" in plumbline("results", "check", tmp_path / "r").output


def test_a_sigstore_bundle_is_compared_but_not_called_signed(folder: Path) -> None:
    envelope = json.loads((folder / "attestation.json").read_text())
    bundle = {"mediaType": "x", "verificationMaterial": {}, "dsseEnvelope": envelope}
    (folder / "attestation.json").write_text(json.dumps(bundle))
    done = plumbline("results", "check", folder.parent)
    assert done.exit_code == 0
    assert "attested by a sigstore bundle, which 'gh attestation verify' verifies" in done.output
    assert "signed" not in done.output


def test_a_key_that_is_not_known_is_not_trusted(folder: Path) -> None:
    (folder.parent / "keys" / "acme.pem").unlink()
    done = plumbline("results", "check", folder.parent)
    assert done.exit_code == 0
    assert "signed with a key that is not known here" in done.output


def in_json(path: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


def _passes_everything(folder: Path) -> None:
    in_json(folder / "result.json", lambda found: found["requirements"][1].update(verdict="passed"))


def _passes_everything_and_counts(folder: Path) -> None:
    _passes_everything(folder)
    in_json(folder / "result.json", lambda found: found["summary"].update(passed=2))


def _other_signature(folder: Path) -> None:
    signature = base64.b64encode(bytes(64)).decode()
    in_json(folder / "attestation.json", lambda found: found["signatures"][0].update(sig=signature))


def _no_signature(folder: Path) -> None:
    in_json(folder / "attestation.json", lambda found: found.update(signatures=[]))


def _other_statement(folder: Path) -> None:
    def change(found: Any) -> None:
        statement = json.loads(base64.b64decode(found["payload"]))
        statement["predicate"]["result"] = "PASSED"
        found["payload"] = base64.b64encode(json.dumps(statement).encode()).decode()

    in_json(folder / "attestation.json", change)


@pytest.mark.parametrize(
    ("damage", "sentence"),
    [
        (_passes_everything, "the summary says 1 of 2 passed, its requirements 2 of 2"),
        (_passes_everything_and_counts, "attestation.json: it is about another file"),
        (_other_signature, "the signature is not that of acme.pem"),
        (_other_statement, "the signature is not that of acme.pem"),
        (_no_signature, "it has no signature"),
        (lambda folder: (folder / "attestation.json").write_text("{}"), "neither a DSSE envelope nor"),
        (lambda folder: (folder / "result.json").write_text("{}"), "not a Plumbline result"),
        (lambda folder: (folder / "result.json").unlink(), "result.json: No such file"),
        (lambda folder: (folder / "claims.toml").unlink(), "claims.toml is missing"),
        (
            lambda folder: (folder / "claims.toml").write_text(CLAIMS.replace('"]', '", "kv"]')),
            "claims the profiles jetstream, kv, the run compared jetstream",
        ),
        (lambda folder: (folder / "claims.toml").write_text("profiles = 1"), "claims.toml:"),
        (
            lambda folder: in_json(
                folder / "result.json", lambda found: found["requirements"][0].update(id="JS-PULL-999")
            ),
            "there is no requirement 'JS-PULL-999'",
        ),
        (
            lambda folder: in_json(
                folder / "result.json", lambda found: found["requirements"][0].update(level="MAY")
            ),
            "JS-ACK-001 is a MUST now",
        ),
        (lambda folder: folder.rename(folder.with_name("other")), "has to be called acme_1.2"),
    ],
)
def test_what_was_changed_is_found(folder: Path, damage: Callable[[Path], object], sentence: str) -> None:
    damage(folder)
    done = plumbline("results", "check", folder.parent)
    assert done.exit_code == 1, done.output
    assert sentence in done.output
    refused = plumbline("matrix", "--results", folder.parent, "-o", folder.parent.parent / "site")
    assert refused.exit_code == 2
    assert sentence in refused.stderr
    assert not (folder.parent.parent / "site").exists()


def test_a_contradicted_claim_is_no_contribution(tmp_path: Path) -> None:
    row = replace(PROFILE, contradiction="jetstream is claimed, INFO does not announce it.")
    path = tmp_path / "result.json"
    path.write_bytes(encode(claimed(counted(run_of(VERDICTS)), row)))
    (tmp_path / "claims.toml").write_text(CLAIMS)
    into = tmp_path / "results"
    done = plumbline("results", "add", path, "--into", into, "--claims", tmp_path / "claims.toml")
    assert (done.exit_code, "INFO does not announce it" in done.stderr) == (2, True)
    assert not into.exists()


def test_counts_that_the_requirements_do_not_have_are_not_added(tmp_path: Path) -> None:
    path = tmp_path / "result.json"
    right = counted(run_of(VERDICTS))
    path.write_bytes(encode(replace(right, summary=replace(right.summary, passed=right.summary.passed + 1))))
    done = plumbline("results", "add", path, "--into", tmp_path / "results")
    assert (done.exit_code, "the summary says" in done.stderr) == (2, True)
    assert not (tmp_path / "results").exists()


def test_a_run_with_a_claims_file_is_added_with_it(tmp_path: Path, result: Path) -> None:
    done = plumbline("results", "add", result, "--into", tmp_path / "results")
    assert (done.exit_code, "claims.toml is missing" in done.stderr) == (2, True)
    assert not (tmp_path / "results").exists()


def test_a_site_shows_contributed_results_in_our_words(folder: Path, tmp_path: Path) -> None:
    in_json(folder / "result.json", lambda found: found["requirements"][0].update(statement="Buy ACME."))
    (folder / "attestation.json").unlink()
    done = plumbline("matrix", "--results", folder.parent, "-o", tmp_path / "site")
    assert done.exit_code == 0, done.stderr
    page = (tmp_path / "site" / "targets" / "acme_1.2" / "index.html").read_text()
    assert "contributed, compared with the claims of ACME MQ, not attested" in page
    assert not any("Buy ACME." in one.read_text() for one in (tmp_path / "site").rglob("*.html"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["check", "absent"], "absent: there is no such folder"),
        (["add", "absent.json"], "absent.json: No such file"),
        (["add", "{result}", "--claims", "absent.toml"], "absent.toml"),
        (["add", "{result}", "--claims", "vendor.toml", "--key", "{result}"], "expected an Ed25519 key"),
    ],
)
def test_what_cannot_be_used_is_named(
    arguments: list[str], sentence: str, result: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    done = plumbline("results", *(one.format(result=result) for one in arguments))
    assert done.exit_code == 2
    assert sentence in done.stderr
    assert not (tmp_path / "results").exists()
