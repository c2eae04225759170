"""The Quint models against servers: correct servers follow them; errors in a model or a broker are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from plumbline.conformance.models import amqp, jetstream, quint
from plumbline.conformance.models.model import Model
from plumbline.conformance.models.search import ModelSearch
from plumbline.conformance.outcomes import Failed
from plumbline.conformance.requirements.catalogue import Catalogue
from plumbline.conformance.sessions.opening import open_session
from plumbline.conformance.targets.running import RunningTarget
from plumbline.conformance.targets.target import TargetAccess, open_target
from plumbline.conformance.targets.urls import parse_url
from plumbline.conformance.trace.cases import parse_trace
from plumbline.conformance.trace.player import play
from plumbline.reference_broker.amqp.server import AmqpBroker
from plumbline.reference_broker.nats.server import NatsBroker
from plumbline.servers.amqp.rabbitmq import RabbitMQ
from plumbline.servers.nats.nats_server import NatsServer, version_of
from plumbline.servers.npm import npm_program
from plumbline.versions import numbers
from tests.conftest import servers_required

pytestmark = pytest.mark.slow  # Quint needs seconds for each run; make test-all runs it

SEED, STEPS, TRACES = 11, 25, 25
PATIENCE_S = 120.0
INVARIANT = "val isSound: bool ="
MODELS = {"nats": jetstream.MODEL, "amqp": amqp.MODEL}
BROKERS: dict[str, Callable[..., AbstractContextManager[str]]] = {
    "nats": lambda *defects: NatsBroker.in_thread(jetstream=True, defect=defects),
    "amqp": lambda *defects: AmqpBroker.in_thread(defect=defects),
}

# (protocol, line of the model, the line with the error)
PLANTED = [
    pytest.param("nats", '"+WPI") state', '"+WPI") acknowledged(state, seq)', id="nats-progress"),
    pytest.param("nats", ">= s.settings.max_deliver)", "> s.settings.max_deliver)", id="nats-max-deliver"),
    pytest.param("amqp", "one.tag < tag)", "one.tag <= tag + 1)", id="amqp-multiple"),
    pytest.param("amqp", "ready.select(one => one.id < message.id)", "ready", id="amqp-requeued-to-the-end"),
]
DEFECTS = [
    ("nats", "ack-floor-passes-a-gap"),
    ("nats", "nak-acknowledges"),
    ("amqp", "ack-multiple-settles-one-more"),
    ("amqp", "acks-are-forgotten"),
]


@pytest.fixture(scope="module")
def program() -> Path:
    """Quint."""
    found = npm_program("quint")
    if found is None:
        reason = "no quint: make servers (needs npm)"
        if servers_required():
            pytest.fail(reason, pytrace=False)
        pytest.skip(reason)
    return found


@pytest.fixture(params=["nats", "amqp"])
def protocol(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(url: str) -> TargetAccess:
    return open_target(RunningTarget(parse_url(url)), run="models")


def searched(
    program: Path, model: Model, url: str, *, most: int | None = None, path: Path | None = None
) -> ModelSearch:
    """Traces of the model played to the server at ``url``."""
    search = ModelSearch(model, opened(url), Catalogue.load(), seconds=PATIENCE_S, most=most)
    search.run(quint.traces(program, model, TRACES, seed=SEED, steps=STEPS, path=path))
    return search


def found_in(search: ModelSearch) -> list[tuple[str, str]]:
    return [(one.result.message, one.text) for one in search.differences]


def test_the_reference_broker_follows_the_model(protocol: str, program: Path) -> None:
    with BROKERS[protocol]() as url:
        search = searched(program, MODELS[protocol], url)
    assert found_in(search) == []
    assert not search.progress.unclear
    assert search.progress.traces == TRACES
    assert search.progress.steps == TRACES * (STEPS + 1)


@pytest.mark.parametrize(("protocol", "right", "wrong"), PLANTED)
def test_an_error_in_the_model_is_found(
    protocol: str, right: str, wrong: str, program: Path, tmp_path: Path
) -> None:
    model = MODELS[protocol]
    text = model.path.read_text("utf-8")
    assert text.count(right) == 1
    path = tmp_path / model.file
    path.write_text(text.replace(right, wrong).replace(INVARIANT, f"{INVARIANT} true or"))
    with BROKERS[protocol]() as url:
        assert searched(program, model, url, most=1, path=path).differences


@pytest.mark.parametrize(("protocol", "defect"), DEFECTS)
def test_a_defect_of_the_broker_is_found_with_a_trace_that_shows_it(
    protocol: str, defect: str, program: Path
) -> None:
    with BROKERS[protocol](defect) as url:
        (found,) = searched(program, MODELS[protocol], url, most=1).differences
        with pytest.raises(Failed):
            replay(found.text, url)
    with BROKERS[protocol]() as url:
        replay(found.text, url)


def replay(text: str, url: str) -> None:
    """Raises ``Failed``."""
    with open_session(opened(url)) as session:
        play(parse_trace(text, "found"), session)


def test_a_real_nats_server_follows_the_model(program: Path, nats_server: NatsServer) -> None:
    search = searched(program, jetstream.MODEL, nats_server.url)
    if numbers(version_of(Path(nats_server.binary))) >= (2, 11):
        assert found_in(search) == []
    else:  # which does not answer after a message was given up: conformance/models/README.md
        assert {(one.command, "max_deliver=-1" in one.text) for one in search.differences} == {
            ("pull_no_wait", False)
        }


def test_a_real_rabbitmq_follows_the_model(program: Path, rabbitmq: RabbitMQ) -> None:
    assert found_in(searched(program, amqp.MODEL, rabbitmq.url)) == []


def test_a_model_that_breaks_its_invariant_is_an_error(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "wrong.qnt"
    text = amqp.MODEL.path.read_text("utf-8")
    path.write_text(text.replace(INVARIANT, f"{INVARIANT} state.published < 2 and"))
    with pytest.raises(quint.QuintError, match=r"wrong\.qnt: quint ended with exit code 1"):
        list(quint.traces(program, amqp.MODEL, 3, seed=SEED, steps=STEPS, path=path))


def test_the_same_seed_gives_the_same_traces(program: Path) -> None:
    one, other = (
        [amqp.MODEL.steps(itf) for itf in quint.traces(program, amqp.MODEL, 2, seed=SEED, steps=5)]
        for _ in range(2)
    )
    assert one == other
