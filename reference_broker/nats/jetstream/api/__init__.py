"""The JetStream API: requests, their routing, and a module for each object that they are about."""
