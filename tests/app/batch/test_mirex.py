"""JSON of the MIREX task: prompts in, continuations out."""

from __future__ import annotations

import json

import pytest

from app.batch.mirex import generation, midi_of_prompt
from app.compose.prompt.prompt import read_prompt
from tokenization.errors import MidiError
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, TimeSignature, Track, all_notes


def note(start: int, pitch: int, duration: int) -> dict[str, int]:
    return {"start": start, "pitch": pitch, "duration": duration}


PROMPT = [note(16 + 2 * i, 60 + i % 12, 6) for i in range(32)]
REAL = [note(80 + 3 * i, 50 + i, 3) for i in range(60)]


def test_a_prompt_lasts_five_bars_even_if_its_notes_end_later():
    data = midi_of_prompt(json.dumps({"prompt": PROMPT}).encode(), "p.json")
    prompt = read_prompt(data, "p.json", 5)
    assert (prompt.bars, prompt.facts.bars, prompt.splice_ticks) == (5, 5, 20 * 480)
    onsets = all_notes(read_midi(data).tracks)[:, 0]
    assert onsets.tolist() == [note["start"] * 120 for note in PROMPT]
    # a generation comes back as it was given
    data = midi_of_prompt(json.dumps({"prompt": PROMPT, "generation": REAL}).encode(), "p.json")
    assert json.loads(generation(data, 6)) == {"generation": REAL}


def test_a_generation_is_rounded_to_sixteenths_and_ends_after_twelve_bars():
    notes = [(0, 480, 60, 70), (1920 + 130, 20, 61, 70), (1920, 100_000, 62, 70)]
    notes += [(13 * 1920, 480, 63, 70)]
    score = Score(480, (Track.of(notes),), (), (TimeSignature(0, 4, 4),))
    assert json.loads(generation(write_midi(score), 2)) == {
        "generation": [note(80, 62, 192), note(81, 61, 1)]
    }


def test_other_json_is_refused_in_one_sentence():
    for told, problem in (
        ("{", "Expecting property name"),
        ('{"melody": []}', "the list prompt is missing"),
        ('{"prompt": 3}', "expected a list"),
        ('{"prompt": [3]}', "a note is 3, expected start"),
        ('{"prompt": [{"start": 80, "pitch": 60, "duration": 1}]}', "80, expected 0 to 79"),
        ('{"prompt": [{"start": 0, "pitch": 60.5, "duration": 1}]}', "pitch is 60.5"),
        ('{"prompt": [{"start": 0, "pitch": 60, "duration": 0}]}', "duration is 0"),
        ('{"prompt": []}', "no notes"),
    ):
        with pytest.raises(MidiError, match=problem) as refused:
            midi_of_prompt(told.encode(), "p.json")
        assert str(refused.value).startswith("p.json: ")
        assert "\n" not in str(refused.value)
