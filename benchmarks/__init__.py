"""Benchmarks: the claim-contention harness comes here; see the open work."""
