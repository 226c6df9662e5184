"""The REMI tokenizers and their grammar."""
