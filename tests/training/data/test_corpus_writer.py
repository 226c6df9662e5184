from __future__ import annotations

import json
import shutil

from training.cli import main
from training.data import corpus_writer as joining
from training.data.corpus import read_facts


def test_long_lists_are_in_separate_files(midi_folder, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(joining, "LISTED", 2)
    midi, out = tmp_path / "midi", tmp_path / "out"
    shutil.copytree(midi_folder, midi)
    for number in range(3):
        (midi / "songs" / f"new{number}.mid").write_bytes(b"")
        (midi / "songs" / f"bad{number}.mid").write_bytes(b"no MIDI")
    splits = json.loads((midi / "splits.json").read_text())
    splits["test"] += [f"bad{number}" for number in range(3)]
    (midi / "splits.json").write_text(json.dumps(splits))
    assert main(["prepare", "--corpus", str(midi), "--output", str(out), "--workers", "1"]) == 0
    facts = read_facts(out)
    assert facts["listed"] == {
        "refused": 4,
        "damaged": 0,
        "copies": 0,
        "moved": 0,
        "unassigned": 3,
    }
    assert list(facts["refused"]) == ["songs/broken.mid", "songs/bad0.mid"]
    assert facts["unassigned"] == ["songs/new0.mid", "songs/new1.mid"]
    refused = (out / "refused.txt").read_text().splitlines()
    assert [line.split(":")[0] for line in refused] == [
        "songs/broken.mid",
        *(f"songs/bad{number}.mid" for number in range(3)),
    ]
    assert (out / "unassigned.txt").read_text().split() == [
        f"songs/new{number}.mid" for number in range(3)
    ]
    assert not (out / "damaged.txt").exists()
    assert "and 2 more in `refused.txt`" in (out / "README.md").read_text()
    assert f"refused: 4 files, see {out / 'refused.txt'}" in capsys.readouterr().err
