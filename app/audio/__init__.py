"""Scores to audio files."""
