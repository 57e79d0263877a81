"""What runs: workers, dispatchers, and how they pace themselves."""
