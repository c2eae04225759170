"""The pytest plugin that other projects use."""

from __future__ import annotations

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


def test_nats_broker_is_fresh_per_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(TESTS)
    result = pytester.runpytest_inprocess("-pno:cacheprovider")
    result.assert_outcomes(passed=4)


AMQP_TESTS = """
    import socket
    from urllib.parse import urlsplit

    import pytest

    from plumbline.wire.amqp import PROTOCOL_HEADER

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


def test_amqp_broker_is_fresh_per_test(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(AMQP_TESTS)
    result = pytester.runpytest_inprocess("-pno:cacheprovider")
    result.assert_outcomes(passed=2)
