"""One Spark session for each process of tests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from plumbline.pipeline.spark.java import JavaNotFoundError, java_home
from plumbline.pipeline.spark.session import session
from tests.conftest import servers_required

IS_SLOW_TOO = bool(os.environ.get("PLUMBLINE_SLOW_SPARK"))
# Each takes minutes, for it starts Spark processes of its own or streams.
SLOW = pytest.mark.skipif(
    not IS_SLOW_TOO,
    reason="takes minutes: PLUMBLINE_SLOW_SPARK=1 make test ARGS=tests/pipeline",
)

# Tables of a few rows: what Java and Spark spend on making code fast costs more than it saves.
SETTINGS = {
    "spark.driver.defaultJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.memory": "1g",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.fixture(scope="session")
def java() -> Path:
    """The folder of Java. Without one: skipped, and a failure where CI is set."""
    try:
        return java_home()
    except JavaNotFoundError as missing:
        if servers_required():
            pytest.fail(str(missing), pytrace=False)
        pytest.skip(str(missing))


@pytest.fixture(scope="session")
def spark(java: Path) -> Iterator[SparkSession]:
    """Two threads, two shuffle partitions."""
    running = session("local[2]", SETTINGS)
    yield running
    running.stop()


@pytest.fixture(params=["local", "spark"])
def engine(request: pytest.FixtureRequest) -> SparkSession | None:
    """What makes rows of tables. Each test runs twice: with PyArrow (None) and with Spark."""
    if request.param == "local":
        return None
    session: SparkSession = request.getfixturevalue("spark")
    return session


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The start of Spark counts against the time of whichever test comes first."""
    for item in items:
        if {"spark", "engine"} & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.timeout(7200 if IS_SLOW_TOO else 1800))
