"""Small stand-ins for the corpora of the mixtures."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tests.support.runs import piece
from tokenization.midi import write_midi
from tokenization.score import Score, Tempo, Track


def archive(
    path: Path,
    scores: Mapping[str, Score],
    splits: Mapping[str, Sequence[str]] | None = None,
    table: Sequence[Sequence[str]] = (),
) -> Path:
    """A zip archive of MIDI files, with a table of splits and one of pieces."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as stream:
        for name, score in scores.items():
            stream.writestr(f"{path.stem}/{name}", write_midi(score))
        if splits is not None:
            stream.writestr(f"{path.stem}/splits.json", json.dumps(splits))
        if table:
            lines = "".join("\t".join(row) + "\n" for row in table)
            stream.writestr(f"{path.stem}/pieces.tsv", lines)
    return path


def transposed(score: Score, semitones: int) -> Score:
    """The same music, higher."""
    return score.with_tracks(
        replace(track, notes=track.notes + np.array([0, 0, semitones, 0])) for track in score.tracks
    )


def with_velocity(score: Score, velocity: int) -> Score:
    """The same music with one velocity and one tempo of 100."""
    tracks = (
        Track(track.notes * [1, 1, 1, 0] + [0, 0, 0, velocity], track.program)
        for track in score.tracks
    )
    return replace(score, tracks=tuple(tracks), tempos=(Tempo(0, 100),))


def with_pedal(score: Score) -> Score:
    """The same music with the sustain pedal held in the first two bars."""
    rows = [(0, 64, 127), (3840, 64, 0)]
    return score.with_tracks(replace(track, controls=rows) for track in score.tracks)


def as_drums(score: Score) -> Score:
    """The same rhythm on a drum."""
    return score.with_tracks(
        Track(track.notes * [1, 1, 0, 1] + [0, 0, 38, 0], is_drum=True) for track in score.tracks
    )


def stand_ins(folder: Path) -> Path:
    """Stand-ins for all corpora of the mixture `all`, with the traps of each."""
    of_three = {"train": ["a"], "validation": ["b"], "test": ["c"]}
    solo = {f"solo/00{number}.mid": piece(number) for number in range(4)}
    originals = {f"original/00{number}/00{number}.mid": piece(number) for number in range(4)}
    dealt = {"train": ["000", "001", "lost"], "validation": ["002"], "test": ["003"]}
    archive(folder / "pop909/pop909.zip", solo | originals, dealt)
    header = ("name", "composer", "title", "instruments")
    table = [
        header,
        ("a", "Chopin", "Quatre Mazurkas", "Piano:0"),
        ("b", "Chopin", "Valse", "Piano:0"),
        ("c", "Chopin", "Rondo", "Piano:0"),
        ("d", "Chopin", "Trio", "Piano:0, Violin:40"),
    ]
    chopin = {f"midi/{name}.mid": piece(10 + n) for n, name in enumerate("abcd")}
    chopin["midi/a.mid"] = with_pedal(chopin["midi/a.mid"])
    splits = of_three | {"train": ["a", "d"]}
    archive(folder / "chopin/chopin.zip", chopin, splits, table)
    played = {"midi/x.mid": piece(20, 40), "midi/cut.mid": transposed(piece(12), 2)}
    rows = [("file", "composer"), ("x.mid", "Debussy"), ("cut.mid", "Chopin")]
    archive(folder / "giantmidi/giantmidi_sample.zip", played, None, rows)
    polish = {
        "midi/a.mid": with_velocity(piece(30), 76),
        "midi/again.mid": with_velocity(piece(30), 76),
        "midi/b.mid": piece(31),
        "midi/c.mid": piece(32),
        "midi/edition.mid": transposed(piece(42), -4),  # of mutopia's test piece
    }
    table = [
        header,
        *((name, "Anonim", "Kyrie", "Organ:0") for name in ("a", "again", "b", "c")),
        ("edition", "Anonim", "Kyrie", "Piano:0"),
    ]
    splits = of_three | {"train": ["a", "again", "edition"]}
    archive(folder / "polish/polish.zip", polish, splits, table)
    table = [header, *((name, "J. S. Bach", "Fuga", "Harpsichord:6") for name in "abc")]
    three = {f"midi/{name}.mid": piece(40 + n) for n, name in enumerate("abc")}
    archive(folder / "mutopia/mutopia.zip", three, of_three, table)
    names = ("train/s.1.mid", "ival/s.2.mid", "val/t.1.mid", "test/u.1.mid")
    groove = {f"midi/{name}": piece(50 + n) for n, name in enumerate(names)}
    genres = [("piece", "genre"), ("s.1", "jazz"), ("s.2", "jazz"), ("t.1", "folk"), ("u.1", "pop")]
    archive(folder / "groove/groove.zip", groove, None, genres)
    drums = {f"midi/{name}.mid": as_drums(piece(60 + n)) for n, name in enumerate("abc")}
    table = [("name", "title"), ("a", "rock, 90 bpm"), ("b", "jazz swing"), ("c", "unheard of")]
    archive(folder / "groovemidi/groovemidi.zip", drums, of_three, table)
    hymns = {f"midi/{name}.mid": piece(140 + n) for n, name in enumerate(("oha", "ohb", "go"))}
    archive(folder / "hymns/hymns.zip", hymns, {"train": ["oha", "go"], "test": ["ohb"]})
    bands = {f"midi/{name}.mid": piece(120 + n) for n, name in enumerate("abc")}
    table = [("name", "genre"), ("a", "rock"), ("b", "funk"), ("c", "pop")]
    archive(folder / "billboard/billboard.zip", bands, of_three, table)
    for seed, name in enumerate(("lieder", "quartets", "orchestra", "leadsheets", "freedoom"), 7):
        some = {f"midi/{part}.mid": piece(10 * seed + n) for n, part in enumerate("abc")}
        archive(folder / f"{name}/{name}.zip", some, of_three)
    return folder
