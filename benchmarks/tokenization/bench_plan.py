"""Agreement of form, key, returns and chords with human labels and charts, as CSV.

    python -m benchmarks.tokenization.bench_plan FOLDER [--split validation]
        [--songs 1000] > plan.csv

FOLDER holds the folders `pop909`, `pop909_form` and `groove`.

POP909, human labels of form, key and chords. The labels have no times: bars of 4/4 are counted from
the beat at which most chord roots agree, and songs in which fewer than `LEAST_AGREEMENT` agree at
every beat are left out. Each measure is the mean over the songs and, for the form, over its two
labellers:

- `boundaries`: precision, recall and F of the beginnings of phrases, at most a bar apart; those of
  the first phrase are left out. `labellers`: F of the two labellers with each other; `every_8`:
  F of phrases of eight bars from the first bar on.
- `letters`: precision, recall and F of pairs of beats in phrases of one letter.
- `returns`: precision, share of the bars that `analyse` reads as returns whose source is in a
  phrase of the same letter; recall, share of the bars in repeated phrases that are read as returns.
- `key`, `roots`: shares of songs (of one key), and of beats.

Groove corpus, the charts from which it was made (validation split): chords in each half of a bar.
"""

from __future__ import annotations

import csv
import re
import zipfile
from pathlib import Path
from typing import NamedTuple

import numpy as np

from benchmarks.timing import csv_output, run
from benchmarks.tokenization.bench_chords import agreement, recognise_by_bars
from benchmarks.tokenization.midi_corpora import spread
from tokenization.analysis.bars import ScoreBars
from tokenization.analysis.chord_symbols import parse_chord
from tokenization.analysis.chords import NO_CHORD, QUALITIES
from tokenization.analysis.form import find_form
from tokenization.analysis.keys import NOTES
from tokenization.analysis.plan import analyse
from tokenization.midi import read_midi
from tokenization.plan import Chord, Key

LEAST_AGREEMENT = 0.6
"""Share of equal chord roots from which the beat of the first label is known."""
_MOST_BEATS_APART = 32
"""Number of beats before or after the first one of the file within which labels may begin."""


class Phrases(NamedTuple):
    """Phrases of a song."""

    edges: np.ndarray
    """First beats, and the end (phrases + 1,)."""
    letters: np.ndarray
    """(phrases,)"""

    def at(self, beats: np.ndarray) -> np.ndarray:
        """Return the letter at each beat; empty outside."""
        place = np.searchsorted(self.edges, beats, side="right")
        return np.array(["", *self.letters, ""])[place]


def rates(hits: float, num_estimated: float, num_labelled: float) -> tuple[float, float, float]:
    """Return precision, recall and F; 0 without hits."""
    if not hits:
        return 0.0, 0.0, 0.0
    precision, recall = hits / num_estimated, hits / num_labelled
    return precision, recall, 2 * precision * recall / (precision + recall)


def boundaries(estimated: np.ndarray, labelled: np.ndarray) -> tuple[float, float, float]:
    """Return the rates of boundaries at most four beats apart, of `edges`; each is matched once."""
    left = labelled[1:-1].tolist()
    hits = 0
    for edge in estimated[1:-1]:
        near = min(left, key=lambda other: abs(other - edge), default=None)
        if near is not None and abs(near - edge) <= 4:
            left.remove(near)
            hits += 1
    return rates(hits, len(estimated) - 2, len(labelled) - 2)


def letters(estimated: Phrases, labelled: Phrases) -> tuple[float, float, float]:
    """Return the rates of pairs of beats in phrases of one letter."""
    beats = np.arange(labelled.edges[0], labelled.edges[-1])
    beats = beats[estimated.at(beats) != ""]
    estimated_equal = estimated.at(beats)[:, None] == estimated.at(beats)
    labelled_equal = labelled.at(beats)[:, None] == labelled.at(beats)
    count = len(beats)  # each beat with itself is no pair
    hits = (estimated_equal & labelled_equal).sum() - count
    return rates(hits, estimated_equal.sum() - count, labelled_equal.sum() - count)


def returns(
    sources: np.ndarray, starts: np.ndarray, labelled: Phrases
) -> tuple[float, float, float]:
    """Return the rates of bars read as returns; `sources` are distances, `starts` beats (bars,)."""
    phrase = np.searchsorted(labelled.edges, starts, side="right") - 1
    inside = (phrase >= 0) & (phrase < len(labelled.letters))
    labels = labelled.at(starts)
    repeated = np.array(
        [letter in labelled.letters[:place] for place, letter in enumerate(labelled.letters)]
    )
    in_repeated = inside & repeated[np.clip(phrase, 0, len(repeated) - 1)]
    is_return = inside & (sources > 0)
    right = is_return & (labels == labels[np.arange(len(labels)) - sources])
    precision = right.sum() / max(is_return.sum(), 1)
    recall = (in_repeated & is_return).sum() / max(in_repeated.sum(), 1)
    return precision, recall, 2 * precision * recall / max(precision + recall, 1e-9)


def labelled_form(text: str, start: int) -> Phrases:
    """Return a form such as `i4A8B8`, from a beat on."""
    sections = re.findall(r"([A-Za-z])(\d+)", text)
    lengths = [4 * int(length) for _, length in sections]
    edges = start + np.cumsum([0, *lengths])
    return Phrases(edges, np.array([letter.upper() for letter, _ in sections]))


def pitch_class(name: str) -> int:
    """Return the pitch class of a name such as `Eb`."""
    return (NOTES[name[0]] + name.count("#") - name.count("b")) % 12


def labelled_roots(text: str) -> np.ndarray:
    """Return the roots of the beats of a song (beats,), or NO_CHORD."""
    matches = re.findall(r"(\S+)\s*\[[^]]*\]\s*-?\d+\s+([\d.]+)", text)
    roots = [NO_CHORD if name[0] == "N" else pitch_class(name.split(":")[0]) for name, _ in matches]
    return np.repeat(roots, [round(float(beats)) for _, beats in matches])


def best_start(recognised: np.ndarray, labelled: np.ndarray) -> tuple[float, int]:
    """Return the share of equal roots, and the beat of `recognised` at which `labelled` begins."""
    shares: list[tuple[float, int]] = []
    for start in range(-_MOST_BEATS_APART, _MOST_BEATS_APART + 1):
        ours, theirs = recognised[max(start, 0) :], labelled[max(-start, 0) :]
        count = min(len(ours), len(theirs))
        shares.append((float((ours[:count] == theirs[:count]).mean()) if count else 0.0, start))
    return max(shares)


def read_table(path: Path) -> dict[str, dict[str, str]]:
    """Return the rows of a TSV file by the value of their first column."""
    csv.field_size_limit(1 << 24)
    with path.open(encoding="utf-8") as file:
        return {next(iter(row.values())): row for row in csv.DictReader(file, delimiter="\t")}


def measure_pop909(folder: Path, split: str, most: int) -> dict[str, list[tuple[float, ...]]]:
    """Return the values of each measure, one for each song or labeller."""
    labels = read_table(folder / "pop909_form" / "labels.tsv")
    chords = read_table(folder / "pop909_form" / "chords.tsv")
    names = ("boundaries", "labellers", "every_8", "letters", "returns", "key", "roots")
    values: dict[str, list[tuple[float, ...]]] = {name: [] for name in names}
    songs = [song for song, row in labels.items() if row["split"] == split]
    with zipfile.ZipFile(folder / "pop909" / "pop909.zip") as archive:
        for song in spread(songs, most):
            score = read_midi(archive.read(f"pop909/solo/{song}.mid"), name=song)
            bars, plan = ScoreBars.of(score), analyse(score)
            lines = bars.lines // bars.score.ticks_per_beat
            roots = recognise_by_bars(score, np.arange(lines[-1]) + 0.5)
            roots = np.where(roots < 0, NO_CHORD, roots // len(QUALITIES))
            share, start = best_start(roots, labelled_roots(chords[song]["chords"]))
            keys = [parse_key(name) for name in labels[song]["key"].split()]
            if len(keys) == 1:
                values["key"].append((float(plan.key == keys[0]),))
            if share < LEAST_AGREEMENT:
                continue
            values["roots"].append((share,))
            phrases = find_form(plan)
            firsts = np.array([phrase.first_bar for phrase in phrases] + [len(plan.bars)])
            estimated = Phrases(lines[firsts], np.array([phrase.letter for phrase in phrases]))
            eights = np.append(lines[:-1:8], lines[-1])
            sources = np.array([bar.source for bar in plan.bars])
            forms = [labelled_form(labels[song][form], start) for form in ("form_1", "form_2")]
            for form in forms:
                values["boundaries"].append(boundaries(estimated.edges, form.edges))
                values["every_8"].append(boundaries(eights, form.edges))
                values["letters"].append(letters(estimated, form))
                values["returns"].append(returns(sources, lines[:-1], form))
            values["labellers"].append(boundaries(*(form.edges for form in forms)))
    return values


def parse_key(name: str) -> Key:
    """Return a key such as `Gb:maj`."""
    tonic, mode = name.split(":")
    return Key(pitch_class(tonic), mode == "min")


def measure_groove(folder: Path, most: int) -> tuple[int, np.ndarray]:
    """Return the number of pieces, and recognised and labelled chords (2, halves of bars)."""
    pieces = [row for row in read_table(folder / "pieces.tsv").values() if row["split"] == "val"]
    pieces = spread(pieces, most)
    rows: list[np.ndarray] = []
    with zipfile.ZipFile(folder / "groove.zip") as archive:
        for piece in pieces:
            score = read_midi(archive.read(f"groove/midi/val/{piece['piece']}.mid"))
            bars = ScoreBars.of(score)
            ticks, labels = [], []
            for bar, symbols in enumerate(piece["chart"].split("|")):
                halves = [parse_chord(symbol) for symbol in symbols.split()]
                ticks += [bars.lines[bar], bars.middles[bar]]
                labels += [_index(halves[0]), _index(halves[-1])]
            beats = np.array(ticks) / bars.score.ticks_per_beat
            rows.append(np.stack([recognise_by_bars(score, beats), labels]))
    return len(pieces), np.concatenate(rows, axis=1)


def _index(chord: Chord | None) -> int:
    return NO_CHORD if chord is None else len(QUALITIES) * chord.root + chord.quality


def main(folder: Path, /, *, split: str = "validation", songs: int = 1000) -> None:
    """Print the measures of POP909 and of the groove corpus, for at most `songs` pieces of each."""
    out = csv_output("corpus", "measure", "values", "precision_or_share", "recall", "f")
    for name, values in measure_pop909(folder, split, songs).items():
        out("pop909", name, len(values), *np.mean(values, axis=0))
    count, (recognised, labelled) = measure_groove(folder / "groove", songs)
    same_root, same_family, same_chord = agreement(recognised, labelled)
    out("groove", "roots", count, same_root)
    out("groove", "roots and families", count, same_family)
    out("groove", "chords", count, same_chord)


if __name__ == "__main__":
    run(main)
