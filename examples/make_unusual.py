"""Writes twelve prompts unlike most music that the models were trained on, to judge them by.

Run from the top of the repository: `python examples/make_unusual.py`.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterable
from pathlib import Path

from notation import TICKS, Line, band, broken, line, moved, pattern, piece

from tokenization.midi import write_midi
from tokenization.score import Score

SUBJECT = (
    "D5:.25 E5:.25 F5:.25 D5:.25 A5:.5 F5:.5 G5:.25 F5:.25 E5:.25 F5:.25 C#5:.5 E5:.5 "
    "F5:.25 E5:.25 D5:.25 F5:.25 G5:.5 A5:.5 Bb5:.25 A5:.25 G5:.25 F5:.25 E5:1"
)
"""Two bars in 4/4."""


def invention() -> Score:
    """Return eight bars for two equal voices in D minor, which imitate each other."""
    answer = (
        "A4:.25 B4:.25 C5:.25 A4:.25 E5:.5 C5:.5 D5:.25 C5:.25 B4:.25 C5:.25 G#4:.5 B4:.5 "
        "C5:.25 B4:.25 A4:.25 C5:.25 D5:.5 E5:.5 F5:.25 E5:.25 D5:.25 C5:.25 B4:1"
    )
    counter = "F5:1 E5:.5 D5:.5 C#5:.5 D5:.5 E5:1 A5:.5 G5:.5 F5:.5 E5:.5 D5:.5 E5:.5 C#5:1"
    upper = line(SUBJECT, 80) + line(counter, 76, 8) + line(answer, 80, 16) + line(SUBJECT, 80, 24)
    lower = line(moved(SUBJECT, -2), 78, 8)
    lower += line("A2:1 C3:1 E3:1 E2:1 A2:1 B2:1 C3:.5 D3:.5 E3:1", 74, 16)
    lower += line("D3:1 F3:1 A3:1 A2:1 D3:1 E3:1 G3:.5 A3:.5 A2:1", 74, 24)
    return piece(92, (4, 4), upper, lower)


def tune() -> Score:
    """Return eight bars of a tune in G, without accompaniment."""
    melody = (
        "D4:1 G4:1 A4:.5 B4:.5 D5:1.5 B4:.5 A4:1 G4:1.5 A4:.5 B4:1 A4:2 .:1 "
        "D4:1 G4:1 A4:.5 B4:.5 E5:1.5 D5:.5 B4:1 A4:1 B4:.5 A4:.5 F#4:1 G4:3"
    )
    return piece(96, (3, 4), line(melody, 84), [])


def five_four() -> Score:
    """Return eight bars in 5/4, each divided into three and two beats."""
    left: Line = []
    for bar, chord in enumerate(("E3+G3+B3", "C3+E3+G3", "A2+C3+E3", "B2+D#3+F#3") * 2):
        low = chord.split("+")[0]
        left += line(f"{low}:1.5 {chord}:1.5 {low}:1 {chord}:1", 64, 5 * bar)
    melody = (
        "B4:1.5 E5:.5 F#5:1 G5:1 F#5:1 E5:1.5 D5:.5 C5:1 G4:2 "
        "A4:1.5 C5:.5 E5:1 D5:1 C5:1 B4:3 D#5:2"
    )
    return piece(132, (5, 4), line(melody, 86) + line(melody, 86, 20), left)


def seven_eight() -> Score:
    """Return eight bars in 7/8, each divided into two, two and three eighths."""
    left: Line = []
    for bar, low in enumerate(["D2", "D2", "C2", "C2", "G2", "A2", "D2", "D2"]):
        high = f"{low[0]}3"
        left += line(
            f"{low}:.5 {high}:.5 {low}:.5 {high}:.5 {low}:.5 {high}:.5 {high}:.5", 72, 3.5 * bar
        )
    melody = (
        "A4:1 F5:.5 E5:.5 D5:.5 E5:.5 F5:.5 A5:1 G5:1 F5:1.5 G4:1 E5:.5 D5:.5 C5:.5 D5:.5 E5:.5 "
        "G5:1 F5:1 E5:1.5 D5:1 Bb4:1 D5:1.5 C#5:1 E5:1 A4:1.5 D5:1 F5:1 A5:1.5 D5:3.5"
    )
    return piece(120, (7, 8), line(melody, 88), left)


def valse() -> Score:
    """Return eight bars of a fast waltz in A flat."""
    left: Line = []
    chords = ("C4+Eb4", "C4+Eb4", "Db4+G4", "Db4+G4", "Db4+Eb4", "Db4+Eb4", "C4+Eb4", "C4+Eb4")
    for bar, (low, high) in enumerate(
        zip(["Ab2", "Eb3", "Eb2", "Bb2", "Eb2", "Bb2", "Ab2", "Eb2"], chords, strict=True)
    ):
        left += line(f"{low}:1", 70, 3 * bar)
        left += line(f"{high}:1 {high}:1", 56, 3 * bar + 1)
    melody = (
        "Eb5:1 Ab5:.5 G5:.5 Ab5:.5 C6:.5 Bb5:2 Ab5:1 G5:1 Bb5:.5 Ab5:.5 G5:.5 F5:.5 Eb5:3 "
        "Eb5:1 Bb5:.5 A5:.5 Bb5:.5 Db6:.5 C6:2 Bb5:1 Ab5:1 C6:1 Eb6:1 Ab5:3"
    )
    return piece(192, (3, 4), line(melody, 90), left)


def bass_riff() -> Score:
    """Return four bars of an electric bass alone."""
    riff = "E2:.5 E2:.25 G2:.25 .:.5 A2:.5 Bb2:.25 A2:.25 G2:.5 E2:.5 D2:.5 "
    turn = "E2:.5 E2:.25 G2:.25 .:.5 A2:.5 B2:.5 D3:.25 B2:.25 A2:.5 G2:.5 "
    return band(108, (4, 4), {"Bass": (33, line((riff + turn) * 2, 96))}, [])


def drum_loop() -> Score:
    """Return four bars of drums alone."""
    drums: Line = []
    for bar in range(4):
        drums += pattern("hat", "XoXoXoXoXoXoXoXo", bar)
        drums += pattern("kick", "X..x..X...x.X...", bar)
        drums += pattern("snare", "....X..o....X.oo" if bar == 3 else "....X..o....X...", bar)
    return band(96, (4, 4), {}, drums)


def swing() -> Score:
    """Return eight bars of a blues with swung eighths: ride cymbal, walking bass and piano."""
    drums, bass, keys = [], [], []
    walks = {"F": "F2 A2 C3 D3", "B": "Bb2 D3 F3 E3", "G": "G2 Bb2 D3 F3", "C": "C3 E3 G2 E2"}
    chords = {"F": "Eb4+A4+D5", "B": "D4+Ab4+C5", "G": "F4+Bb4+D5", "C": "E4+Bb4+D5"}
    for bar, chord in enumerate("FBFFBBFC"):
        for beat in range(4):
            strokes = (0.0, 2 / 3) if beat % 2 else (0.0,)
            for part in strokes:
                onset = round((4 * bar + beat + part) * TICKS)
                drums.append((onset, TICKS // 8, 51, 84 if part == 0 else 66))
            if beat % 2:
                drums.append(((4 * bar + beat) * TICKS, TICKS // 8, 44, 70))
        bass += line(" ".join(f"{name}:1" for name in walks[chord].split()), 88, 4 * bar)
        keys += line(
            f".:{2 / 3} {chords[chord]}:{1 / 3} .:{5 / 3} {chords[chord]}:{1 / 3}", 72, 4 * bar
        )
    return band(138, (4, 4), {"Bass": (32, bass), "Piano": (0, keys)}, drums)


def rubato() -> Score:
    """Return a nocturne as it is played; the beats of the file are not those of the music."""
    score = piece(
        120,
        (4, 4),
        line("G5:3 F5:.5 E5:.5 E5:2 D5:1 C5:1 A5:2 G5:1 F5:1 E5:3 .:1 " * 2, 78),
        broken("C3+G3+E4 C3+A3+E4 F2+C3+A3 G2+D3+B3 " * 2, (0, 1, 2, 1, 2, 1, 2, 1), 0.5, 54),
    )
    rng = random.Random(4)
    seconds = [0.0]
    for beat in range(8 * 4 + 4):  # slower towards the end of each phrase of four bars
        phrase = (beat % 16) / 16
        seconds.append(seconds[-1] + 0.75 + 0.35 * phrase**3 + 0.1 * math.sin(beat))

    def played(tick: int) -> int:
        beat, part = divmod(tick / TICKS, 1)
        place = seconds[int(beat)] * (1 - part) + seconds[int(beat) + 1] * part
        return round(place * 2 * TICKS)  # 120 quarter notes per minute

    def performed(notes: list[list[int]]) -> Line:
        rows = []
        for onset, duration, pitch, velocity in notes:
            start = played(onset) + rng.randint(0, 25)
            rows.append(
                (
                    start,
                    max(played(onset + duration) - start, 30),
                    pitch,
                    velocity + rng.randint(-8, 8),
                )
            )
        return rows

    hands = [performed(track.notes.tolist()) for track in score.tracks]
    return piece(120, (4, 4), hands[0], hands[1])


def one_bar() -> Score:
    """Return a single bar of piano."""
    return piece(100, (4, 4), line("E5:1 G5:.5 A5:.5 G5:1 E5:1", 86), line("C3+G3:2 A2+E3:2", 64))


def two_hundred_bars() -> Score:
    """Return two hundred bars of piano: themes A and B of eight bars, varied each time."""
    themes = {
        "A": (
            "E5:1 D5:1 C5:1 D5:1 E5:1 E5:1 E5:2 D5:1 D5:1 F5:2 E5:1 C5:1 G4:2 "
            "A4:1 B4:1 C5:1 D5:1 E5:1.5 F5:.5 G5:2 F5:1 D5:1 B4:1 D5:1 C5:4",
            "C3+E3+G3 A2+C3+E3 D3+F3+A3 C3+E3+G3 F2+A2+C3 C3+E3+G3 G2+B2+D3 C3+E3+G3",
        ),
        "B": (
            "A5:1.5 G5:.5 F5:1 E5:1 D5:1 E5:1 F5:2 G5:1.5 F5:.5 E5:1 D5:1 C5:4 "
            "B4:1 C5:1 D5:1 F5:1 E5:1 D5:1 C5:2 D5:1 C5:1 B4:1 A4:1 G4:4",
            "F2+A2+C3 D3+F3+A3 G2+B2+D3 C3+E3+G3 G2+B2+D3 A2+C3+E3 D3+F3+A3 G2+B2+D3",
        ),
    }
    right, left = [], []
    for section, name in enumerate(("AABA" * 7)[:25]):
        melody, chords = themes[name]
        at, loud = 32 * section, 72 + 3 * (section % 8)
        right += line(melody, loud, at)
        figure = ((0, 1, 2, 1), (0, 2, 1, 2), (2, 1, 0, 1))[section % 3]
        left += broken(chords, figure, 1, loud - 16, at)
    return piece(126, (4, 4), right, left)


def held(names: Iterable[str]) -> str:
    """Return words of `line` for notes of four beats each."""
    return " ".join(f"{name}:4" for name in names)


def fifteen_tracks() -> Score:
    """Return eight bars for an orchestra of fourteen instruments and drums."""
    chords = "C3+E3+G3 A2+C3+E3 F2+A2+C3 G2+B2+D3 C3+E3+G3 E3+G3+B3 F2+A2+C3 G2+B2+D3"
    low, middle, high = zip(*(chord.split("+") for chord in chords.split()), strict=True)
    melody = "G4:2 E4:1 G4:1 C5:3 B4:1 A4:2 F4:1 A4:1 G4:4 G4:2 C5:1 D5:1 E5:3 D5:1 C5:2 A4:2 B4:4"
    fifths = moved(" ".join(f".:3 {name}:.5 {name}:.5" for name in high), 1)
    bells = moved(" ".join(f".:2 {name}:2" for name in high), 2)
    parts: dict[str, tuple[int, Line]] = {
        "Flute": (73, line(moved(melody, 1), 76)),
        "Oboe": (68, line(melody, 70)),
        "Clarinet": (71, line(melody, 66)),
        "Bassoon": (70, line(held(low), 62)),
        "Horn": (60, line(held(middle), 62)),
        "Trumpet": (56, line(fifths, 74)),
        "Trombone": (57, line(held(low), 60)),
        "Glockenspiel": (9, line(bells, 54)),
        "Harp": (46, broken(chords, (0, 1, 2, 1, 2, 1, 2, 1), 0.5, 58)),
        "Choir": (52, line(held(middle), 58)),
        "Violins": (48, line(melody, 80)),
        "Viola": (41, line(held(high), 62)),
        "Cello": (42, line(" ".join(f"{a}:2 {b}:2" for a, b in zip(low, high, strict=True)), 68)),
        "Double bass": (43, line(held(f"{name[:-1]}2" for name in low), 66)),
    }
    drums = [stroke for bar in range(8) for stroke in pattern("kick", "X.......x.......", bar)]
    return band(88, (4, 4), parts, drums)


PROMPTS = (
    invention,
    tune,
    five_four,
    seven_eight,
    valse,
    bass_riff,
    drum_loop,
    swing,
    rubato,
    one_bar,
    two_hundred_bars,
    fifteen_tracks,
)


def main() -> None:
    """Write the prompts to the folder `unusual` beside this file."""
    folder = Path(__file__).with_name("unusual")
    folder.mkdir(exist_ok=True)
    for compose in PROMPTS:
        (folder / f"{compose.__name__}.mid").write_bytes(write_midi(compose()))


if __name__ == "__main__":
    main()
