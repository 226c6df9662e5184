"""Writes the example prompts: piano openings and two small bands, composed for this project.

Run from the top of the repository: `python examples/make_prompts.py`.
"""

from __future__ import annotations

from pathlib import Path

from notation import Line, band, broken, line, pattern, piece

from tokenization.midi import write_midi
from tokenization.score import Score


def ballad() -> Score:
    """Return eight slow bars in C over broken chords."""
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
    """Return eight bars of a waltz in D minor."""
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
    """Return eight bars with a pickup, in A, over repeated chords."""
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


def groove() -> Score:
    """Return eight bars of a slow funk in E minor: drums, bass, electric piano and guitar."""
    drums: Line = []
    for bar in range(8):
        drums += pattern("hat", "XoxoXoxoXoxoXo.." if bar % 4 == 3 else "XoxoXoxoXoxoXoxo", bar)
        drums += pattern("open", "..............x." if bar % 4 == 3 else "", bar)
        drums += pattern("kick", "X......x..X....." if bar % 2 else "X.....x...X..x..", bar)
        drums += pattern("snare", "....X..o.o..X..o" if bar % 2 else "....X..o....X...", bar)
        drums += pattern("crash", "X" if bar == 0 else "", bar)
    riffs = {
        "E": "E2:.75 E2:.25 .:.5 G2:.5 .:.25 A2:.25 B2:.5 D3:.5 E2:.5",
        "A": "A2:.75 A2:.25 .:.5 C3:.5 .:.25 D3:.25 E3:.5 G2:.5 A2:.5",
        "C": "C3:.75 C3:.25 .:.5 E3:.5 .:.25 G2:.25 A2:.5 B2:.5 C3:.5",
        "B": "B2:.75 B2:.25 .:.5 D#3:.5 .:.25 F#2:.25 A2:.5 B2:.5 B2:.5",
    }
    chords = {
        "E": ("G3+B3+D4", "E4+G4"),
        "A": ("G3+C4+E4", "E4+A4"),
        "C": ("G3+B3+E4", "E4+G4"),
        "B": ("A3+C4+D#4", "D#4+A4"),
    }
    bass, keys, guitar = [], [], []
    for bar, chord in enumerate("EEAAEECB"):
        low, high = chords[chord]
        bass += line(riffs[chord], 92, 4 * bar)
        keys += line(f".:.5 {low}:1 .:.75 {low}:.25 .:.5 {low}:.75 .:.25", 72, 4 * bar)
        guitar += line(f".:1 {high}:.25 .:.5 {high}:.25 .:1 {high}:.25 {high}:.25", 64, 4 * bar)
    parts = {"Bass": (33, bass), "Electric piano": (4, keys), "Guitar": (27, guitar)}
    return band(92, (4, 4), parts, drums)


def barcarole() -> Score:
    """Return eight bars of six eighths in G, without drums: guitar, strings and bass."""
    chords = "G3+B3+D4 E3+G3+B3 C3+E3+G3 D3+F#3+A3 G3+B3+D4 B2+D3+F#3 C3+E3+G3 D3+F#3+C4"
    guitar, strings, bass = [], [], []
    for bar, chord in enumerate(chords.split()):
        low, middle, high = chord.split("+")
        at = 3 * bar
        guitar += line(" ".join(f"{n}:.5" for n in (low, middle, high) * 2), 70, at)
        strings += line(f"{middle}+{high}:3", 56, at)
        bass += line(f"{low[:-1]}2:1.5 {low[:-1]}2:1 {low[:-1]}2:.5", 78, at)
    parts = {"Guitar": (24, guitar), "Strings": (48, strings), "Bass": (32, bass)}
    return band(84, (6, 8), parts, [])


def main() -> None:
    """Write the prompts beside this file."""
    for compose in (ballad, waltz, pop, groove, barcarole):
        Path(__file__).with_name(f"{compose.__name__}.mid").write_bytes(write_midi(compose()))


if __name__ == "__main__":
    main()
