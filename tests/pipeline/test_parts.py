"""How work is divided among tasks: what belongs together stays together, and the last tasks are short."""

from __future__ import annotations

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  # as the style guide of PySpark writes it

from plumbline.pipeline.transforms import co_partitioned

PARTS, KEYS = 8, 6400
SHARE = KEYS / PARTS**2


def test_parts_shrink_and_each_key_is_in_one(spark: SparkSession) -> None:
    rows = spark.range(2 * KEYS).select((F.col("id") % KEYS).alias("key"))
    placed = co_partitioned(rows, PARTS, F.col("key")).select("key", F.spark_partition_id().alias("part"))
    of_key = placed.groupBy("key").agg(F.collect_set("part").alias("parts"), F.count("*").alias("rows"))
    found = of_key.collect()
    assert {(len(row.parts), row.rows) for row in found} == {(1, 2)}
    sizes = [sum(part in row.parts for row in found) for part in range(PARTS)]
    assert sum(sizes) == KEYS
    for part, size in enumerate(sizes):
        wanted = SHARE * (2 * (PARTS - part) - 1)
        assert abs(size - wanted) < 5 * wanted**0.5, (part, size, wanted)
