"""Bytes to readers: cursors that follow a log over SSE and sockets. It knows no dialect by name."""
