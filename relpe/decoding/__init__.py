"""Token-by-token generation."""
