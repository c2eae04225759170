"""Clusters of RabbitMQ: nodes whose connections pass relays, and a workload on a quorum queue."""
