"""The pytest plugin that other projects use."""

from __future__ import annotations

import subprocess
import sys

import pytest

pytest_plugins = ["pytester"]

TESTS = """
    import socket
    from urllib.parse import urlsplit

    import pytest

    def info(url):
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as connection:
            return connection.recv(65536)

    def test_it_is_there(nats_broker):
        assert b'"headers":true' in info(nats_broker)

    @pytest.mark.nats_broker(no_header_support=True, jetstream=False)
    def test_it_can_be_set_up(nats_broker):
        assert b'"headers":false' in info(nats_broker)

    def test_where_it_was(nats_broker, request):
        request.config.stash_url = nats_broker

    def test_it_is_gone_after_its_test(request):
        with pytest.raises(ConnectionRefusedError):
            info(request.config.stash_url)
"""


def test_each_test_gets_a_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    # Where Plumbline is installed, its entry point has loaded the same module under another name.
    plugins = ("no:plumbline-broker", "reference_broker.fixtures", "no:cacheprovider")
    result = pytester.runpytest_inprocess(*(f"-p{plugin}" for plugin in plugins))
    result.assert_outcomes(passed=4)


def test_loading_the_plugin_is_cheap() -> None:
    script = """
import pytest, sys
had = set(sys.modules)
import reference_broker.fixtures
print(sorted(name for name in set(sys.modules) - had if not name.startswith("reference_broker")))
"""
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert answer.stdout == "[]\n"


AMQP_TESTS = """
    import socket
    from urllib.parse import urlsplit

    import pytest

    from wire.amqp import PROTOCOL_HEADER

    def start(url):
        with socket.create_connection((urlsplit(url).hostname, urlsplit(url).port)) as connection:
            connection.sendall(PROTOCOL_HEADER)
            return connection.recv(65536)

    def test_it_is_there(amqp_broker):
        assert b"PLAIN AMQPLAIN" in start(amqp_broker)

    @pytest.mark.amqp_broker(users={"a": "b"}, vhosts=["v"])
    def test_it_can_be_set_up(amqp_broker):
        assert amqp_broker.startswith("amqp://a:b@127.0.0.1:")
        assert amqp_broker.endswith("/v")
"""


def test_each_test_gets_an_amqp_broker_of_its_own(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(AMQP_TESTS)
    plugins = ("no:plumbline-broker", "reference_broker.fixtures", "no:cacheprovider")
    result = pytester.runpytest_inprocess(*(f"-p{plugin}" for plugin in plugins))
    result.assert_outcomes(passed=2)
