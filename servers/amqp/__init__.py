"""Real AMQP 0-9-1 brokers: RabbitMQ, Apache Qpid Broker-J and GarageMQ, started for one run."""
