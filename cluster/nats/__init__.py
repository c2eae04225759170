"""Clusters of nats-server: nodes whose routes pass relays, and a workload on a replicated stream."""
