"""Captures at scale, with PySpark: packets -> operations -> violations -> compliance tables."""
