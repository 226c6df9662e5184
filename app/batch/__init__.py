"""Batches of clips for listening tests."""
