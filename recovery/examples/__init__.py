"""Small real programs to start from."""
