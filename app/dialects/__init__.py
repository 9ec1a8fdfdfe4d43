"""One folder, one outward protocol. They do not know each other; the modules here are what their routes share."""
