"""Codecs compatible with those of other projects."""
