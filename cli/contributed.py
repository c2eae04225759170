"""Results that others contribute, for the published table: a folder with one folder for each.

::

    results/keys/VENDOR.pem             public keys of those who sign
    results/NAME@VERSION/result.json    what a site keeps of a run: all verdicts, no exchange
    results/NAME@VERSION/claims.toml    the claims file of that run, if it had one
    results/NAME@VERSION/attestation.json   a DSSE envelope or a sigstore bundle about result.json

Here and not in ``reports``: what is claimed, and which requirements exist, is known by ``conformance``.
"""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from plumbline.bounds import RESULT_FILE_BYTES
from plumbline.conformance.claims import ClaimsError, load_claims
from plumbline.conformance.requirements.catalogue import Requirement
from plumbline.errors import PlumblineError, UsageProblem
from plumbline.reports import result_json
from plumbline.reports.matrix.attestations import (
    Attestation,
    AttestationError,
    PublicKey,
    read_private_key,
    read_public_key,
    signed,
    statement,
    verify,
)
from plumbline.reports.matrix.runs import TargetRunResult, load, reduced_for_site
from plumbline.untrusted import read_file
from plumbline.verdicts import RunResult, tally

RESULT, CLAIMS, ATTESTATION, STATEMENT, KEYS = (
    "result.json",
    "claims.toml",
    "attestation.json",
    "statement.json",
    "keys",
)


class Contribution(Struct, frozen=True):
    """One folder that is in order."""

    run: TargetRunResult
    claims: str  # the product whose claims were compared; empty without a claims file
    attestation: Attestation | None

    @property
    def text(self) -> str:
        """How it can be trusted, in words."""
        claims = f"compared with the claims of {self.claims}" if self.claims else "without a claims file"
        return f"contributed, {claims}, {self.attestation.text if self.attestation else 'not attested'}"


class WrongContribution(Struct, frozen=True):
    """One folder that cannot be used, and why."""

    folder: Path
    reason: str


def add(
    argument: str, into: Path, claims: Path | None, key: Path | None, known: Mapping[str, Requirement]
) -> Path:
    """Makes the folder of ``RESULT.json`` or ``NAME=RESULT.json``, and returns it.

    With a key the attestation is signed; without one the statement is written for another tool to sign.
    Raises ``PlumblineError``, also for what ``check_all`` would call wrong, and ``OSError``.
    """
    (run,) = load([argument])
    _check_counts(run.result, known)
    _check_claims(claims, run.result)
    signing_key = read_private_key(key) if key is not None else None
    data = result_json.encode(reduced_for_site(run))
    about = statement(RESULT, data, run.result)
    folder = into / run.slug
    folder.mkdir(parents=True, exist_ok=True)
    for old in (CLAIMS, ATTESTATION, STATEMENT):
        (folder / old).unlink(missing_ok=True)
    (folder / RESULT).write_bytes(data)
    if claims is not None:
        shutil.copyfile(claims, folder / CLAIMS)
    if signing_key is None:
        (folder / STATEMENT).write_bytes(about + b"\n")
    else:
        (folder / ATTESTATION).write_bytes(signed(about, signing_key))
    return folder


def check_all(folder: Path, known: Mapping[str, Requirement]) -> Iterator[Contribution | WrongContribution]:
    """Every folder in turn. ``known``: all requirements by id. Raises ``UsageProblem`` and ``OSError``."""
    if not folder.is_dir():
        raise UsageProblem(f"{folder}: there is no such folder")
    keys = [read_public_key(path) for path in sorted((folder / KEYS).glob("*.pem"))]
    for place in sorted(path for path in folder.iterdir() if path.is_dir() and path.name != KEYS):
        try:
            yield _check(place, known, keys)
        except PlumblineError as error:
            yield WrongContribution(place, str(error))
        except OSError as error:
            yield WrongContribution(place, f"{error.filename}: {error.strerror}")


def contributed(folder: Path, known: Mapping[str, Requirement]) -> list[TargetRunResult]:
    """The runs of all folders, for a site, with our words for each requirement.

    Raises ``UsageProblem`` if one of them is wrong, and ``OSError``.
    """
    found = list(check_all(folder, known))
    wrong = [f"{one.folder}: {one.reason}" for one in found if isinstance(one, WrongContribution)]
    if wrong:
        raise UsageProblem("\n".join(wrong))
    return [_in_our_words(one, known) for one in found if isinstance(one, Contribution)]


def _in_our_words(one: Contribution, known: Mapping[str, Requirement]) -> TargetRunResult:
    requirements = tuple(
        replace(
            found,
            statement=known[found.id].statement,
            source=known[found.id].source,
            group=known[found.id].group,
            profile=known[found.id].profile,
        )
        for found in one.run.result.requirements
    )
    return replace(one.run, result=replace(one.run.result, requirements=requirements), origin=one.text)


def _check(place: Path, known: Mapping[str, Requirement], keys: list[PublicKey]) -> Contribution:
    data = read_file(place / RESULT, RESULT_FILE_BYTES)
    result = result_json.read(place / RESULT)
    names = result.target.arguments
    if names is None or len(names) != 1 or any(check.wire for check in result.checks):
        raise UsageProblem(f"{RESULT} is a whole result: make the folder with plumbline results add")
    run = TargetRunResult(names[0], result)
    if run.slug != place.name:
        raise UsageProblem(f"the folder of {run.target} has to be called {run.slug}")
    _check_counts(result, known)
    attestation = None
    if (place / ATTESTATION).exists():
        try:
            attestation = verify(read_file(place / ATTESTATION), data, keys)
        except AttestationError as error:
            raise UsageProblem(f"{ATTESTATION}: {error}") from error
    claims = place / CLAIMS
    return Contribution(run, _check_claims(claims if claims.exists() else None, result), attestation)


def _check_counts(result: RunResult, known: Mapping[str, Requirement]) -> None:
    for one in result.requirements:
        if one.id not in known:
            raise UsageProblem(f"{RESULT}: there is no requirement {one.id!r}; see plumbline list")
        if one.level != known[one.id].level:
            raise UsageProblem(f"{RESULT}: {one.id} is a {known[one.id].level} now; run the suite again")
    summary, counted = result.summary, tally(result.requirements)
    if (summary.claimed, summary.tested, summary.passed) != (counted.claimed, counted.tested, counted.passed):
        raise UsageProblem(
            f"{RESULT}: the summary says {summary.passed} of {summary.claimed} passed, its requirements "
            f"{counted.passed} of {counted.claimed}"
        )


def _check_claims(path: Path | None, result: RunResult) -> str:
    """The product that claims; empty without a file."""
    if path is None:
        if result.claims is not None:
            raise UsageProblem(
                f"{RESULT} was compared with a claims file: {CLAIMS} is missing; results add --claims FILE"
            )
        return ""
    try:
        claims = load_claims(path, result.target.protocol)
    except ClaimsError as error:
        raise UsageProblem(str(error)) from error
    if result.claims is None:
        raise UsageProblem(
            f"{RESULT} was made without the claims file: plumbline verify --claims {path.name}"
        )
    compared = {row.name for row in result.claims.rows if row.kind == "profile" and row.claimed == "yes"}
    if compared != set(claims.profiles):
        raise UsageProblem(
            f"{CLAIMS} claims the profiles {_listed(claims.profiles)}, the run compared {_listed(compared)}"
        )
    contradictions = [row.contradiction for row in result.claims.rows if row.contradiction]
    if contradictions:
        raise UsageProblem(f"{RESULT}: {contradictions[0]}")
    return claims.product or "the vendor"


def _listed(names: Collection[str]) -> str:
    return ", ".join(sorted(names)) or "none"
