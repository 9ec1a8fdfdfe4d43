"""One folder, one outward protocol. They do not know each other; `parts` and `strict` are what their routes share."""
