"""Real nats-servers: found on this machine and started with a configuration."""
