"""The process of ``plumbline-rabbitmq``: files, sockets, signals and log around the pure parts."""
