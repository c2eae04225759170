"""The configuration language of nats-server: values, places, and the same verdict as the real server."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path, PurePath
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plumbline.reference_broker.nats.config import ConfigError
from plumbline.reference_broker.nats.drop_in.language import parse, plain
from plumbline.reference_broker.nats.drop_in.settings import settings
from plumbline.servers.nats.nats_server import ServerBinary
from plumbline.versions import numbers
from tests.patience import HANGS_AFTER_S

# Text -> values. Every one of them is a configuration that the real server reads.
SAMPLES: Mapping[str, Any] = {
    "port: 4222": {"port": 4222},
    "port = 4222\n": {"port": 4222},
    "port 4222;": {"port": 4222},
    "# a comment\nport: 4222 // another\n": {"port": 4222},
    '{"port": 4222, "debug": false}': {"port": 4222, "debug": False},
    "max_payload: 1MB": {"max_payload": 1024**2},
    "max_payload: 8k": {"max_payload": 8000},
    'max_payload: 64Kib\nserver_name: "a{b"': {"max_payload": 65536, "server_name": "a{b"},
    "server_name: 'it\\x'": {"server_name": "it\\x"},
    'server_name: "a\\tb\\x41"': {"server_name": "a\tbA"},
    "host: 127.0.0.1": {"host": "127.0.0.1"},
    "listen: 127.0.0.1:4222": {"listen": "127.0.0.1:4222"},
    "port: -1": {"port": -1},
    "debug: yes\ntrace: OFF": {"debug": True, "trace": False},
    "jetstream {\n  max_mem: 1G\n  domain: hub\n}": {"jetstream": {"max_mem": 10**9, "domain": "hub"}},
    "jetstream: {max_mem: 1GB, domain: hub}": {"jetstream": {"max_mem": 2**30, "domain": "hub"}},
    "server_tags: [a, b, 'c d']": {"server_tags": ["a", "b", "c d"]},
    "server_tags: [\n  a\n  b # the second\n]": {"server_tags": ["a", "b"]},
    "authorization {users = [{user: a, pass: b}\n {user: c, password: d}]}": {
        "authorization": {"users": [{"user": "a", "pass": "b"}, {"user": "c", "password": "d"}]}
    },
    "server_tags: [ $2a$11$xyz ]": {"server_tags": ["$2a$11$xyz"]},
    "P = 4333\nport: $P": {"P": 4333, "port": 4333},
    "authorization {T = s3cret\n token: $T}": {"authorization": {"T": "s3cret", "token": "s3cret"}},
    "authorization: {timeout: 1.5}": {"authorization": {"timeout": 1.5}},
    "server_name: (\na\nb\n)\n": {"server_name": "\na\nb\n"},
    "\"port\": 4222\n'debug': true": {"port": 4222, "debug": True},
    "port: 4222\n}": {"port": 4222},
}
REFUSED = (
    "",
    'server_name: "a b"',
    "port: 4222 {",
    "]",
    "port",
    "jetstream {",
    "jetstream { domain: }",
    "server_tags: [a",
    "server_tags: [a b]",
    "server_tags: [,]",
    'server_name: "a',
    'server_name: "\\q"',
    "server_name: $NOT_SET_ANYWHERE",
    "port: .5",
    "port: 1.",
    "port: 99999999999999999999",
    "debug: 2016-13-45T99:99:99Z",
    "include nowhere.conf",
    "include [a]",
    "= 4",
    "port:\n4222",
    "frobnicate: 1",
    "jetstream { frobnicate: 1 }",
    "port: text",
    "debug: 7",
    "ping_interval: 2",
    "ping_interval: soon",
    "lame_duck_duration: 1s",
    "tls { cert_file: nowhere.pem, key_file: nowhere.pem }",
    "authorization { user: a, token: b }",
    "authorization { users: [{pass: b}] }",
)
# What servers of 2022 still read: nothing, or a key without a value.
ONCE_READ = ("", "]", "port", 'server_name: "a b"')


@pytest.mark.parametrize("text", SAMPLES)
def test_values(text: str) -> None:
    assert plain(parse(text)) == SAMPLES[text]


def test_a_date() -> None:
    assert plain(parse("d = 2016-05-04T18:53:41Z")) == {"d": datetime(2016, 5, 4, 18, 53, 41, tzinfo=UTC)}


def test_a_value_has_the_place_of_its_key() -> None:
    fields = parse("port: 1\njetstream {\n  domain: x }", "a.conf")
    domain = fields["jetstream"].value["domain"]
    assert (domain.file, domain.line, domain.column) == ("a.conf", 3, 3)
    assert (fields["port"].line, fields["port"].column) == (1, 0)


def test_an_include_is_in_the_folder_of_its_file_and_in_its_block() -> None:
    files = {"etc/users.conf": "users = [{user: a}]", "etc/more.conf": "include 'users.conf'\ntimeout: 2"}
    text = "authorization {\n  include more.conf\n}\nport 1"
    fields = parse(text, "etc/main.conf", read=lambda path: files[str(path)])
    assert plain(fields) == {"authorization": {"users": [{"user": "a"}], "timeout": 2}, "port": 1}


def test_files_that_include_each_other_are_refused() -> None:
    def itself(path: PurePath) -> str:
        return "include again.conf"

    with pytest.raises(ConfigError, match="include each other"):
        parse("include again.conf", "main.conf", read=itself)


def test_a_variable_of_the_environment_is_read_as_a_value() -> None:
    environment = {"N": "64MB", "A": "[x, y]", "LOOP": "$LOOP"}
    assert plain(parse("a: $N\nb: $A", environment=environment)) == {"a": 64 * 2**20, "b": ["x", "y"]}
    with pytest.raises(ConfigError, match="cycle"):
        parse("a: $LOOP", environment=environment)


def test_the_nearest_block_gives_a_variable_its_value() -> None:
    assert plain(parse("a: 1\nb { a: 2, c: $a }\nd: $a")) == {"a": 1, "b": {"a": 2, "c": 2}, "d": 1}


@pytest.mark.parametrize(
    "text", ["[" * 5000, "a {" * 5000, "a " * 5000 + "{", "a: [" + "[" * 5000 + "]" * 5001]
)
def test_deep_nesting_is_an_error_and_no_crash(text: str) -> None:
    with pytest.raises(ConfigError):
        parse(text)


@pytest.mark.parametrize("text", ['a: "\\xff"', b"a: \xff".decode(errors="surrogateescape")])
def test_what_is_not_utf_8_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="UTF-8"):
        parse(text)


_NAMES = st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(
    lambda name: name not in ("include", "true", "false", "yes", "no", "on", "off")
)
_LEAVES = (
    st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
    | st.floats(0, 1e9, allow_nan=False).map(lambda number: round(number, 3))
)
_VALUES = st.recursive(
    _LEAVES,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_NAMES, inner, max_size=4),
    max_leaves=12,
)


@given(st.dictionaries(_NAMES, _VALUES, max_size=5), st.sampled_from(["=", ":", " "]), st.booleans())
def test_what_is_written_is_read_again(fields: dict[str, Any], separator: str, in_braces: bool) -> None:
    lines = [f"{name} {separator} {written(value, separator)}" for name, value in fields.items()]
    text = "\n".join(["{", *lines, "}"] if in_braces else lines)
    assert plain(parse(text)) == fields


@given(st.text(max_size=60) | st.text(st.sampled_from("{}[]()=:,;$#/\"'\\ \n\t01.-aZkMx\0"), max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with suppress(ConfigError):
        parse(text, "x.conf")


def written(value: Any, separator: str) -> str:
    """A value in the language."""
    match value:
        case bool():
            return "true" if value else "false"
        case dict():
            inner = ", ".join(
                f'"{name}" {separator} {written(one, separator)}' for name, one in value.items()
            )
            return f"{{ {inner} }}"
        case list():
            return f"[ {' , '.join(written(one, separator) for one in value)} ]"
        case str():
            text = value.replace("\\", "\\\\").replace('"', '\\"')
            return f'"{text}"'
        case float():
            return f"{value:.3f}"
    return str(value)


@pytest.mark.parametrize("text", [*SAMPLES, *REFUSED])
def test_the_real_server_reads_and_refuses_the_same(
    text: str, server_binary: ServerBinary, tmp_path: Path
) -> None:
    from plumbline.reference_broker.nats.drop_in.shell.program import run

    file = tmp_path / "server.conf"
    file.write_text(text)
    real = subprocess.run(
        [server_binary.path, "-t", "-c", file],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER_S,
        check=False,
    )
    ours = run(["-t", "-c", str(file)])
    assert (ours == 0) == (text in SAMPLES)
    is_read = text in SAMPLES or (text in ONCE_READ and numbers(server_binary.version) < (2, 10))
    assert (real.returncode == 0) == is_read, real.stderr


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("resolver: URL(http://127.0.0.1/jwt)", "MEMORY"),
        ("operator: x.jwt", "JWT|chunks"),
        ("mappings { a: [ {destination: b, weight: 60%}, {destination: c, weight: 60%} ] }", "more than 100"),
        ("mappings { a.*: b.$2 }", "out of range"),
        ("mqtt { port: 1883 }", "MQTT"),
        ("authorization { users: [ {user: a, allowed_connection_types: [WEBSOCKET]} ] }", "connection types"),
    ],
)
def test_what_this_server_does_not_have_is_refused_and_not_passed_over(text: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        settings(parse(text, "server.conf"), {})
