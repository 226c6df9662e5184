"""Renders scores to audio files."""
