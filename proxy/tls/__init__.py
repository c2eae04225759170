"""TLS at the proxy: contexts, certificates, and what happens before bytes are relayed."""
