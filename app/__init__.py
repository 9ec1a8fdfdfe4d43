"""A Tarko-compatible event server: the session is a durable log."""

__version__ = "0.1.0"
