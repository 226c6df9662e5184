"""The music options, and everything that is built from them."""

from __future__ import annotations

from typing import Any

import pytest

from app.cli.main import main
from app.compose.options import OF_PROMPT, OPTIONS, MusicOptions


def test_every_field_is_an_option_of_the_commands_that_it_applies_to(capsys):
    for command, kinds in (
        ("continue", (None, "prompt")),
        ("generate", (None, "nothing")),
        ("batch", (None, "prompt", "nothing")),
    ):
        with pytest.raises(SystemExit):
            main([command, "--help"])
        said = capsys.readouterr().out
        for option in OPTIONS.values():
            applies = option.only in kinds
            if command == "batch":
                applies &= option.name not in ("variations", "study", "study_steps")
            assert (f"--{option.name.replace('_', '-')} " in said) == applies


def test_options_are_described_as_they_are_declared():
    assert (OPTIONS["seed"].kind, OPTIONS["seconds"].kind, OPTIONS["key"].kind) == (int, float, str)
    assert OPTIONS["ending"].words == ("auto", "bar", "cadence", "natural")
    assert OF_PROMPT[:4] == ("prompt_bars", "beats", "drums", "distance")
    assert OF_PROMPT[4:] == ("presence", "recall", "study", "study_steps")
    for name, option in OPTIONS.items():
        assert option.default == getattr(MusicOptions(), name)
        if option.limits is not None:
            wide, scripts, page = option.limits
            assert page[0] >= wide[0]
            assert scripts[1] is None or wide[1] is None or scripts[1] <= wide[1]
        if option.widget is not None and option.words:
            assert 0 < len(option.widget.choices) <= len(option.words)
    # letters of file names are different; `Job._name` itself uses a, b, h, i, p, s, T, t and v
    letters = [option.letter for option in OPTIONS.values() if option.letter]
    assert len(set(letters)) == len(letters) > 3
    assert not set(letters) & set("abhipsTtv")


def test_a_value_out_of_its_range_is_refused_by_name():
    values: list[tuple[dict[str, Any], str]] = [
        ({"bars": 0}, "bars is 0, expected 1 to 4096"),
        ({"prompt_bars": -1}, "prompt bars is -1, expected at least 0"),
        ({"top_p": 2}, "top p is 2, expected 0 to 1"),
        ({"ending": "soft"}, "ending is 'soft', expected auto, bar, cadence or natural"),
    ]
    for options, problem in values:
        with pytest.raises(ValueError, match=f"^{problem}$"):
            MusicOptions(**options)
    texts: list[dict[str, Any]] = [{"key": "H"}, {"chords": "X"}, {"chords": ""}, {"form": "8A"}]
    for options in texts:
        with pytest.raises(ValueError, match="expected"):
            MusicOptions(**options)
