"""Breaks a server on purpose and looks, offline, for what must never be.

`local` starts servers of its own with an agent that keeps a journal, and breaks them, their database and their network;
`deployment` troubles a server that runs already. Both bring their evidence to `checker`. Nothing else imports this.
"""
