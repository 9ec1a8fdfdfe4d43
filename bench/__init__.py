"""Measures the server against a bare ASGI app that streams the same bytes: `python -m bench`.

Every figure is taken with the server, the bare app and PostgreSQL as processes of their own on this machine, both
servers in turn and through the same client. Nothing outside imports this package.
"""
