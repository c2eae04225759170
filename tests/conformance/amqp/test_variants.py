"""The broker of an AMQP variant: started once, when a check needs it, where Plumbline can start one."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from plumbline.conformance.amqp.session import AmqpSession
from plumbline.conformance.amqp.variant_server import close_variant_servers
from plumbline.conformance.outcomes import Unsupported
from plumbline.conformance.suite import all_checks
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import AmqpUrl, parse_url
from plumbline.reference_broker.amqp.server import AmqpBroker

VARIANT = "amqp-settings"
PROGRAM = (sys.executable, "-m", "plumbline", "broker", "amqp", "-p", "-1")


@pytest.fixture
def url() -> Iterator[AmqpUrl]:
    with AmqpBroker.in_thread() as address:
        parsed = parse_url(address)
        assert isinstance(parsed, AmqpUrl)
        yield parsed
    close_variant_servers()


def started(url: AmqpUrl) -> TargetAccess:
    return open_target(RunningTarget(url, program=PROGRAM, takes_settings=True))


def test_two_checks_of_a_variant_have_one_broker_which_is_not_the_target(url: AmqpUrl) -> None:
    target = started(url)
    addresses = []
    for _ in range(2):
        with AmqpSession(target, variant=VARIANT) as session:
            addresses.append(session.url(VARIANT).address)
    assert addresses[0] == addresses[1] != url.address


def test_a_broker_of_a_variant_that_has_ended_is_started_again(url: AmqpUrl) -> None:
    with AmqpSession(started(url), variant=VARIANT) as session:
        first = session.variant_server(VARIANT)
        first.kill()
        assert session.variant_server(VARIANT).is_running
        session.connect()


def test_a_broker_with_tls_has_certificates_of_its_own(url: AmqpUrl) -> None:
    with AmqpSession(started(url), variant="amqp-tls") as session:
        session.connect()
        certificates = session.variant_server("amqp-tls").certificates
        assert certificates is not None
        assert session.url("amqp-tls").tls == certificates.options()
        folder = certificates.folder
        assert folder.stat().st_mode & 0o777 == 0o700
        assert session.url_with_certificate("").tls == certificates.options("")
    close_variant_servers()
    assert not folder.exists()


def test_without_the_means_to_make_certificates_the_check_is_unsupported(
    url: AmqpUrl, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with (
        AmqpSession(started(url), variant="amqp-tls") as session,
        pytest.raises(Unsupported, match=r"plumbline-mq\[tls\]"),
    ):
        session.connect()


def test_at_a_url_in_the_clear_no_certificate_can_be_shown(url: AmqpUrl) -> None:
    target = open_target(RunningTarget(url, {"amqp-tls": url}))
    with (
        AmqpSession(target, variant="amqp-tls") as session,
        pytest.raises(Unsupported, match="does not begin with amqps://"),
    ):
        session.url_with_certificate("certified")


def test_unsupported_reason_at_a_url_names_the_option(url: AmqpUrl) -> None:
    with (
        AmqpSession(open_target(url), variant=VARIANT) as session,
        pytest.raises(Unsupported, match=f"--variant {VARIANT}=URL"),
    ):
        session.connect()


def test_a_given_url_is_used_and_raises_no_alarm(url: AmqpUrl) -> None:
    target = open_target(RunningTarget(url, {VARIANT: url}))
    with AmqpSession(target, variant=VARIANT) as session:
        session.connect()
        with pytest.raises(Unsupported, match="did not start"):
            session.variant_server(VARIANT)


def test_all_checks_of_a_variant_are_one_group() -> None:
    groups = {check.group for check in all_checks() if check.variant == VARIANT}
    assert groups == {VARIANT}
    assert not any(check.group for check in all_checks() if check.variant == "auth")
