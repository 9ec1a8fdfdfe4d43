"""The flat "runtime" dialect that the official Tarko UI speaks, under `/ui/api/v1`, and the UI's page at `/ui/`."""
