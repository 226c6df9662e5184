"""Whether `--ending cadence` ends on the tonic.

Run from the top of the repository: `python -m benchmarks.app.bench_cadence`. Pieces are continued
by four bars, with several seeds. Prints in how many continuations the last bar has no chord but the
tonic, as `relpe inspect` hears it, and in how many its lowest note is the root of the tonic.
"""

from __future__ import annotations

from pathlib import Path

from app.compose.continuation import continue_midi
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import plan_of
from benchmarks.timing import run, table_output
from tokenization.grid import notated_lines
from tokenization.midi import read_midi

PIECES = {
    "piano": ("ballad", "pop", "waltz"),
    "groove": ("groove",),
}
"""Examples that each model continues."""
BARS = 4


def main(seeds: int = 4) -> None:
    """Run the measurement."""
    models = Models(list(PIECES))
    columns = ("model, piece", "continuations", "only the tonic", "its root is the lowest note")
    out, total = table_output(*columns), [0, 0, 0]
    for name, pieces in PIECES.items():
        for piece in pieces:
            row = [seeds, *measure(models, name, piece, seeds)]
            total = [a + b for a, b in zip(total, row, strict=True)]
            out(f"{name}, {piece}", *row)
    out("all", *total)


def measure(models: Models, name: str, piece: str, seeds: int) -> tuple[int, int]:
    """In how many continuations the tonic is the only chord, and its root the lowest note."""
    data = Path(f"examples/{piece}.mid").read_bytes()
    prompt = read_midi(data, name=piece)
    key, last = plan_of(prompt).key, len(notated_lines(prompt, prompt.end_ticks)) - 2 + BARS
    assert key is not None
    only = lowest = 0
    for seed in range(1, seeds + 1):
        options = MusicOptions(bars=BARS, seed=seed, ending="cadence")
        score = continue_midi(models.load(name), data, options).pieces[0].score
        lines = notated_lines(score, score.end_ticks, 1)
        chords = [planned.chord for planned in plan_of(score).bars[last].chords]
        tonic = key.tonic, int(key.minor)  # QUALITIES begins with major and minor
        only += all(chord is not None and chord[:2] == tonic for chord in chords)
        pitches = [
            pitch
            for track in score.tracks
            if not track.is_drum
            for onset, _, pitch, _ in track.notes.tolist()
            if lines[last] <= onset < lines[last + 1]
        ]
        lowest += bool(pitches) and min(pitches) % 12 == key.tonic
    return only, lowest


if __name__ == "__main__":
    run(main)
