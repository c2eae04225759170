"""Checks that speak NATS: session, connections, the JetStream API to set the stage, the probe."""
