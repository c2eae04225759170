"""NATS' compatibility tests of client libraries, played to the responders of their vendors."""
