"""Adapters of agent frameworks: each module needs its extra, and is imported only when it is served."""
