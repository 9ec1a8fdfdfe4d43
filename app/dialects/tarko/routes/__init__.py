"""The routes: they read, call and write, and decide nothing that could be decided without I/O."""
