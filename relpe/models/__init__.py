"""Models, and their configuration and weights on disk."""
