# tests read widgets and frames as the browser does
# pyright: reportTypedDictNotRequiredAccess=false, reportAttributeAccessIssue=false
"""The form of a tab, without a browser."""

from __future__ import annotations

from app.compose.options import LARGEST_SEED, MusicOptions
from app.web.tabs.music import (
    CREATIVITY,
    FORM,
    key_problem,
    mood_of,
    not_of_page,
    roll_dice,
    widget_values,
)


def test_a_wrong_key_is_explained_below_its_field():
    assert all(key_problem(key) == "" for key in ("", None, "  ", "C", "F#m", "D dorian"))
    assert len(key_problem("H")) < 90


def test_settings_of_a_piece_fill_the_form():
    options = MusicOptions(seconds=40.0, seed=7, temperature=1.1, top_p=0.99, key="C", variations=2)
    mood, unit, fresh, *values = widget_values(options)
    filled = dict(zip(FORM, values, strict=True))
    assert (mood, unit, fresh, filled["key"]) == ("Wild", "seconds", False, "C")
    assert (filled["bars"].value, filled["variations"]) == (40.0, 2)
    long = widget_values(MusicOptions(bars=200))[3]
    assert (long.value, long.maximum) == (200, 200)


def test_settings_without_a_field_are_refused():
    assert not_of_page(MusicOptions()) == ""
    assert ": repetition is 0.5, expected 0. Use" in not_of_page(MusicOptions(repetition=0.5))


def test_creativity_names_its_settings():
    assert all(mood_of(*pair) == name for name, pair in CREATIVITY.items())
    assert mood_of(0.73, 0.5) is None
    seed, fresh = roll_dice()
    assert 0 <= seed <= LARGEST_SEED
    assert fresh is False
