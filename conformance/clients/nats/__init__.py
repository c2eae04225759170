"""Scenarios that speak NATS."""
