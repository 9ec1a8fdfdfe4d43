"""Tarko's Agent Protocol as it is documented: `/api/v1` and `/ws`."""
