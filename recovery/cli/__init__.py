"""The command: one short function for each thing that a person asks; it prints what the library says."""
