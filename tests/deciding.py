"""Runs a check until it decides, as ``verify`` does."""

from __future__ import annotations

from plumbline.conformance.check import Check
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.runner.engine import run_check
from plumbline.conformance.targets.target import TargetAccess
from plumbline.verdicts import CheckResult, Outcome

ATTEMPTS = 3  # of a check that does not decide


def decided(check: Check, access: TargetAccess, catalogue: Catalogue) -> CheckResult:
    """What a check finds; on a busy machine it may be too late to decide, and is run again."""
    for _ in range(ATTEMPTS - 1):
        result = run_check(check, access, catalogue)
        if result.outcome is not Outcome.INCONCLUSIVE:
            return result
    return run_check(check, access, catalogue)
