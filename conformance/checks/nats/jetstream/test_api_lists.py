"""Lists of streams and consumers, and what they leave out. docs.nats.io, "JetStream wire API Reference".

Lists are asked for with a subject of this run, so that other streams of the account are not in them.
"""

from __future__ import annotations

from plumbline.conformance.check import verifies
from plumbline.conformance.checks.nats.jetstream.api_answers import Answer, field, fits, shows
from plumbline.conformance.nats.session import NatsSession

SOURCE = 'docs.nats.io, "JetStream wire API Reference"'
PAGE = 256  # infos
TYPE = "io.nats.jetstream.api.v1.stream_{}_response"


@verifies("JS-API-068", source=SOURCE)
def test_names_are_sorted(session: NatsSession) -> None:
    """STREAM.NAMES gives the names of streams, sorted, with total, offset and limit."""
    answer, names = _two(session, "NAMES")
    _is_page(session, answer, "names", total=2, offset=0, limit=1024)
    shows(session, answer, "streams", names)


@verifies("JS-API-069", source=SOURCE)
def test_names_of_a_subject(session: NatsSession) -> None:
    """STREAM.NAMES with a subject gives the streams that listen on it."""
    _, names = _two(session, "NAMES")
    for label, name in zip("ab", names, strict=True):
        answer = session.stage.answer("STREAM.NAMES", body={"subject": f"{session.name('s')}.{label}"})
        shows(session, answer, "streams", [name])


@verifies("JS-API-070", source=SOURCE)
def test_names_from_an_offset(session: NatsSession) -> None:
    """STREAM.NAMES with an offset leaves out as many names."""
    answer, names = _two(session, "NAMES", offset=1)
    _has_numbers(session, answer, total=2, offset=1)
    shows(session, answer, "streams", names[1:])


@verifies("JS-API-071", source="observed, nats-server 2.9.10 and 2.15")
def test_names_from_an_offset_beyond_the_total(session: NatsSession) -> None:
    """STREAM.NAMES with an offset beyond the total gives no names."""
    answer, _ = _two(session, "NAMES", offset=7)
    _has_numbers(session, answer, total=2, offset=2)
    _has_none(session, answer)


@verifies("JS-API-072", source=SOURCE)
def test_list_gives_the_info_of_each_stream(session: NatsSession) -> None:
    """STREAM.LIST gives the info of each stream, with total, offset and limit."""
    answer, names = _two(session, "LIST")
    _is_page(session, answer, "list", total=2, offset=0, limit=256)
    infos = field(answer, "streams")
    session.require(
        isinstance(infos, list)
        and [info.get("config", {}).get("name") for info in infos] == names
        and all({"config", "created", "state"} <= set(info) for info in infos),
        "streams is another",
        expected=f"the infos of {' and '.join(names)}, each with config, created and state",
        actual=str(infos),
    )


@verifies("JS-API-073", source=SOURCE)
def test_names_of_no_stream(session: NatsSession) -> None:
    """STREAM.NAMES that finds nothing has total 0 and no names."""
    answer = session.stage.answer("STREAM.NAMES", body={"subject": session.name("unused")})
    _has_numbers(session, answer, total=0, offset=0)
    _has_none(session, answer)


@verifies("JS-API-074", source=SOURCE)
def test_list_of_no_stream(session: NatsSession) -> None:
    """STREAM.LIST that finds nothing has total 0 and no streams."""
    answer = session.stage.answer("STREAM.LIST", body={"subject": session.name("unused")})
    _has_numbers(session, answer, total=0, offset=0)
    _has_none(session, answer)


@verifies("JS-API-078", source=SOURCE)
def test_info_counts_by_subject(session: NatsSession) -> None:
    """STREAM.INFO with a subjects_filter counts the messages of each subject that matches."""
    subjects = [f"{session.name('s')}.{label}" for label in "abc"]
    stream = session.stage.stream("S", subjects)
    for subject in (*subjects, subjects[0]):
        session.stage.publish(subject)
    for wanted, counts in ((">", (2, 1, 1)), (subjects[0], (2,))):
        answer = session.stage.answer("STREAM.INFO", stream, body={"subjects_filter": wanted})
        shows(session, answer, "state.subjects", dict(zip(subjects, counts, strict=False)))
        shows(session, answer, "offset", 0)


@verifies("JS-API-078", source=SOURCE)
def test_info_counts_what_is_left(session: NatsSession) -> None:
    """The counts of a subjects_filter with * leave out longer subjects, and what was removed."""
    prefix = session.name("s")
    stream = session.stage.stream("S", [f"{prefix}.>"])
    for label in ("a", "b", "a", "a.x", "c", "a"):
        session.stage.publish(f"{prefix}.{label}")
    _counts(session, stream, f"{prefix}.*", {f"{prefix}.a": 3, f"{prefix}.b": 1, f"{prefix}.c": 1})
    for seq in (2, 3):
        session.stage.api("STREAM.MSG.DELETE", stream, body={"seq": seq})
    session.stage.api("STREAM.PURGE", stream, body={"filter": f"{prefix}.c"})
    session.stage.publish(f"{prefix}.c")
    _counts(session, stream, ">", {f"{prefix}.a": 2, f"{prefix}.a.x": 1, f"{prefix}.c": 1})


@verifies("JS-API-151", source=SOURCE, is_long=True)
def test_list_of_consumers_comes_in_pages(session: NatsSession) -> None:
    """CONSUMER.LIST gives 256 consumers at a time, and the rest from offset 256 on."""
    stream = session.stage.stream("S", [session.name("s")])
    names = [f"C{number:03}" for number in range(PAGE + 1)]
    configs = [{"durable_name": name, "ack_policy": "explicit"} for name in names]
    session.stage.api_all(
        "CONSUMER.DURABLE.CREATE",
        [((stream, config["durable_name"]), {"stream_name": stream, "config": config}) for config in configs],
    )
    for offset, expected in ((0, names[:PAGE]), (PAGE, names[PAGE:])):
        answer = session.stage.page("CONSUMER.LIST", stream, total=PAGE + 1, body={"offset": offset})
        _has_numbers(session, answer, total=PAGE + 1, offset=offset, limit=PAGE)
        infos = field(answer, "consumers")
        session.require(
            isinstance(infos, list) and [info.get("name") for info in infos] == expected,
            f"the page from {offset} on is another",
            expected=f"the infos of {len(expected)} consumers, {expected[0]} to {expected[-1]}",
            actual=str([info.get("name") for info in infos]) if isinstance(infos, list) else str(infos),
        )


def _counts(session: NatsSession, stream: str, wanted: str, counts: dict[str, int]) -> None:
    """The counts of ``subjects_filter`` ``wanted`` are these and no others."""
    answer = session.stage.answer("STREAM.INFO", stream, body={"subjects_filter": wanted})
    shows(session, answer, "state.subjects", counts)


def _two(session: NatsSession, verb: str, **body: object) -> tuple[Answer, list[str]]:
    """The answer to ``verb`` about two streams, and their names; the later name is made first."""
    subject = session.name("s")
    names = [session.stage.stream(label, [f"{subject}.{label}"]) for label in "ba"]
    wanted = {"subject": f"{subject}.*", **body}
    return session.stage.page(f"STREAM.{verb}", total=len(names), body=wanted), names[::-1]


def _is_page(session: NatsSession, answer: Answer, kind: str, **numbers: int) -> None:
    shows(session, answer, "type", TYPE.format(kind))
    _has_numbers(session, answer, **numbers)


def _has_numbers(session: NatsSession, answer: Answer, **numbers: int) -> None:
    for name, number in numbers.items():
        shows(session, answer, name, number)


def _has_none(session: NatsSession, answer: Answer) -> None:
    fits(session, answer, "streams", lambda found: found is None or found == [], "streams: null or []")
