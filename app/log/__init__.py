"""The durable log of a session: written by group commit, read by cursors."""
