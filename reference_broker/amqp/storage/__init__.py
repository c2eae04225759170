"""What an AMQP broker keeps on disk: records of durable changes, and what a restart makes of them."""
