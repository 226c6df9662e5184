"""Piano music in staff notation: `as_musicxml` writes a score as MusicXML."""

from tokenization.notation.musicxml import as_musicxml

__all__ = ["as_musicxml"]
