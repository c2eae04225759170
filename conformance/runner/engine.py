"""Runs one check against a target and returns its outcome. No waivers, no retry, no pytest.

``run_check`` never raises but for KeyboardInterrupt: whatever goes wrong is an outcome.
"""

from __future__ import annotations

import re
import time
import traceback
from typing import Any

import msgspec

from plumbline.conformance.check import Check
from plumbline.conformance.outcomes import (
    CheckEnded,
    Failed,
    Flooded,
    Inconclusive,
    NotClaimed,
    NothingCame,
    StillOpen,
    StoppedReading,
    Unanswered,
    Unsupported,
    Untestable,
)
from plumbline.conformance.requirements.catalogue import Catalogue, within_levels
from plumbline.conformance.sessions.connection import NEW_CONNECTION
from plumbline.conformance.sessions.opening import open_session
from plumbline.conformance.sessions.session import DEATH_S, BaseSession
from plumbline.conformance.targets.target import TargetAccess
from plumbline.errors import TargetUnreachable
from plumbline.masking import Mask
from plumbline.verdicts import CLAIMED, NOT_CLAIMED, CheckResult, Level, Outcome
from plumbline.wire.errors import ProtocolError

_ORDER = (Level.MUST, Level.SHOULD, Level.MAY)
_OUTCOMES: dict[type[CheckEnded], Outcome] = {
    Failed: Outcome.FAILED,
    Unsupported: Outcome.UNSUPPORTED,
    Untestable: Outcome.UNTESTABLE,
    Inconclusive: Outcome.INCONCLUSIVE,
    Flooded: Outcome.FAILED,
}
# What a check ends with that was refused what it needs: the login lacks it, the server is not wrong.
_UNDONE = (Outcome.FAILED, Outcome.UNTESTABLE, Outcome.INCONCLUSIVE)
_ANSWERED = (Outcome.PASSED, Outcome.FAILED)
# What nats-server answers in trouble of its own, which is no answer to what a check asks (errors.json):
# 10049, "error creating store for stream", while it deletes another; alone, it does not happen.
# 10008, "JetStream system temporarily unavailable", and 10009, while a cluster elects a leader.
_SERVER_TROUBLE = re.compile(rb'"err_code":(10008|10009|10049)\b')
# Nodes of a cluster pass on messages at most once, and a new subscription reaches the others after a moment:
# an advisory or an answer of another node may be lost (docs.nats.io, "Core NATS"), but not each time.
_LOST_BETWEEN_NODES = (NothingCame, Untestable)
SERVER_EXIT_WAIT_S = 2.0  # within which a server that no longer answers may have ended


def run_check(
    check: Check, access: TargetAccess, catalogue: Catalogue, *, is_repeatable: bool = False
) -> CheckResult:
    """Run ``check`` once. If the caller can repeat it alone, what a cluster may lose once is inconclusive,
    and no server is given up yet."""
    began = time.monotonic()
    session = open_session(access, variant=check.variant)
    outcome, ended = Outcome.PASSED, None
    try:
        with session:
            refuse_other_levels(check, access, catalogue)
            refuse_not_claimed(check, access, catalogue)
            refuse_other_dimensions(check, access)
            session.url(check.variant)
            if access.running.fresh:
                session.use_fresh_server()
            _run_to_its_end(check, session, is_alone=not is_repeatable)
            if session.observations == 0:
                raise Failed(
                    "the check made no observation", expected="at least one observation", actual="none"
                )
    except Exception as error:
        outcome, ended = outcome_of(error)
        if outcome in _UNDONE and (missing := session.missing_grant()):
            outcome, ended = Outcome.UNSUPPORTED, Unsupported(missing, actual=ended.actual)
        elif isinstance(error, Failed) and _reported_server_trouble(session):
            outcome = Outcome.INCONCLUSIVE
        if is_repeatable and access.is_cluster and isinstance(error, _LOST_BETWEEN_NODES):
            outcome = Outcome.INCONCLUSIVE if outcome in _UNDONE else outcome
        if isinstance(error, Unanswered):
            session.record_unanswered(error, decides=not is_repeatable)
    if outcome in _ANSWERED and not isinstance(ended, StillOpen):  # which silence looks like, too
        session.record_answers()
    result = msgspec.structs.replace(
        _masked(result_of(check, catalogue, outcome, ended), access.mask),
        wire=session.journal.shown(),
        observations=session.observations,
        claim=_claim(access, ended),
        duration_s=time.monotonic() - began,
    )
    return as_unicode(result)


def as_unicode(result: CheckResult) -> CheckResult:
    """``result`` with texts that every process can be given: a server may send what is not UTF-8, and such
    bytes are shown by their escapes."""
    try:
        msgspec.json.encode(result)
    except UnicodeEncodeError:
        return msgspec.convert(_without_surrogates(msgspec.to_builtins(result)), CheckResult)
    return result


def _without_surrogates(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "backslashreplace").decode()
        case dict():
            return {key: _without_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [_without_surrogates(item) for item in value]
    return value


def outcome_of(error: Exception) -> tuple[Outcome, CheckEnded]:
    """How a check ended that raised this exception. One that is no ``CheckEnded``, no failed assertion and
    not about the bytes or the silence of the target is an error of Plumbline."""
    if isinstance(error, CheckEnded):
        return next(outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind)), error
    if isinstance(error, AssertionError):
        return Outcome.FAILED, Failed(str(error) or "assertion failed", where=_where(error))
    if isinstance(error, ProtocolError):
        message = "the target sent what is not valid in the protocol"
        return Outcome.FAILED, Failed(message, expected="valid data", actual=str(error), where=_where(error))
    if isinstance(error, TargetUnreachable):
        return Outcome.INCONCLUSIVE, Inconclusive(str(error))
    text = "".join(traceback.format_exception(error)[-3:]).strip()
    return Outcome.HARNESS_ERROR, CheckEnded(f"{type(error).__name__}: {error}", actual=text)


def _is_dead(session: BaseSession, ended: CheckEnded, *, is_alone: bool) -> bool:
    """Whether what ended the check is that the server, or a connection of it, does nothing any more."""
    if isinstance(ended, Unanswered):
        only_here = ended.request != NEW_CONNECTION and not ended.is_blocked
        return is_alone or (only_here and session.target.is_alive(session.url(None)))
    return isinstance(ended, StoppedReading) and is_alone


def _run_to_its_end(check: Check, session: BaseSession, *, is_alone: bool) -> None:
    """Where a check has a server to itself, that server's death is the verdict, whatever else was seen; and
    so is its silence, on one connection or, if no other check runs meanwhile, on all."""
    try:
        _run_explained(check, session)
    except (Inconclusive, Untestable) as ended:
        _require_alive(session, SERVER_EXIT_WAIT_S)
        if session.target.running.fresh and _is_dead(session, ended, is_alone=is_alone):
            raise Failed(ended.message, expected=ended.expected, actual=ended.actual) from None
        raise
    except Failed:
        _require_alive(session)
        raise
    _require_alive(session)


def _run_explained(check: Check, session: BaseSession) -> None:
    try:
        check.run(session)
    except CheckEnded as ended:
        explained = session.explained(ended)
        if explained is ended:
            raise
        raise explained from None


def _require_alive(session: BaseSession, within: float = DEATH_S) -> None:
    if output := session.server_exit_output(within):
        raise Failed(
            "the server ended during the check", expected="a server that keeps running", actual=output
        )


def _reported_server_trouble(session: BaseSession) -> bool:
    return any(line.direction == "<" and _SERVER_TROUBLE.search(line.raw) for line in session.wire)


def not_run_result(check: Check, catalogue: Catalogue, why: str) -> CheckResult:
    """The result of a check that there was no point in running."""
    return result_of(check, catalogue, Outcome.INCONCLUSIVE, Inconclusive(f"not run: {why}"))


def result_of(check: Check, catalogue: Catalogue, outcome: Outcome, ended: CheckEnded | None) -> CheckResult:
    """The result of a check that ended so, without what was exchanged."""
    return CheckResult(
        id=check.id,
        outcome=outcome,
        requirements=check.requirements,
        level=strongest_level(check, catalogue),
        title=check.title,
        source=check.source,
        where=(ended.where if ended else "") or check.where,
        message=ended.message if ended else "",
        expected=ended.expected if ended else "",
        actual=ended.actual if ended else "",
        variant=check.variant or "",
    )


def _masked(result: CheckResult, mask: Mask) -> CheckResult:
    """Without the secrets of the run in what was received; the journal has masked the wire."""
    return msgspec.structs.replace(
        result,
        message=mask.text(result.message),
        expected=mask.text(result.expected),
        actual=mask.text(result.actual),
    )


def strongest_level(check: Check, catalogue: Catalogue) -> Level:
    """The level that decides whether a failure of ``check`` is red."""
    levels = [catalogue.by_id[requirement].level for requirement in check.requirements]
    return min(levels, key=_ORDER.index)


def refuse_other_levels(check: Check, access: TargetAccess, catalogue: Catalogue) -> None:
    """Raises ``Unsupported`` if the target's protocol level is outside the check's or its requirements'."""
    requirements = [catalogue.by_id[name] for name in check.requirements]
    gates = [(check.id, check.since or "", check.until or "")]
    gates += [(requirement.id, requirement.since, requirement.until) for requirement in requirements]
    for name, since, until in gates:
        if not within_levels(access.level, since=since, until=until):
            span = " and ".join(filter(None, (since and f"since {since}", until and f"before {until}")))
            raise NotClaimed(f"{name} holds {span}; the target's level is {access.target.level}")


def refuse_not_claimed(check: Check, access: TargetAccess, catalogue: Catalogue) -> None:
    """Raises ``NotClaimed`` if the claims file leaves out the profile of one of the requirements."""
    if access.claims is None:
        return
    for name in check.requirements:
        profile = catalogue.by_id[name].profile
        if profile not in access.claims.profiles:
            raise NotClaimed(f"the claims file does not claim the profile {profile!r}")


def refuse_other_dimensions(check: Check, access: TargetAccess) -> None:
    """Raises ``Unsupported`` if the check cannot hold in the dimensions of the run."""
    if reason := access.dimensions.unsupported_reason(check.id, access.level):
        raise Unsupported(reason)


def _claim(access: TargetAccess, ended: CheckEnded | None) -> str:
    if access.claims is None:
        return ""
    return NOT_CLAIMED if isinstance(ended, NotClaimed) else CLAIMED


def _where(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "conformance" in frame.filename]
    if not frames:
        return ""
    parts = frames[-1].filename.split("conformance/")
    return f"conformance/{parts[-1]}:{frames[-1].lineno}"
