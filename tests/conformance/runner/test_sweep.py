"""What a run deletes at its end: whatever bears its prefix, and nothing else."""

from __future__ import annotations

from plumbline.conformance.nats.session import NatsSession
from plumbline.conformance.runner.sweep import sweep
from plumbline.conformance.targets.target import NatsUrl, open_target
from plumbline.reference_broker.nats.config import Config
from plumbline.reference_broker.nats.server import NatsBroker
from tests.conformance.streams import THEIRS, make_streams, stream_names


def test_streams_of_the_run_are_deleted_and_those_of_buckets_too() -> None:
    with NatsBroker.in_thread(Config.of(jetstream=True)) as url:
        make_streams(url)
        with NatsSession(open_target(NatsUrl.parse(url))) as session:
            names = [session.name(label) for label in ("ORDERS", "KV_cfg", "OBJ_files")]
            for number, name in enumerate(names):
                body = {"name": name, "subjects": [session.name(f"s{number}")], "storage": "memory"}
                session.stage.api("STREAM.CREATE", name, body=body)
            assert sorted(sweep(session.target)) == sorted(names)
            assert stream_names(url) == sorted(THEIRS)


def test_the_stream_of_a_bucket_has_the_name_of_the_bucket_in_its_own() -> None:
    with (
        NatsBroker.in_thread(Config.of(jetstream=True)) as url,
        NatsSession(open_target(NatsUrl.parse(url))) as session,
    ):
        assert session.name("KV_cfg") == "KV_" + session.name("cfg")
        assert session.name("OBJ_files") == "OBJ_" + session.name("files")
