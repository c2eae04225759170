"""Writes the page of a result into the folder of its tables."""

from __future__ import annotations

from pyspark.sql import SparkSession

from plumbline.pipeline.page.gather import gather
from plumbline.pipeline.page.html import render
from plumbline.pipeline.results import Results
from plumbline.pipeline.spark.storage import folder

PAGE = "plumbline-report.html"


def write_page(spark: SparkSession, place: str) -> str:
    """The page of the result in the folder ``place``, replaced in one step; gives its address.

    Raises ``ResultNotFoundError``.
    """
    results = Results(spark, place)
    tables = {name: results.table(name) for name in results.manifest.tables}
    pages = folder(place, spark)
    pages.replace(PAGE, render(gather(tables)).decode())
    return pages.at(PAGE)
