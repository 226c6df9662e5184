"""New music in notated bars: metres off the grid of eighths, long bars, changes of metre."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from app.compose.continuation import Result, continue_prompt
from app.compose.models import MusicModel
from app.compose.new_bars import NewBars
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import Prompt, read_prompt
from tests.support.prompt_score import prompt_score
from tests.support.scores import two_hands
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.rule import ConstrainedGrammar
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.grammar import RemiGrammar
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR, POSITION, VOCABULARY
from tokenization.score import Score, Tempo, TimeSignature, Track

ODD = [(5, 16), (7, 16), (9, 32), (3, 16), (9, 4), (12, 4), (13, 4), (33, 16)]


def finish(model: MusicModel, prompt: Prompt, **options: Any) -> Result:
    *_, result = continue_prompt(model, prompt, MusicOptions(**options))
    assert isinstance(result, Result)
    return result


def onsets(score: Score) -> np.ndarray:
    return np.concatenate([track.notes[:, 0] for track in score.tracks])


def one_note_a_bar(metre: tuple[int, int], bars: int, division: int = 480) -> bytes:
    length = 4 * division * metre[0] / metre[1]
    notes = [(round(bar * length), round(length * 0.9), 60 + bar, 80) for bar in range(bars)]
    return write_midi(Score(division, (Track.of(notes),), (), (TimeSignature(0, *metre),)))


def test_new_music_has_exactly_the_notated_bars(quick_model):
    for metre, division in (((9, 32), 25), ((13, 4), 480), ((33, 16), 480)):
        prompt = read_prompt(one_note_a_bar(metre, 3, division))
        bar = 4 * division * metre[0] / metre[1]
        assert prompt.bars == prompt.facts.bars == 3
        assert prompt.splice_ticks == pytest.approx(3 * bar, abs=0.51)
        result = finish(quick_model, prompt, bars=2, seed=1)
        assert result.bars == 2
        (piece,) = result.pieces
        begins = onsets(piece.new)
        assert len(begins)
        assert prompt.splice_ticks <= begins.min()
        assert begins.max() < 5 * bar
        # the last bar also has music, so no bar is missing
        assert begins.max() >= 4 * bar - 0.51
        assert PianoRemi().encode(piece.score).merged == 0
        assert piece.score.end_ticks <= round(5 * bar)
        assert piece.score.time_signatures == prompt.score.time_signatures
        assert read_midi(piece.new_midi).end_ticks <= round(2 * bar) + 1


def test_every_notated_bar_begins_with_a_bar_token():
    for metre in ODD:
        prompt = read_prompt(one_note_a_bar(metre, 4))
        places = np.flatnonzero(prompt.ids == BAR)[prompt.bar_tokens[:-1]]
        for bar in np.split(prompt.ids, places)[1:]:
            positions = bar[(bar >= POSITION) & (bar < POSITION + 96)] - POSITION
            assert positions.tolist() == [0]
        begins = prompt_score(prompt).tracks[0].notes[:, 0]
        np.testing.assert_array_equal(begins, onsets(prompt.score))
        is_between_eighths = 8 * metre[0] % metre[1] > 0
        assert any("eighth" in notice for notice in prompt.facts.notices) == is_between_eighths


def test_last_bar_and_prompt_bars_count_notated_bars(quick_model):
    data = one_note_a_bar((7, 16), 6)
    prompt = read_prompt(data, last_bar=4)
    assert prompt.splice_ticks == 4 * 840
    assert len(onsets(prompt.score)) == 4
    assert prompt.facts.bars == 6
    result = finish(quick_model, prompt, bars=1, seed=1, prompt_bars=3)
    assert result.prompt_notes == 3
    with pytest.raises(MidiError, match="expected 1 to 6"):
        read_prompt(data, last_bar=7)


def test_a_stopped_piece_ends_with_the_notated_bar_it_reached(quick_model):
    prompt, calls = read_prompt(one_note_a_bar((9, 4), 2)), iter(range(10_000))
    options = MusicOptions(bars=90, seed=1, takes=1)
    *_, result = continue_prompt(quick_model, prompt, options, lambda: next(calls) > 120)
    assert isinstance(result, Result)
    new = result.pieces[0].new
    assert new.end_ticks == (2 + result.bars + 1) * 9 * 480
    assert onsets(new).max() >= new.end_ticks - 9 * 480


def test_the_rule_allows_only_what_fits_the_notated_bars():
    bars = NewBars.after(read_prompt(one_note_a_bar((33, 16), 1)), 2)
    assert [(b.length, b.room, b.notated) for b in bars.planned] == [
        *((60, 60, 0), (42, 39, 0), (60, 60, 1), (42, 39, 1))
    ]
    names = VOCABULARY.ids
    start = [names[n] for n in ("Bar", "TimeSignature_60", "Tempo_89.9")]
    limit = BarLimit(1, 4, bars.planned)
    rule = ConstrainedGrammar(PianoRemi().grammar().resume(start), limit).advance(BAR)
    assert np.flatnonzero(rule.allowed).tolist() == [names["TimeSignature_42"]]
    rule = rule.advance(names["TimeSignature_42"])
    assert np.flatnonzero(rule.allowed[POSITION : POSITION + 96]).tolist() == list(range(39))
    assert rule.allowed[BAR]
    rule = rule.advance(BAR).advance(names["TimeSignature_60"])
    assert rule.limit.notated_bar(rule.grammar) == 1
    assert rule.allowed[POSITION + 59]
    rule = rule.advance(BAR).advance(names["TimeSignature_42"]).advance(BAR)
    assert rule.finished
    assert not rule.allowed.any()


# ---- metre and tempo at the splice


@pytest.fixture
def heard(monkeypatch):
    """Names of the tokens after the prompt's last note, as the model reads them."""
    names: list[str] = []

    def resume(self, ids):
        words = [VOCABULARY.names[token] for token in ids.tolist()]
        last = max(at for at, word in enumerate(words) if word.startswith("Duration"))
        names[:] = words[last + 1 :]
        return original(self, ids)

    original = RemiGrammar.resume
    monkeypatch.setattr(RemiGrammar, "resume", resume)
    return names


def test_a_change_of_metre_and_tempo_at_the_splice_applies_to_new_music(quick_model, heard):
    """Two bars of 4/4 at 96 bpm, then 3/4 at 60 bpm, without music after this change or with."""
    upload = two_hands(bars=2).tracks[0].notes.tolist()
    behind = [(3840 + 480 * beat, 400, 60, 80) for beat in range(6)]
    metres = ((0, 4, 4), (3840, 3, 4))
    for notes, last_bar in ((upload, None), ([*upload, *behind], 2)):
        tempos = (Tempo(0, 96.0), Tempo(3840, 60.0))
        signatures = tuple(TimeSignature(*metre) for metre in metres)
        data = write_midi(Score(480, (Track.of(notes),), tempos, signatures))
        prompt = read_prompt(data, last_bar=last_bar)
        assert prompt.splice_ticks == 3840
        assert prompt.score.time_signatures == metres
        (piece,) = finish(quick_model, prompt, bars=4, seed=1).pieces
        assert heard == ["Bar", "TimeSignature_36", "Tempo_60.0"]
        assert piece.score.time_signatures == metres
        assert piece.score.tempos[-1] == prompt.score.tempos[-1] == (3840, pytest.approx(60))
        assert piece.new.end_ticks == 3840 + 4 * 1440
        assert onsets(piece.new).max() < 3840 + 4 * 1440
        alone = read_midi(piece.new_midi)
        assert alone.time_signatures == ((0, 3, 4),)
        assert alone.tempos == ((0, pytest.approx(60)),)


def test_a_short_first_bar_leaves_all_other_bars_whole(quick_model, heard):
    pickup = [(0, 240, 67, 80), (240, 240, 69, 80)]
    signatures = (TimeSignature(0, 1, 4), TimeSignature(480, 4, 4))
    prompt = read_prompt(write_midi(Score(480, (Track.of(pickup),), (), signatures)))
    assert (prompt.bars, prompt.splice_ticks) == (1, 480)
    (piece,) = finish(quick_model, prompt, bars=2, seed=1).pieces
    assert heard == ["Bar", "TimeSignature_48"]
    assert piece.new.end_ticks == 480 + 2 * 1920
    # an upbeat of a sixteenth
    signatures = (TimeSignature(0, 1, 16), TimeSignature(120, 3, 4))
    notes = [(0, 120, 67, 80), *((120 + 480 * beat, 400, 60, 80) for beat in range(6))]
    prompt = read_prompt(write_midi(Score(480, (Track.of(notes),), (), signatures)))
    assert (prompt.bars, prompt.splice_ticks) == (3, 120 + 2 * 1440)
    bars = " ".join(VOCABULARY.names[token] for token in prompt.ids).split("Bar ")[1:]
    assert [bar.split()[0] for bar in bars[:2]] == ["TimeSignature_6", "TimeSignature_36"]
    assert "Position_0 Pitch_60" in bars[1]
    (piece,) = finish(quick_model, prompt, bars=2, seed=1).pieces
    assert piece.new.end_ticks == 120 + 4 * 1440


def test_a_later_change_of_metre_in_the_file_applies_from_there(quick_model):
    upload = two_hands(bars=2)
    drums = Track.of([(0, 100, 36, 90), (12_000, 100, 36, 90)], is_drum=True)
    signatures = (TimeSignature(0, 4, 4), TimeSignature(2 * 3840, 3, 8))
    data = write_midi(Score(480, (*upload.tracks, drums), (), signatures))
    bars = NewBars.after(read_prompt(data), 5)
    assert np.diff(bars.map.lines).tolist() == [1920, 1920, 720, 720, 720]
    assert finish(quick_model, read_prompt(data), bars=5, seed=1).bars == 5
    # a continuation too long for a file is refused in advance
    data = write_midi(Score(1, (Track.of([(0, 1, 60, 80), (60_000, 1, 60, 80)]),)))
    prompt = read_prompt(data)
    steps = continue_prompt(quick_model, prompt, MusicOptions(bars=2000))
    with pytest.raises(MidiError, match=r"would end at quarter note 68,004"):
        next(steps)
