"""Scenarios for client libraries of NATS and JetStream."""
