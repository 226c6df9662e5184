"""Facts about a prompt, and notices about what the model ignores."""

from __future__ import annotations

from app.compose.prompt.prompt import read_prompt
from tokenization.midi import write_midi
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Tempo, Track


def test_notices_name_what_the_model_ignores():
    tracks = (
        Track.of([(0, 480, 60, 80), (480, 480, 64, 80)]),
        Track.of([(0, 480, 40, 80)], program=33),
        Track.of([(0, 100, 36, 90)], is_drum=True),
    )
    prompt = read_prompt(write_midi(Score(480, tracks, (Tempo(0, 100.0), Tempo(960, 90.0)))))
    notices = "; ".join(prompt.facts.notices)
    for part in ("2 tracks", "drums", "tempo changes once"):
        assert part in notices
    assert prompt.facts.tracks == 3
    assert prompt.facts.notes == 4


def facts_of(*tempos: tuple[int, float], first: int = 0, bars: int = 4) -> tuple[float, str]:
    """Tempo and notice for a file of quarter notes from tick `first` on, with these tempos."""
    notes = [(first + 480 * beat, 400, 60, 80) for beat in range(4 * bars)]
    score = Score(480, (Track.of(notes),), tuple(Tempo(*tempo) for tempo in tempos))
    facts = read_prompt(write_midi(score)).facts
    return round(facts.bpm, 2), " ".join(text for text in facts.notices if "tempo" in text)


def test_the_tempo_is_that_which_lasts_longest_and_repeated_ones_are_no_changes():
    assert facts_of() == (120, "")
    assert facts_of(*((480 * beat, 90) for beat in range(9))) == (90, "")
    # tempos before the first note do not count, such as the default tempo of MIDI
    assert facts_of((0, 30), (1, 96), first=480) == (96, "")
    assert facts_of((240, 96), first=480) == (96, "")
    once = "the tempo changes once; the new music uses the last tempo"
    assert facts_of((960, 96)) == (96, once)
    assert facts_of((0, 30), (1, 96)) == (96, once)
    assert facts_of((0, 100), (3840, 50), (3 * 1920, 100))[0] == 100
    assert facts_of((0, 200), (4 * 1920, 40), bars=6)[0] == 40  # in time, not in bars


def test_notices_name_what_the_model_reads_of_a_band():
    tracks = [Track.of([(0, 400, 60 + i, 80)], program=48) for i in range(6)]
    drums = Track.of([(0, 10, 36, 90)], is_drum=True)
    data = write_midi(Score(480, (*tracks, drums)))
    facts = read_prompt(data, tokenizer=MultitrackRemi()).facts
    assert "2 tracks are read as parts of others" in facts.notices
    data = write_midi(Score(480, (*tracks[1:], drums)))
    facts = read_prompt(data, tokenizer=MultitrackRemi()).facts
    assert "1 track is read as part of another track" in facts.notices
    facts = read_prompt(data, tokenizer=PianoRemi()).facts
    assert "the model ignores drums (1 note)" in facts.notices
    rows = [(480 * beat + 13 * (beat % 3), 400, 60, 80) for beat in range(16)]
    events = {"controls": [(0, 7, 90), (5, 64, 127), (9, 64, 0)], "bends": [(0, 50)]}
    data = write_midi(Score(480, (Track(rows, **events),)))  # pyright: ignore[reportArgumentType]
    assert (
        "the model does not read 1 controller change and 1 pitch bend; it reads the times of notes "
        "rounded by 9 ms on average"
    ) in read_prompt(data).facts.notices


def test_a_tempo_outside_the_range_of_the_model_is_named():
    bpm, notice = facts_of((0, 800))
    assert bpm == 800
    assert notice.startswith(
        "1 tempo of 800, outside 15 to 499 beats per minute: the model reads these beats halved, so"
    )
    notice = facts_of((0, 8), (480, 10), (960, 100))[1]
    assert notice.startswith("2 tempos from 8 to 10, outside")
    assert "reads these beats doubled, so" in notice


def test_a_tempo_that_is_rounded_is_no_news():
    for bpm in (100, 121.13):
        assert facts_of((0, bpm), bars=64)[1] == ""
