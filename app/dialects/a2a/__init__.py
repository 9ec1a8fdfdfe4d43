"""A2A 1.0 and 0.3 over JSON-RPC: a session is a context, an exchange of its turns is a task."""
