"""Turns: one a session at a time, each with exactly one ending."""
