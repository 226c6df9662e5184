"""Classification: what its tasks have in common."""
