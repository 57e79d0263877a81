"""Benchmarks: how the queue behaves when many workers fight for it, on any database, with every figure reproducible.

Run from a checkout as `python -m benchmarks SCENARIO`, and from an installed package as `recovery bench SCENARIO`.
"""
