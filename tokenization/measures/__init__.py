"""Measures of music: form, harmony, repetition, and the choice between takes."""
