"""Sessions: who they belong to, what they are called, and where they are kept."""
