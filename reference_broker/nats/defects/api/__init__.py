"""Defects of requests to the JetStream API and their answers."""
