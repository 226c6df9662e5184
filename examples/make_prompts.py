"""Writes the example prompts: three short piano openings, composed for this project.

Run from the top of the repository: `python examples/make_prompts.py`.
"""

from __future__ import annotations

from pathlib import Path

from tokenization.midi import write_midi
from tokenization.score import Score, Tempo, TimeSignature, Track

TICKS = 480
NOTES = {"C": 0, "D": 2, "E": 4, "F": 5, "G": 7, "A": 9, "B": 11}

Line = list[tuple[int, int, int, int]]


def pitch(name: str) -> int:
    """MIDI pitch of a name such as C4, F#3 or Bb2."""
    shift = {"#": 1, "b": -1}.get(name[1], 0)
    return 12 * (int(name[-1]) + 1) + NOTES[name[0]] + shift


def line(text: str, velocity: int, start: float = 0.0) -> Line:
    """Notes of `name:beats` words, one after the other; `.` is a rest, `+` joins a chord."""
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


def broken(
    chords: str, pattern: tuple[int, ...], step: float, velocity: int, start: float = 0
) -> Line:
    """Each chord's notes in the order of a pattern, one every `step` beats."""
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
    """Two hands, in a track each; a pickup is a short first bar."""
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


def ballad() -> Score:
    """Eight slow bars in C over broken chords."""
    melody = (
        "E5:1.5 D5:.5 C5:1 G4:1 A4:1.5 B4:.5 C5:2 D5:1.5 C5:.5 B4:1 G4:1 C5:3 .:1 "
        "E5:1.5 F5:.5 G5:1 E5:1 D5:1 C5:.5 D5:.5 A4:2 A4:1 C5:1 E5:1 D5:1 C5:2 B4:2"
    )
    chords = (
        "C3+G3+C4+E4 F2+C3+A3+C4 G2+D3+B3+D4 C3+G3+C4+E4 "
        "C3+G3+C4+E4 D3+A3+C4+F4 F2+C3+A3+E4 G2+D3+G3+B3"
    )
    return piece(72, (4, 4), line(melody, 84), broken(chords, (0, 1, 2, 3, 2, 1, 2, 1), 0.5, 62))


def waltz() -> Score:
    """Eight bars of a waltz in D minor."""
    melody = (
        "D5:2 E5:1 F5:1.5 E5:.5 D5:1 C#5:2 D5:1 A4:3 "
        "Bb4:2 C5:1 D5:1.5 C5:.5 Bb4:1 A4:1 G4:1 F4:1 E4:3"
    )
    bass = "D3:1 A2:1 E3:1 A2:1 G2:1 Bb2:1 A2:1 A2:1"
    chords = ["F3+A3", "F3+A3", "G3+C#4", "F3+A3", "Bb3+D4", "F3+Bb3", "F3+D4", "G3+C#4"]
    left: Line = []
    for bar, (low, high) in enumerate(zip(bass.split(), chords, strict=True)):
        left += line(low, 66, 3 * bar) + line(f"{high}:1 {high}:1", 54, 3 * bar + 1)
    return piece(132, (3, 4), line(melody, 88), left)


def pop() -> Score:
    """Eight bars with a pickup, in A, over repeated chords."""
    melody = (
        "E4:.5 A4:.5 B4:1 C#5:1.5 B4:.5 A4:1 E4:.5 F#4:.5 G#4:1.5 E4:.5 B4:2 A4:1.5 B4:.5 C#5:1 "
        "D5:.5 C#5:.5 B4:2 .:1 E4:.5 A4:.5 C#5:1.5 D5:.5 E5:1 C#5:.5 B4:.5 B4:1.5 G#4:.5 E4:2 "
        "F#4:1 A4:1 C#5:1 B4:.5 A4:.5 B4:4"
    )
    roots = ["A2", "E2", "F#2", "D2", "A2", "E2", "D2", "E2"]
    a, e, f_sharp, d = "A3+C#4+E4", "G#3+B3+E4", "A3+C#4+F#4", "A3+D4+F#4"
    chords = [a, e, f_sharp, d, a, e, d, e]
    left: Line = []
    for bar, (root, chord) in enumerate(zip(roots, chords, strict=True)):
        at = 2 + 4 * bar
        left += line(f"{root}:1.5 {root}:.5 {root}:2", 70, at)
        left += line(" ".join([f"{chord}:1"] * 4), 58, at)
    return piece(104, (4, 4), line(melody, 90), left, pickup=2)


def main() -> None:
    """Writes the prompts beside this file."""
    for compose in (ballad, waltz, pop):
        Path(__file__).with_name(f"{compose.__name__}.mid").write_bytes(write_midi(compose()))


if __name__ == "__main__":
    main()
