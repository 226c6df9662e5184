"""Notes on the grid, quantized one by one."""

from __future__ import annotations

from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import DURATIONS
from tokenization.score import Note, Score


def notes_by_rank(remi: Remi, score: Score) -> dict[int, list[Note]]:
    """Notes keyed by rank; tracks that are not encoded have rank -1."""
    found: dict[int, list[Note]] = {}
    for rank, track in zip(remi.track_ranks(score.tracks), score.tracks, strict=True):
        if len(track):
            found.setdefault(rank, []).extend(Note(*row) for row in track.notes.tolist())
    return {rank: sorted(notes) for rank, notes in found.items()}


def slow_notes(remi: Remi, score: Score) -> tuple[dict[int, list[Note]], int, int]:
    """Naively quantized notes by rank, and numbers of merged and clipped notes."""
    quantized: dict[int, list[Note]] = {}
    merged = clipped = 0
    for rank, notes in notes_by_rank(remi, score).items():
        if rank < 0:
            continue
        best: dict[tuple[int, int], tuple[int, int]] = {}
        for onset, length, pitch, velocity in notes:
            begin, end = (
                (24 * tick + score.ticks_per_beat) // (2 * score.ticks_per_beat)
                for tick in (onset, onset + length)
            )
            merged += (pitch, begin) in best
            candidate = (1 if rank == 0 else max(1, end - begin), velocity // 4)
            best[pitch, begin] = max(best.get((pitch, begin), (0, 0)), candidate)
        quantized[rank] = []
        for (pitch, begin), (length, velocity) in best.items():
            room = min([10**9, *(o - begin for p, o in best if p == pitch and o > begin)])
            clipped += min(length, room) > 768
            fitting = [steps for steps in DURATIONS.tolist() if steps <= room]
            length = min(fitting, key=lambda steps: (abs(steps - min(length, room)), -steps))
            quantized[rank].append(Note(begin, length, pitch, velocity * 4 + 2))
        quantized[rank].sort()
    return {rank: notes for rank, notes in quantized.items() if notes}, merged, clipped
