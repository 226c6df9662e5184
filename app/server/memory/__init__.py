"""Memory of stored music, and of the process."""
