"""The Agent Handler over HTTP, as FastAgent's clients speak it: one request is one turn, its answer the turn's events."""
