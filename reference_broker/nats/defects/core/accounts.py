"""Defects of accounts: what passes between them, and what does not."""

from __future__ import annotations

from collections.abc import Callable

from plumbline.reference_broker.nats.accounts import Links, Route
from plumbline.reference_broker.nats.auth import Authenticator, Credentials
from plumbline.reference_broker.nats.config import User
from plumbline.reference_broker.nats.connection import Subscription
from plumbline.reference_broker.nats.core import Broker
from plumbline.reference_broker.nats.defects import defect, replace

EXPORTER, IMPORTER, STRANGER = "exporter", "importer", "stranger"  # accounts of the suite's variant
Change = Callable[[Links], None]


def link_defect(*requirements: str) -> Callable[[Change], Change]:
    """Register a defect: the decorated function alters the links between the accounts."""

    def register(change: Change) -> Change:
        def alter(broker: Broker) -> None:
            broker.changes_of_links.append(change)

        alter.__doc__ = change.__doc__
        defect(*requirements, name=change.__name__.replace("_", "-"))(alter)
        return change

    return register


def _lead(links: Links, source: str, target: str, subjects: str) -> None:
    """What is published on these subjects in ``source`` is delivered in ``target``, too."""
    links.streams[source].append(Route(target, subjects, subjects))


@link_defect("CORE-116")
def accounts_hear_each_other(links: Links) -> None:
    """All that is published in one account is delivered in another, which imports nothing."""
    _lead(links, EXPORTER, STRANGER, ">")


@link_defect("CORE-116")
def exports_are_for_everybody(links: Links) -> None:
    """A stream that an account exports is delivered in accounts that do not import it."""
    _lead(links, EXPORTER, STRANGER, "*.news.>")


@link_defect("CORE-116")
def importers_are_heard(links: Links) -> None:
    """What is published in an account is delivered in the one from which it imports."""
    _lead(links, IMPORTER, EXPORTER, "*.local")


@link_defect("CORE-117")
def import_is_as_wide_as_the_export(links: Links) -> None:
    """All of an exported stream is delivered, though the import names a part of it."""
    _lead(links, EXPORTER, IMPORTER, "*.news.*")


@link_defect("CORE-117")
def imported_stream_leads_back(links: Links) -> None:
    """What the importing account publishes on an imported subject is delivered in the exporting account."""
    _lead(links, IMPORTER, EXPORTER, "*.news.open.b")


@link_defect("CORE-117")
def import_has_no_messages(links: Links) -> None:
    """An imported stream without a prefix delivers nothing."""
    links.streams[EXPORTER] = [route for route in links.streams[EXPORTER] if route.translate(b"a.news.b.c")]


@link_defect("CORE-117")
def import_loses_headers(links: Links) -> None:
    """A message of an imported stream has no headers."""
    forward = links.forward

    def forwarded(account: str, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        return forward(account, subject, reply, b"", payload)

    replace(links, "forward", forwarded)


@link_defect("CORE-117")
def import_loses_reply_subjects(links: Links) -> None:
    """A message of an imported stream has no reply subject."""
    forward = links.forward

    def forwarded(account: str, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        return forward(account, subject, None, block, payload)

    replace(links, "forward", forwarded)


def _with_prefixed(links: Links, change: Callable[[bytes, bytes], bytes]) -> None:
    """``change`` gives the local subject, from the one of the export and the right one."""
    for route in links.streams[EXPORTER]:
        translate = route.translate

        def changed(subject: bytes, translate: Callable[[bytes], bytes | None] = translate) -> bytes | None:
            right = translate(subject)
            return change(subject, right) if right is not None and right != subject else right

        replace(route, "translate", changed)


@link_defect("CORE-118")
def prefix_of_an_import_is_lost(links: Links) -> None:
    """A stream that is imported with a prefix has the subjects of its export."""
    _with_prefixed(links, lambda subject, right: subject)


@link_defect("CORE-118")
def prefix_takes_the_place_of_a_token(links: Links) -> None:
    """The prefix of an import is put in the place of the first token."""
    _with_prefixed(links, lambda subject, right: b"from." + subject.partition(b".")[2])


@link_defect("CORE-118")
def prefixed_stream_keeps_its_subjects_as_well(links: Links) -> None:
    """A stream that is imported with a prefix is delivered on the subjects of its export, too."""
    _lead(links, EXPORTER, IMPORTER, "*.news.closed.>")


@link_defect("CORE-119")
def answers_go_to_the_last_request(links: Links) -> None:
    """The answer of a service is delivered to whoever has made the last request."""
    answer = links.answer

    def answered(inbox: bytes, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        last = next(reversed(links.replies), inbox)
        return answer(last, last, reply, block, payload)

    replace(links, "answer", answered)


@link_defect("CORE-119")
def answers_reach_other_accounts(links: Links) -> None:
    """The answer of a service is also delivered in an account that does not import it."""
    answer = links.answer

    def answered(inbox: bytes, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        if (asked := links.replies.get(inbox)) is not None:
            links.accounts[STRANGER].deliver(asked.reply, asked.reply, reply, block, payload)
        return answer(inbox, subject, reply, block, payload)

    replace(links, "answer", answered)


@link_defect("CORE-119")
def requests_reach_other_accounts(links: Links) -> None:
    """A request to an imported service is also delivered in an account that does not import it."""
    _lead(links, IMPORTER, STRANGER, "*.ask")


def _requests(links: Links, change: Callable[[bytes | None, bytes], bytes | None]) -> None:
    """A request has other headers: ``change(reply, headers)``; None: it is not delivered."""
    request = links.request

    def requested(
        account: str, subject: bytes, reply: bytes | None, block: bytes, payload: bytes, now: int
    ) -> bool:
        changed = change(reply, block)
        return changed is not None and request(account, subject, reply, changed, payload, now)

    replace(links, "request", requested)


@link_defect("CORE-149")
def requests_lose_headers(links: Links) -> None:
    """A request to an imported service has no headers."""
    _requests(links, lambda reply, block: b"")


@link_defect("CORE-150")
def services_get_requests_with_a_reply_alone(links: Links) -> None:
    """A message without reply subject does not reach an imported service."""
    _requests(links, lambda reply, block: None if reply is None else block)


@link_defect("CORE-149")
def answers_lose_headers(links: Links) -> None:
    """The answer of an imported service has no headers."""
    answer = links.answer

    def answered(inbox: bytes, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        return answer(inbox, subject, reply, b"", payload)

    replace(links, "answer", answered)


@link_defect("CORE-120")
def exported_name_of_a_service_is_open(links: Links) -> None:
    """A service that is imported under another name is also reached under its own."""
    links.services[IMPORTER].append(Route(EXPORTER, "*.one", "*.one", is_single=True))


def _renamed(links: Links, change: Callable[[bytes, bytes], bytes]) -> None:
    """``change`` gives the subject of the request, from the local one and the right one."""
    for route in links.services[IMPORTER]:
        translate = route.translate

        def changed(subject: bytes, translate: Callable[[bytes], bytes | None] = translate) -> bytes | None:
            right = translate(subject)
            return change(subject, right) if right is not None else None

        replace(route, "translate", changed)


@link_defect("CORE-120")
def request_keeps_its_local_name(links: Links) -> None:
    """The service gets a request on the subject on which it was published."""
    _renamed(links, lambda subject, right: subject)


@link_defect("CORE-120")
def request_has_one_wildcard(links: Links) -> None:
    """Every wildcard in the subject of a request is what the first one is."""
    _renamed(links, lambda subject, right: right.replace(b".two.new", b".two." + subject.split(b".")[0]))


@link_defect("CORE-121")
def import_hides_its_requests(links: Links) -> None:
    """Subscriptions of an account on the local subject of a service that it imports get no request."""
    router, matching = links.accounts[IMPORTER].router, links.accounts[IMPORTER].router.matching

    def visible(subject: bytes) -> list[Subscription]:
        is_of_a_service = any(route.translate(subject) for route in links.services[IMPORTER])
        return [] if is_of_a_service else matching(subject)

    replace(router, "matching", visible)


@link_defect("CORE-122")
def every_service_is_a_stream_of_answers(links: Links) -> None:
    """All answers to a request are delivered, whatever the response_type is."""
    for route in links.services[IMPORTER]:
        replace(route, "is_single", False)


@link_defect("CORE-122")
def second_answer_counts(links: Links) -> None:
    """The first answer of a service is dropped, and the second is delivered."""
    answer, seen = links.answer, set[bytes]()

    def answered(inbox: bytes, subject: bytes, reply: bytes | None, block: bytes, payload: bytes) -> int:
        if inbox in seen:
            return answer(inbox, subject, reply, block, payload)
        seen.add(inbox)
        return 0

    replace(links, "answer", answered)


@link_defect("CORE-130")
def every_service_has_one_answer(links: Links) -> None:
    """One answer to a request is delivered, whatever the response_type is."""
    for route in links.services[IMPORTER]:
        replace(route, "is_single", True)


@defect("CORE-123")
def no_auth_user_is_refused(broker: Broker) -> None:
    """A client without credentials is refused although there is a no_auth_user."""
    replace(broker.authenticator, "is_nobody", lambda credentials: False)


@defect("CORE-123")
def no_auth_user_is_in_the_global_account(broker: Broker) -> None:
    """A client without credentials is in the global account."""
    authenticator = broker.authenticator

    def account_of(credentials: Credentials) -> str | None:
        if authenticator.is_nobody(credentials):
            return None
        return Authenticator.account_of(authenticator, credentials)

    replace(authenticator, "account_of", account_of)


@defect("CORE-123")
def no_auth_user_is_another(broker: Broker) -> None:
    """A client without credentials is in an account of another user than no_auth_user names."""
    user = next((one for one in broker.config.users if one.user == STRANGER), User())
    replace(broker.authenticator, "_no_auth_user", user if user.user else None)
