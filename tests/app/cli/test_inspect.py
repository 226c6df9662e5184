from __future__ import annotations

import json
from dataclasses import replace

from app.cli.main import main
from tokenization.midi import write_midi
from tokenization.score import Score, Track


def song() -> Score:
    """C, F, G and C, a bar each."""
    chords = [(48, 64, 67), (53, 60, 69), (55, 62, 71), (48, 64, 67)]
    rows = [(1920 * bar, 1920, p, 80) for bar, pitches in enumerate(chords) for p in pitches]
    return Score(480, (Track.of(rows),))


def test_inspect_shows_key_form_and_chords(tmp_path, capsys):
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(song()))
    assert main(["inspect", str(path)]) == 0
    assert capsys.readouterr().out.splitlines() == [
        *("song.mid", "Bars  4", "Key   C major", "Form  A4", ""),
        "A 1 | C | F | G | C |",
    ]
    assert main(["inspect", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "file": "song.mid",
        "bars": 4,
        "key": "C major",
        "form": [{"letter": "A", "first_bar": 1, "bars": 4}],
        "returns": [0, 0, 0, 1],
        "chords": [["C"], ["F"], ["G"], ["C"]],
    }


def test_inspect_says_whose_bars_it_counts(tmp_path, capsys):
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(song()))
    for beats, notice in (("file", ""), ("grid", "bars and beats are a fixed grid: 120 beats per")):
        assert main(["inspect", str(path), "--beats", beats]) == 0
        shown = capsys.readouterr().err
        assert notice in shown
        assert bool(notice) == bool(shown)


def test_inspect_reads_drums_and_refuses_other_files(tmp_path, capsys):
    path = tmp_path / "drums.mid"
    path.write_bytes(write_midi(Score(480, (Track.of([(0, 100, 36, 90)], is_drum=True),))))
    assert main(["inspect", str(path)]) == 0
    assert "Key   none: fewer than three pitches" in capsys.readouterr().out
    path.write_bytes(b"no music")
    assert main(["inspect", str(path)]) == 2
    message = capsys.readouterr().err
    assert message.startswith("relpe: drums.mid: ")
    assert message.count("\n") == 1
    assert main(["inspect", str(tmp_path / "nothing.mid")]) == 2
    assert "nothing.mid: there is no such file" in capsys.readouterr().err
    path.write_bytes(write_midi(song())[:-9])
    assert main(["inspect", str(path)]) == 0
    shown = capsys.readouterr()
    assert "Bars  4" in shown.out
    assert "the file is cut off in track 2" in shown.err


def test_inspect_shows_accidents_after_the_bars_of_the_prompt(tmp_path, capsys):
    rows = [(1920 * bar, 1920, 60 + bar % 5 + 5 * (bar // 5), 80) for bar in range(16) if bar != 10]
    path = tmp_path / "song.mid"
    path.write_bytes(write_midi(Score(480, (Track.of(rows),))))
    assert main(["inspect", str(path), "--accidents", "8"]) == 0
    shown = capsys.readouterr()
    assert shown.out.splitlines()[-1] == "Accidents  a bar without a note (bar 11)"
    assert not shown.err
    assert main(["inspect", str(path), "--accidents", "11"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "Accidents  none"
    assert main(["inspect", str(path), "--accidents", "7", "--json"]) == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out)["accidents"] == [
        {"kind": "hole", "what": "a bar without a note", "first_bar": 11, "bars": 1}
    ]
    assert "only empty bars are recognised" in shown.err
    for bars, message in (("0", "expected 1 to 15: the piece has 16 bars"), ("16", "is 16, ")):
        assert main(["inspect", str(path), "--accidents", bars]) == 2
        assert message in capsys.readouterr().err
    path.write_bytes(write_midi(Score(480, (Track.of(rows[:1]),))))
    assert main(["inspect", str(path), "--accidents", "1"]) == 2
    assert "expected a longer piece: the piece has 1 bar\n" in capsys.readouterr().err


def test_inspect_says_which_drums_are_a_guess_and_can_be_told(tmp_path, capsys):
    path = tmp_path / "song.mid"
    beat = Track.of([(240 * at, 60, 36 + at % 3, 90) for at in range(32)])
    path.write_bytes(write_midi(Score(480, (replace(beat, name="Drum Rack"),))))
    for words, said in (
        ([], "song.mid: track 1 (Drum Rack) on channel 1 is read as drums by its name; "),
        (["--drums", "none"], ""),
    ):
        assert main(["inspect", str(path), *words]) == 0
        shown = capsys.readouterr()
        assert said in shown.err
        assert shown.err.count("\n") == bool(said)
        assert ("fewer than three pitches" in shown.out) == bool(said)
    assert main(["inspect", str(path), "--drums", "3"]) == 2
    assert "drums: there is no track 3, expected 1 to 1" in capsys.readouterr().err
