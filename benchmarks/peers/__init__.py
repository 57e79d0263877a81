"""A comparison with other queues on the same databases, each in its own environment and through its public API."""
