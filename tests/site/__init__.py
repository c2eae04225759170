"""The published table: one site of all servers and libraries."""
