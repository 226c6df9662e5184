"""Files as prompts: what the model reads, where new music begins, and which files are refused."""

from __future__ import annotations

import re

import numpy as np
import pytest

from app.compose.continuation import Progress, continue_prompt
from app.compose.options import MusicOptions
from app.compose.prompt.prompt import HEARD_TOKENS, Prompt, read_prompt
from tests.support.scores import two_hands
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import BAR
from tokenization.score import Score, TimeSignature, Track


def file_of(*notes: tuple[int, int, int, int], metre: tuple[int, int] = (4, 4)) -> bytes:
    return write_midi(Score(480, (Track.of(notes),), (), (TimeSignature(0, *metre),)))


# ---- what the model reads


def hostile() -> bytes:
    """A file of a few bytes with 128,000 bars."""
    return file_of((0, 400, 60, 80), (64_000 * 480, 200, 62, 80), metre=(1, 8))


def notice_of_length(prompt: Prompt) -> list[str]:
    return [notice for notice in prompt.facts.notices if "long" in notice]


def test_the_model_reads_the_end_of_a_long_prompt():
    prompt = read_prompt(hostile())
    assert prompt.bars == 128_001
    context = PianoRemi().crop(prompt.ids, prompt.first_heard())
    assert HEARD_TOKENS - 10 < len(context) <= HEARD_TOKENS + 4  # plus metre and tempo
    heard = prompt.bars - prompt.first_heard()
    (notice,) = notice_of_length(prompt)
    assert f"the last {heard:,} of 128,001 bars" in notice
    assert prompt.first_bar_heard() == prompt.first_heard() + 1  # each bar has one Bar token
    assert HEARD_TOKENS - 10 < prompt.tokens_heard() <= HEARD_TOKENS
    assert prompt.first_heard(100_000) == 28_001  # unless more bars are requested
    assert not notice_of_length(read_prompt(write_midi(two_hands())))


def test_the_model_reads_the_end_of_a_long_bar(monkeypatch):
    notes = [(120 * place, 100, 60 + place % 12, 80) for place in range(4 * 51)]
    whole = read_prompt(file_of(*notes, metre=(51, 4)))
    assert (whole.bars, whole.first_heard(), whole.first_bar_heard()) == (1, 0, 1)
    assert whole.tokens_heard() == len(whole.ids) - list(whole.ids).index(BAR)
    monkeypatch.setattr("app.compose.prompt.prompt.HEARD_TOKENS", len(whole.ids) // 2)
    prompt = read_prompt(file_of(*notes, metre=(51, 4)))
    first = np.flatnonzero(prompt.ids == BAR)[prompt.first_heard()]
    assert len(prompt.ids) // 3 < len(prompt.ids) - first <= len(prompt.ids) // 2
    (notice,) = notice_of_length(prompt)
    assert "the end of the last bar" in notice


def test_reading_a_prompt_shows_progress_and_can_be_stopped(quick_model, monkeypatch):
    monkeypatch.setattr("app.compose.continuation.SECONDS_BETWEEN_REPORTS", 0.0)
    monkeypatch.setattr("relpe.decoding.eager.PREFILL_CHUNK", 16)
    prompt = read_prompt(write_midi(two_hands()))
    steps = list(continue_prompt(quick_model, prompt, MusicOptions(bars=1, seed=1)))
    reading = [step for step in steps if isinstance(step, Progress) and step.tokens == 0]
    assert len(reading) >= len(prompt.ids) // 16
    calls = iter(range(100))
    *_, result = continue_prompt(
        quick_model, prompt, MusicOptions(bars=9, seed=1), lambda: next(calls) > 2
    )
    assert getattr(result, "tokens", 99) <= 1


# ---- where new music begins


def test_empty_bars_at_the_end_of_a_file_are_told():
    def told(prompt):
        return re.findall(r"\d+ empty bars?;", " ".join(prompt.facts.notices))

    note = Track.of([(0, 480, 60, 80)])
    for bars, said in ((1, []), (2, ["1 empty bar;"]), (5, ["4 empty bars;"])):
        data = write_midi(Score(480, (note,), end_ticks=bars * 1920))
        prompt = read_prompt(data)
        assert (prompt.bars, told(prompt)) == (bars, said)
        assert not told(read_prompt(data, last_bar=1))
    held = Track.of([(0, 8 * 1920, 60, 80)])  # new music may begin before its end
    drums = Track.of([(beat * 480, 100, 36, 90) for beat in range(32)], is_drum=True)
    for tracks in ((held,), (note, drums)):
        prompt = read_prompt(write_midi(Score(480, tracks, end_ticks=9 * 1920)))
        assert prompt.bars == 9
        assert told(prompt) == ["1 empty bar;"]


def test_new_music_begins_at_a_bar_line_and_waits_for_a_long_note_but_not_for_ever():
    bars = {500: 1, 1900: 1, 1920 + 480: 1, 1920 + 500: 2, 2 * 1920 + 500: 3, 400 * 1920: 3}
    for length, count in bars.items():
        prompt = read_prompt(file_of((0, length, 60, 80)))
        assert prompt.bars == prompt.facts.bars == count
        assert prompt.splice_ticks == count * 1920


def test_a_coarse_file_is_cut_at_its_bar_lines():
    notes = [(tick, 1, 60, 80) for tick in range(14)]
    data = write_midi(Score(1, (Track.of(notes),), (), (TimeSignature(0, 7, 8),)))
    prompt = read_prompt(data, last_bar=3)
    assert prompt.score.ticks_per_beat == 12
    assert prompt.splice_ticks == 3 * 42
    assert read_midi(prompt.data).tracks[0].notes[:, 0].tolist() == list(range(11))


# ---- files that are refused


def test_what_cannot_be_continued_is_refused(prompt_bytes):
    drums = Track.of([(0, 100, 36, 90)], is_drum=True)
    for track, problem in ((drums, "drums only"), (Track.of([]), "no notes")):
        with pytest.raises(MidiError, match=problem):
            read_prompt(write_midi(Score(480, (track,))), "song.mid")
    for first, last in ((None, 0), (None, 5), (0, None), (5, None)):
        with pytest.raises(MidiError, match="expected 1 to 4"):
            read_prompt(prompt_bytes, last_bar=last, first_bar=first)
    # a prompt without room for new music
    far = write_midi(Score(1, (Track.of([(0, 1, 60, 80), (65_516, 3, 60, 80)]),)))
    with pytest.raises(MidiError, match=r"far\.mid: .*65,520, expected at most 64,512"):
        read_prompt(far, "far.mid")
    assert read_prompt(far, last_bar=2).bars == 2
