"""A second model, in Quint, of what the reference brokers do: see README.md in this folder."""
