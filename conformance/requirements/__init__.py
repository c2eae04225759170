"""The requirements: TOML files by protocol, the code that loads them, and the coverage by checks."""
