"""Captures as DataFrames: files, sections, packets, bundles of packets, the Spark data source."""
