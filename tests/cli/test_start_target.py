"""The target of verify and explore: one rule for what a command line may name."""

from __future__ import annotations

import pytest

from plumbline.cli.embedded_brokers import EMBEDDED_AMQP, MAIN, configurations
from plumbline.cli.start_target import NATS, TargetChoice, choose_target
from plumbline.conformance.targets.access import Access
from plumbline.errors import TargetUnreachable, UsageProblem
from plumbline.tls import TlsOptions
from tests.conformance.scripted import closing, nats, scripted

PLAIN = {MAIN: configurations()[MAIN]}
URL = "nats://127.0.0.1:4222"


@pytest.mark.parametrize(
    "choice",
    [
        TargetChoice(url=URL, server="nats-server"),
        TargetChoice(url=URL, target="nats-server"),
        TargetChoice(server="nats-server", target="nats-server"),
    ],
)
def test_only_one_target_may_be_named(choice: TargetChoice) -> None:
    with pytest.raises(UsageProblem, match="give only one of URL, --server and --target"):
        choose_target(choice, PLAIN)


@pytest.mark.parametrize(
    "choice",
    [
        TargetChoice(url=URL, defects=("x",)),
        TargetChoice(server="nats-server", defects=("x",)),
        TargetChoice(target="nats-server", defects=("x",)),
    ],
)
def test_a_defect_needs_an_embedded_broker(choice: TargetChoice) -> None:
    with pytest.raises(
        UsageProblem,
        match="--defect works only with the embedded reference broker: remove the URL, --server and --target",
    ):
        choose_target(choice, PLAIN)


def test_a_server_of_another_protocol_is_refused_before_it_is_installed() -> None:
    choice = TargetChoice(target="rabbitmq")
    with (
        pytest.raises(UsageProblem, match="rabbitmq is a server for amqp; this command supports nats"),
        choose_target(choice, PLAIN, [NATS]),
    ):
        pass


def test_embedded_brokers_are_started_with_defects_and_level() -> None:
    choice = TargetChoice(level="2.10", defects=("nak-acknowledges",))
    with choose_target(choice, PLAIN, [NATS]) as served:
        assert served.arguments == ("--defect=nak-acknowledges", "--level=2.10")
        assert served.has_level
        assert served.variants == {}


def test_the_embedded_amqp_broker_is_named_instead_of_a_url() -> None:
    with choose_target(TargetChoice(url=EMBEDDED_AMQP), PLAIN) as served:
        assert served.arguments == ("amqp",)


def test_of_several_urls_the_first_that_answers_is_the_target() -> None:
    with scripted(nats(lambda *_: None)) as address, scripted(closing) as gone:
        for text in (
            f"nats://127.0.0.1:1,nats://{address},nats://{gone}",
            f"{gone},{address}",
            f"nats://a:b,c@{gone},nats://a:b,c@{address}",
        ):
            with choose_target(TargetChoice(url=text), PLAIN) as running:
                assert running.url.address == address
        with pytest.raises(TargetUnreachable, match=r"connection refused.*without a word of NATS"):
            choose_target(TargetChoice(url=f"nats://127.0.0.1:1,nats://{gone}"), PLAIN)


def test_options_for_a_url_need_one() -> None:
    choice = TargetChoice(server="nats-server", access=Access(tls=TlsOptions(name="x")))
    with pytest.raises(UsageProblem, match="--tls-name needs a URL"):
        choose_target(choice, PLAIN)
