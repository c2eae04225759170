"""The addon for mitmproxy: content views of both protocols, and captures of what it relays."""
