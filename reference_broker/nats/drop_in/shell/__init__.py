"""The process of ``plumbline-nats-server``: files, sockets, signals and log around the pure parts."""
