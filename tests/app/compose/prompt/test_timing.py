"""Prompts whose beats are estimated, or a fixed grid, instead of those of the file."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.compose.continuation import continue_midi, continue_prompt
from app.compose.fill.passage import Passage
from app.compose.options import BeatSource, MusicOptions
from app.compose.prompt.prompt import read_prompt
from app.compose.prompt.timing import Timing, find_beats
from tests.support.commands import relpe
from tests.support.prompt_score import prompt_score
from tests.support.scores import BPM, performance, two_hands
from tokenization.analysis.beats import Beats
from tokenization.midi import read_midi, write_midi
from tokenization.score import Score, Tempo, Track


@given(
    beats=st.lists(st.floats(0.3, 1.5), min_size=3, max_size=30),
    until=st.floats(0, 20),
    times=st.lists(st.integers(0, 40_000), min_size=1, max_size=20),
)
def test_times_in_counted_beats_convert_back_to_those_of_the_file(beats, until, times):
    file = Score(480, (Track.of([(tick, 10, 60, 80) for tick in times]),), (Tempo(0, 97.0),))
    assert Timing.of(file, None).to_file(np.array(times)).tolist() == times
    found = Beats(np.cumsum(beats), np.arange(0, len(beats), 4))
    timing = Timing.of(file, found, until)
    counted = timing.counted.tracks[0].notes[:, 0]
    back = timing.to_file(counted)
    assert np.abs(back - file.tracks[0].notes[:, 0]).max() <= 3  # half a counted tick, in ms
    assert timing.bpm is not None
    assert (np.diff(timing.to_file(np.arange(0, 9600, 480))) > 0).all()


def test_an_estimate_finds_beats_and_bars_of_a_performance(quick_model):
    prompt = read_prompt(write_midi(performance()), beats="estimate")
    assert prompt.facts.bpm == pytest.approx(BPM, rel=0.01)
    assert (prompt.facts.metre, prompt.bars) == ("4/4", 12)
    splice = float(prompt.score.seconds_at(prompt.splice_ticks))
    assert splice == pytest.approx(0.7 + 12 * 4 * 60 / BPM, abs=0.06)
    *_, result = continue_prompt(quick_model, prompt, MusicOptions(bars=2, seed=1))
    new = result.pieces[0].new  # type: ignore[union-attr]
    seconds = new.tracks[0].notes[:, 0] / new.ticks_per_beat / 2  # of a file at 120 bpm
    steps = (seconds - splice) * prompt.facts.bpm / 5
    assert len(steps) > 5
    assert np.abs(steps - np.rint(steps)).max() < 0.05  # on twelfths of the estimated beat
    assert np.rint(steps.min()) >= 0
    assert np.rint(steps.max()) < 2 * 48
    (said,) = [notice for notice in prompt.facts.notices if "estimated" in notice]
    assert "83 beats per minute, 4/4, and bar 1 begins at 0.7 s" in said
    # bars stay where they are when the end is cut off
    prompt = read_prompt(write_midi(performance()), last_bar=5, beats="estimate")
    splice = float(prompt.score.seconds_at(prompt.splice_ticks))
    assert splice == pytest.approx(0.7 + 5 * 4 * 60 / BPM, abs=0.06)
    assert prompt.bars == 5
    *_, result = continue_prompt(quick_model, prompt, MusicOptions(bars=1, seed=1))
    (piece,) = result.pieces  # type: ignore[union-attr]
    kept = prompt.score.tracks[0].notes
    whole = piece.score.tracks[0].notes
    np.testing.assert_array_equal(whole[: len(kept), :3], kept[:, :3])


def test_a_clock_counts_from_the_first_note_and_one_note_has_beats():
    prompt = read_prompt(write_midi(performance()), beats="grid")
    first = float(prompt.score.seconds_at(prompt.score.tracks[0].notes[0, 0]))
    splice = float(prompt.score.seconds_at(prompt.splice_ticks))
    assert prompt.facts.bpm == pytest.approx(120)
    assert (splice - first) % 2 == pytest.approx(0, abs=0.002)
    data = write_midi(Score(480, (Track.of([(100, 200, 60, 80)]),)))
    for source in ("file", "estimate", "grid"):
        assert read_prompt(data, beats=source).bars == 1
        choice = find_beats(read_midi(data), source)
        assert (choice.source, choice.beats is None) == (source, source == "file")


def test_beats_of_a_recording_are_estimated_unless_those_of_the_file_are_chosen():
    off, on = write_midi(performance()), write_midi(two_hands())
    estimated = read_prompt(off)
    assert estimated.facts.beats == "estimate"
    assert estimated.facts == read_prompt(off, beats="estimate").facts
    assert "as in a recording, so bars and beats are estimated" in estimated.facts.beats_notice
    assert estimated.facts.beats_notice in estimated.facts.notices
    assert estimated.facts.file_bars < 0.1
    chosen = read_prompt(off, beats="file").facts
    assert (chosen.beats, chosen.bpm) == ("file", 120)
    assert "estimate them instead" in chosen.beats_notice
    followed = read_prompt(on).facts
    assert (followed.beats, followed.beats_notice) == ("file", "")
    assert followed.file_bars > 0.99
    # a recording that is too long to estimate keeps the beats of its file
    onsets = np.random.default_rng(0).integers(0, 960 * 4 * 3600, 99)
    far = [(int(onset), 9, 60, 80) for onset in (0, *onsets, 960 * 4 * 3600 + 900)]
    facts = read_prompt(write_midi(Score(480, (Track.of(far),)))).facts
    assert facts.beats == "file"
    assert "do not follow" in facts.beats_notice
    assert facts.beats_notice.endswith("to estimate beats; use a part of the file")


def test_the_model_hears_what_the_pedal_holds():
    dry, wet = (
        read_prompt(write_midi(performance(pedal=pedal)), beats="estimate")
        for pedal in (False, True)
    )
    assert wet.splice_ticks == dry.splice_ticks
    dry_track, wet_track = (prompt_score(prompt).tracks[0] for prompt in (dry, wet))
    assert wet_track.notes[:, 1].sum() / dry_track.notes[:, 1].sum() > 2
    assert wet_track.end_ticks <= wet.splice_ticks + 480  # tokens round durations


def test_the_command_reports_how_it_found_the_beats(folder, capsys):
    (folder / "prompt.mid").write_bytes(write_midi(performance()))
    for options, beats, said in (
        ([], "estimate", "estimated from the notes"),
        (["--beats", "file"], "file", "estimate them instead"),
    ):
        assert relpe(folder, "continue", "--bars", "1", "--json", *options) == 0
        output = capsys.readouterr()
        facts = json.loads(output.out)
        assert (facts["beats"], facts["file_bars"] < 0.1) == (beats, True)
        assert facts["bpm"] == pytest.approx(BPM if beats == "estimate" else 120, rel=0.01)
        assert said in output.err


def test_python_chooses_the_source_of_beats_and_fill_says_the_seconds(quick_model):
    data = write_midi(performance())
    by_grid, by_file = (
        continue_midi(quick_model, data, MusicOptions(bars=1, seed=1, beats=beats)).pieces[0]
        for beats in ("grid", "file")
    )
    assert by_grid.midi != by_file.midi
    passage = Passage(first_bar=3, last_bar=4)
    sources: tuple[tuple[BeatSource, bool], ...] = (("grid", True), ("file", False))
    for beats, says in sources:
        facts = read_prompt(data, beats=beats, passage=passage).facts
        said = [text for text in facts.notices if "new music is written from" in text]
        assert len(said) == says
        # from the first note on, half a grid step before the bar
        assert not says or "bars 3 to 4" in said[0]
