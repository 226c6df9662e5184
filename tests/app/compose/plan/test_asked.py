"""Form, chords and style that are asked of new music."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from app.compose.continuation import continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.options import MusicOptions
from app.compose.piece import Opening
from app.compose.plan.asked import (
    Heard,
    asked_bars,
    asked_chords,
    chords_met,
    closing_key,
    form_cut,
    form_met,
    heard_before,
)
from app.compose.plan.lead_sheet import LeadSheet
from app.compose.prompt.prompt import read_prompt
from tests.support.bands import band, model_of, sampled
from tests.support.scores import two_hands
from tokenization.analysis.form import Phrase
from tokenization.analysis.keys import key_at_end
from tokenization.errors import MidiError, TokenizerError
from tokenization.midi import write_midi
from tokenization.plan import BarPlan, Key, Plan
from tokenization.plan_text import parse_chart
from tokenization.remi.multitrack import MultitrackRemi, MultitrackRemiConfig
from tokenization.remi.vocabulary import BAR
from tokenization.remi.vocabulary import MULTITRACK_FAMILIES as F
from tokenization.score import Score, Track


@pytest.fixture(scope="module")
def model():
    config = MultitrackRemiConfig(styles=("pop", "waltz"))
    return model_of(MultitrackRemi(config))


def heads(opening: Opening) -> list[str]:
    """The plan tokens of each bar of music that follows an opening."""
    names = opening.model.tokenizer.vocabulary.names
    text = " ".join(names[token] for token in (*opening.first_ids, *sampled(opening)))
    kinds = ("Return", "Chord", "Bass")
    return [
        " ".join(word for word in bar.split() if word.startswith(kinds))
        for bar in text.split("Bar ")[1:]
    ]


def opening(model: MusicModel, **options: Any) -> Opening:
    prompt = read_prompt(write_midi(band(bars=4)), tokenizer=model.tokenizer)
    return Opening.after(model, prompt, MusicOptions(**options))


def test_every_bar_of_a_chart_is_asked_and_a_short_chart_repeats(model):
    made = heads(opening(model, bars=5, chords="C | G/B | Am F"))
    asked = ["Chord_C_M", "Chord_G_M Bass_11", "Chord_A_m Chord_F_M"]
    assert [bar.partition(" ")[2] for bar in made[:5]] == [*asked, *asked[:2]]
    options = MusicOptions(bars=3, seed=1, chords="C | Dm", form="A2 B1", style="pop")
    prompt = read_prompt(write_midi(band(bars=4)), tokenizer=model.tokenizer)
    for steps in (continue_prompt(model, prompt, options), generate_piece(model, options)):
        *_, result = steps
        assert result.bars == 3  # type: ignore[union-attr]


def test_a_letter_of_the_prompt_brings_its_section_back(model):
    chords = parse_chart("C | F | G | C")
    before = [Heard("A", bar) for bar in chords]
    fixed = asked_bars(MusicOptions(form="B2 A2"), 6, before)
    assert [bar.sources for bar in fixed] == [(0,), (0,), (6,), (6,), None, None]
    assert [bar.chords for bar in fixed] == [None, None, *chords[:2], None, None]
    charted = asked_bars(MusicOptions(form="B2 A2", chords="Am"), 4, before)
    assert [bar.chords for bar in charted] == [*parse_chart("Am")] * 4
    charted = asked_bars(MusicOptions(form="B2 A2", chords="? | Am | ? | ?"), 4, before)
    assert [bar.chords for bar in charted] == [None, *parse_chart("Am"), *chords[:2]]
    made = heads(opening(model, bars=4, form="B2 A2 C9"))
    assert made[0].startswith("Return_New")


def test_bars_of_a_form_are_exact_unless_other_chords_are_asked():
    before = [Heard("A", bar) for bar in parse_chart("C | F")]
    cases: list[tuple[dict[str, Any], list[int]]] = [
        ({"form": "B2 A2"}, [2, 3]),
        ({"form": "B2 A2", "chords": "C"}, [2]),  # A is C F
        ({"form": "B2 A2", "chords": "? | ? | F | ?"}, [3]),
        ({"form": "B2 B2", "chords": "C | G"}, [2, 3]),
        ({"form": "B2 B2", "chords": "C | G | C7 | Am"}, [2]),
        ({"form": "B2 B2", "ending": "cadence"}, []),
        ({"form": "B2 A2", "ending": "natural"}, [2]),
        ({"chords": "C | F"}, []),
    ]
    for chosen, exact in cases:
        options = MusicOptions(**chosen)
        key = Key(0, minor=False) if options.ending == "cadence" else None
        bars = asked_bars(options, 4, before, key=key)
        assert [place for place, bar in enumerate(bars) if bar.exact] == exact


def test_the_rule_imposes_the_bars_of_the_form(model):
    begun = opening(model, bars=3, form="B2 A1")
    ids = sampled(begun)
    rule, imposed = begun.rule, [begun.rule.imposed]
    for token in ids[:-1]:
        rule = rule.advance(token)
        if token == BAR:
            imposed.append(rule.imposed)
    assert imposed == [False, False, True]
    assert begun.returns == {begun.first_bar + 2: 0}
    assert not opening(model, bars=3, chords="C").rule.imposed


def test_a_letter_that_was_heard_twice_in_a_row_has_the_length_of_one_section():
    plan = Plan((BarPlan(),) * 4, Key(0, minor=False))
    before = heard_before(plan, 4, [Phrase("A", 0, 2), Phrase("A", 2, 2)])
    assert [bar.letter for bar in before] == ["A"] * 4
    assert [bar.begins for bar in before] == [True, False, True, False]
    again = asked_bars(MusicOptions(form="A"), 3, before)
    assert [bar.sources for bar in again] == [(2,), (2,), None]


def test_bars_resemble_only_bars_with_the_chords_that_are_asked(model):
    before = [Heard("A", bar) for bar in parse_chart("C | Am | G C")]
    fixed = asked_bars(MusicOptions(chords="Am7 | G C"), 4, before)
    assert [bar.sources for bar in fixed] == [(0, 2), (0, 2), (0, 2, 4), (0, 2, 4)]
    formed = asked_bars(MusicOptions(form="A1", chords="F | Am"), 2, before)
    assert [bar.sources for bar in formed] == [(3,), (0, 3)]
    made = heads(opening(model, bars=8, chords="C#dim | F#aug"))
    allowed = ["Return_New", "Return_2", "Return_4", "Return_6"]
    assert {head.split()[0] for head in made[:8]} <= set(allowed)


def test_a_cadence_closes_on_the_tonic_where_the_chart_leaves_it_free():
    for chords, wanted in (
        (None, [(), (), (), (), "E7", "Am"]),
        (None, [(), (), "Am"]),
        ("C | ?", ["C", (), "C", "Am"]),
        ("F | G", ["F", "G", "F", "G"]),
    ):
        options = MusicOptions(ending="cadence", chords=chords)
        asked = asked_chords(options, len(wanted), Key(9, minor=True))
        assert asked == [chord and parse_chart(chord)[0] for chord in wanted]
    # the key is the one that is asked, or that of the piece
    piece = two_hands()
    close = partial(MusicOptions, ending="cadence")
    assert closing_key(close(), piece) == key_at_end(piece)
    assert closing_key(close(key="F#m"), piece) == Key(6, minor=True)
    assert closing_key(close(key="D dorian"), piece) is None
    # of some seconds, it is not known which bar is the last
    assert asked_chords(close(seconds=9), 4, Key(0, minor=False)) == []
    assert closing_key(close()) is None
    assert closing_key(MusicOptions(), piece) is None


def test_a_style_of_the_model_is_named_in_the_header(model):
    asked = opening(model, style="waltz").context
    assert asked[1] == F.style + 1
    assert opening(model).context.tolist() == np.delete(asked, 1).tolist()
    nothing = Opening.of_nothing(model, MusicOptions(style="pop"))
    assert nothing.context.tolist()[1] == F.style


def test_what_a_model_cannot_do_is_refused(model):
    with pytest.raises(TokenizerError, match="style 'jazz'; its styles are: pop, waltz"):
        opening(model, style="jazz")
    with pytest.raises(MidiError, match="write a number of bars after a new letter"):
        opening(model, form="Q")
    plain = model_of(MultitrackRemi())
    for begin in (opening, lambda m, **o: Opening.of_nothing(m, MusicOptions(**o))):
        with pytest.raises(TokenizerError, match="the second model cannot write in the style"):
            begin(plain, style="waltz")


def test_chords_are_met_by_root_and_third():
    rows = [
        (480 * 4 * bar, 1900, pitch, 80)
        for bar, chord in enumerate([(48, 52, 55), (45, 48, 52, 55), (43, 47, 50, 53)])
        for pitch in chord
    ]
    sheet = LeadSheet.of(Score(480, (Track.of(rows),)))  # C, Am7, G7
    assert chords_met(MusicOptions(chords="C | ? | F"), sheet, 0, 3) == ("chords", 2, (2,))
    for chords, met in (("C | Am | G7", 3), ("C | A | G", 2), ("F", 0), ("C", 1)):
        found = chords_met(MusicOptions(chords=chords), sheet, 0, 3)
        assert found is not None
        assert (3 - len(found.missed), found.asked) == (met, 3)
    told = "chords met in 1 of 3 bars, not in bars 2 and 3"
    assert str(chords_met(MusicOptions(chords="C"), sheet, 0, 3)) == told
    assert str(chords_met(MusicOptions(chords="F"), sheet, 0, 1)) == "chords met in 0 of 1 bar"
    assert chords_met(MusicOptions(), sheet, 0, 3) is None
    assert chords_met(MusicOptions(chords="?"), sheet, 0, 3) is None


def test_a_form_is_met_by_bars_that_return_to_their_section():
    # bars 3 and 4 repeat 1 and 2; bar 5 repeats 3, and so 1; bar 6 repeats 1
    sheet = LeadSheet("", (), (0, 0, 1, 2, 3, 1), ((),) * 6)
    met = form_met(MusicOptions(form="A2 A2 A2"), sheet, [], 6)
    assert met == ("form", 4, (5,))
    assert str(met) == "form met in 3 of 4 returning bars, not in bar 6"
    after = form_met(MusicOptions(form="B2 A2"), sheet, [Heard("A"), Heard("A")], 4)
    assert after == ("form", 2, (5,))
    assert form_met(MusicOptions(form="A2 B4"), sheet, [], 6) is None  # nothing was to return
    assert form_met(MusicOptions(), sheet, [], 6) is None
    # a form that is longer than the music
    before = [Heard("A"), Heard("A")]
    said = "the form has 6 bars, but the new music only 4"
    assert form_cut(MusicOptions(form="B4 A"), before, 4) == said
    assert form_cut(MusicOptions(form="B4 A"), before, 6) == ""
    assert form_cut(MusicOptions(), before, 4) == ""
    # a form that brings back what the model does not read
    said = "the form brings back bar 1, but the model reads from bar 2 on"
    assert form_cut(MusicOptions(form="B4 A"), before, 6, 2) == said
    assert form_cut(MusicOptions(form="B4"), before, 4, 2) == ""
