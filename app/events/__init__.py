"""The words of the log: what an event is, how it is spelled, which ones there are."""
