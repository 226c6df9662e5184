"""`relpe fill` and `relpe accompany`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from app.cli.main import main
from tokenization.midi import read_midi

if TYPE_CHECKING:
    from pathlib import Path


def fill(folder: Path, command: str, *extra: str, piece: str = "piece.mid") -> int:
    """Runs a command with the small model."""
    model = [] if "--model" in extra else ["--model", str(folder / "second")]
    output = ["--output", str(folder / "out.mid"), "--backend", "torch"]
    try:
        return main([command, str(folder / piece), *output, *model, *extra])
    except SystemExit as stopped:
        return int(stopped.code or 0)


@pytest.mark.parametrize(
    ("command", "bars"),
    [
        (("fill", "--bars", "2-3", "--tracks", "bass", "--rest", "drums"), 2),
        (("accompany", "--instrument", "flute", "--bars", "2"), 1),
    ],
)
def test_the_settings_make_the_piece_again(filling, command, bars, capsys):
    assert fill(filling, *command, "--seed", "5", "--variations", "2", "--json") == 0
    said = capsys.readouterr().out
    told = json.loads(said)
    assert told["bars"] == bars
    made = [(filling / f"out.{number}.mid").read_bytes() for number in (1, 2)]
    assert made[0] != made[1]
    (filling / "told.json").write_text(said)
    words = ["--prompt", str(filling / "piece.mid"), "--output", str(filling / "again.mid")]
    model = ["--model", str(filling / "second")]
    assert main(["replay", str(filling / "told.json"), *words, *model]) == 0
    assert [(filling / f"again.{number}.mid").read_bytes() for number in (1, 2)] == made


def test_only_the_named_tracks_are_written(filling, capsys):
    words = ["--tracks", "2,drums", "--seed", "1", "--takes", "1"]
    assert fill(filling, "fill", "--bars", "2", *words) == 0
    assert "out.mid: 1 bar, seed 1" in capsys.readouterr().err
    before, after = (read_midi(filling / name) for name in ("piece.mid", "out.mid"))
    assert before.tracks[0] == after.tracks[0]
    assert before.tracks[1] != after.tracks[1]


def test_bars_after_the_end_are_a_continuation(filling):
    small = ["--model", str(filling / "small"), "--seed", "1"]
    assert fill(filling, "fill", "--bars", "5", *small, piece="prompt.mid") == 0
    filled = (filling / "out.mid").read_bytes()
    assert fill(filling, "continue", "--bars", "1", *small, piece="prompt.mid") == 0
    assert (filling / "out.mid").read_bytes() == filled


def test_bad_input_gets_one_sentence(filling, capsys):
    for command, problem in (
        (("fill", "--bars", "3-2"), "argument --bars: '3-2' are not bars"),
        (("fill",), "the following arguments are required: --bars"),
        (("fill", "--bars", "2", "--tracks", "oboe"), "piece.mid: --tracks: no track fits 'oboe'"),
        (("fill", "--bars", "1-5"), "piece.mid: all bars and tracks are selected"),
        (("accompany", "--instrument", "bass"), "argument --instrument: 'bass' fits several"),
        (
            ("accompany", "--instrument", "flute", "--model", "piano"),
            "relpe: the model reads all tracks as one piano, so it cannot write Flute alone",
        ),
        (("fill", "--bars", "2", "--density", "-1"), "--density is -1.0, expected 0.0 to 200.0"),
    ):
        assert fill(filling, *command) == 2
        said = capsys.readouterr().err
        assert problem in said
        assert said.count("\n") == 1
        assert not (filling / "out.mid").exists()


def test_damaged_settings_are_refused(filling, capsys):
    assert fill(filling, "fill", "--bars", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)["replay"]
    words = ["--prompt", str(filling / "piece.mid"), "--output", str(filling / "again.mid")]
    for passage in ("all", {"bars": 3}, {"first_bar": "a"}, {"tracks": 3}, {"instrument": 200}):
        (filling / "told.json").write_text(json.dumps(told | {"passage": passage}))
        assert main(["replay", str(filling / "told.json"), *words]) == 2
        assert "export it again" in capsys.readouterr().err
