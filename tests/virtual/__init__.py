"""The suite on reference brokers of this process: no sockets, and a clock that waiting moves."""
