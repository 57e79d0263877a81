"""Torture: real processes on a throw-away queue, faults by a seeded scheduler, and the checker's verdict at the end."""
