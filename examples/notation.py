"""Music as text: notes, broken chords and drum patterns, from which the prompts are composed."""

from __future__ import annotations

import re
from dataclasses import replace

from tokenization.score import Score, Tempo, TimeSignature, Track

TICKS = 480
DRUM_CHANNEL = 9
DRUMS = {"kick": 36, "snare": 38, "hat": 42, "open": 46, "crash": 49}
NOTES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}

Line = list[tuple[int, int, int, int]]


def pitch(name: str) -> int:
    """Return the MIDI pitch of a name such as C4, F#3 or Bb2."""
    shift = {"#": 1, "b": -1}.get(name[1], 0)
    return 12 * (int(name[-1]) + 1) + NOTES[name[0]] + shift


def line(text: str, velocity: int, start: float = 0.0) -> Line:
    """Return notes of `name:beats` words in turn; `.` is a rest, `+` joins a chord."""
    rows, beat = [], start
    for word in text.split():
        names, beats = word.split(":")
        if names != ".":
            rows += [
                (round(beat * TICKS), round(float(beats) * TICKS * 0.96), pitch(name), velocity)
                for name in names.split("+")
            ]
        beat += float(beats)
    return rows


def moved(text: str, octaves: int) -> str:
    """Return the words of `line`, some octaves higher."""
    return re.sub(r"([A-G][#b]?)(\d)", lambda found: f"{found[1]}{int(found[2]) + octaves}", text)


def broken(
    chords: str, pattern: tuple[int, ...], step: float, velocity: int, start: float = 0
) -> Line:
    """Return each chord's notes in the order of a pattern, one every `step` beats."""
    rows = []
    for bar, chord in enumerate(chords.split()):
        names = chord.split("+")
        for place, index in enumerate(pattern):
            onset = start + (bar * len(pattern) + place) * step
            accent = 6 if place == 0 else 0
            rows.append(
                (round(onset * TICKS), round(step * TICKS), pitch(names[index]), velocity + accent)
            )
    return rows


def piece(bpm: float, metre: tuple[int, int], right: Line, left: Line, pickup: float = 0) -> Score:
    """Return two hands, in a track each; a pickup is a short first bar."""
    signatures = [TimeSignature(0, *metre)]
    if pickup:
        signatures = [
            TimeSignature(0, round(pickup), 4),
            TimeSignature(round(pickup * TICKS), *metre),
        ]
    tracks = (
        Track(Track.of(right).notes, name="Right hand"),
        Track(Track.of(left).notes, name="Left hand"),
    )
    return Score(TICKS, tracks, (Tempo(0, bpm),), tuple(signatures))


def pattern(drum: str, steps: str, bar: int) -> Line:
    """Return the strokes of a drum on the sixteenths of a 4/4 bar: `x`, `X` harder, `o` softer."""
    loud = {"X": 108, "x": 92, "o": 58}
    return [
        (4 * bar * TICKS + step * TICKS // 4, TICKS // 8, DRUMS[drum], loud[mark])
        for step, mark in enumerate(steps)
        if mark in loud
    ]


def band(
    bpm: float, metre: tuple[int, int], parts: dict[str, tuple[int, Line]], drums: Line
) -> Score:
    """Return instruments by name, with program and notes, one channel each; drums on theirs."""
    tracks = [
        replace(Track.of(notes, program), name=name, channel=channel + (channel >= DRUM_CHANNEL))
        for channel, (name, (program, notes)) in enumerate(parts.items())
    ]
    if drums:
        tracks.insert(0, replace(Track.of(drums, is_drum=True), name="Drums", channel=DRUM_CHANNEL))
    return Score(TICKS, tuple(tracks), (Tempo(0, bpm),), (TimeSignature(0, *metre),))
