"""Sans-I/O codecs: bytes <-> operations.

No module here opens a socket, reads a clock, starts a task or imports another package of ours.
A codec takes bytes in any segmentation and returns operations, or raises ``ProtocolError``.
"""
