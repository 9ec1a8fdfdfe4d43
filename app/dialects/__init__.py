"""One folder, one outward protocol. They do not know each other."""
