"""What stands between a client and a server: relay, capture, redaction, faults.

Bytes are forwarded first and decoded on the side; nothing is ever re-framed.
"""
