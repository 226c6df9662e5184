"""Reading of a MIDI file as training data: its beats, its pedal, and what is not predicted."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from tokenization.analysis.beat_tracker import estimate_beats
from tokenization.analysis.beats import extend_by_pedal, warp
from tokenization.analysis.plan import analyse
from tokenization.midi import read_midi
from tokenization.remi.remi import Remi
from tokenization.score import Score, Tempo, all_notes
from tokenization.tokenizer import TokenSequence
from training.data.mixtures.mixture import CorpusConfig
from training.data.shards import MASKED_TEMPOS, MASKED_VELOCITIES


class Reading(NamedTuple):
    """How the files of a corpus are read."""

    estimates_beats: bool = False
    default_tempos: tuple[float, ...] = ()

    @classmethod
    def of(cls, config: CorpusConfig) -> Reading:
        """Return the settings of a corpus that change its tokens."""
        return cls(config.beats == "estimate", config.default_tempos)

    def prepared(self, score: Score) -> Score:
        """Return the score as prompts are read: with notes held by the pedal, and counted in beats.

        Estimated beats have a single tempo, as in prompts, since their lengths all differ slightly.

        Raises:
            MidiError: beats cannot be estimated.
        """
        if not self.estimates_beats:
            return extend_by_pedal(score)
        beats = estimate_beats(score)
        counted = warp(score, beats.seconds, beats.downbeats, pedal=True)
        bpm = 60 / float(np.median(np.diff(beats.seconds)))
        return replace(counted, tempos=(Tempo(0, bpm),))

    def masked(self, score: Score, heard: Score) -> int:
        """Return the flags of what is not to be predicted.

        `heard` has only the tracks that are encoded.
        """
        velocities = all_notes(heard.tracks)[:, 3]
        has_one_velocity = len(velocities) > 0 and bool((velocities == velocities[0]).all())
        tempos = {round(tempo.bpm, 2) for tempo in score.tempos}
        has_default_tempo = tempos <= {*self.default_tempos} and len(tempos) < 2
        return has_one_velocity * MASKED_VELOCITIES + has_default_tempo * MASKED_TEMPOS


class ReadPiece(NamedTuple):
    """A MIDI file as training data."""

    file: Score
    """The file itself, with only the tracks that are encoded."""
    score: Score
    """The file as it is encoded, with all tracks."""
    ranks: Sequence[int]
    """Rank of each track of `score`; -1: it is not encoded."""
    sequence: TokenSequence
    masked: int
    """Flags of what is not to be predicted."""


def read_piece(
    content: bytes,
    name: str,
    tokenizer: Remi,
    reading: Callable[[Score], Reading],
    *,
    strict: bool = False,
) -> ReadPiece:
    """Read and encode a MIDI file; `reading` gives its settings, and `name` is for messages.

    Raises:
        MidiError: the file cannot be read or encoded.
        TokenizerError: its plan cannot be encoded.
    """
    file = read_midi(content, name=name, strict=strict)
    how = reading(file)
    score = how.prepared(file)
    ranks = tokenizer.track_ranks(score.tracks)
    heard = _with_ranks(score, ranks)
    sequence = tokenizer.encode(score, analyse(heard))
    return ReadPiece(_with_ranks(file, ranks), score, ranks, sequence, how.masked(score, heard))


def _with_ranks(score: Score, ranks: Sequence[int]) -> Score:
    """Return the score without tracks that are not encoded, whose rank is -1."""
    pairs = zip(score.tracks, ranks, strict=True)
    return score.with_tracks(track for track, rank in pairs if rank >= 0)
