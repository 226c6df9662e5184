"""Whether `--ending cadence` ends on the tonic.

Run from the top of the repository: `python -m benchmarks.app.bench_cadence`. Pieces are continued
by four bars, with several seeds. Prints in how many continuations the last bar has no chord but the
tonic, as `relpe inspect` hears it, and in how many its lowest note is the root of the tonic.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from app.compose.continuation import continue_midi
from app.compose.models import Models
from app.compose.options import MusicOptions
from app.compose.plan.lead_sheet import plan_of
from tokenization.grid import notated_lines
from tokenization.midi import read_midi

PIECES = {
    "piano": ("ballad", "pop", "waltz"),
    "groove": ("groove",),
}
"""Examples that each model continues."""
BARS = 4


def main() -> int:
    """Run the measurement."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=4)
    given = parser.parse_args()
    models = Models(list(PIECES))
    print("| model, piece | continuations | only the tonic | its root is the lowest note |")
    print("|---|---|---|---|")
    total = [0, 0, 0]
    for name, pieces in PIECES.items():
        for piece in pieces:
            row = [given.seeds, *measure(models, name, piece, given.seeds)]
            total = [a + b for a, b in zip(total, row, strict=True)]
            print(f"| {name}, {piece} | {' | '.join(map(str, row))} |")
    print(f"| all | {' | '.join(map(str, total))} |")
    return 0


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
    raise SystemExit(main())
