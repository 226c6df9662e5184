"""The page without a browser: it builds, and its callbacks do what the widgets need."""

from __future__ import annotations

import asyncio
import io
from pathlib import Path
from types import SimpleNamespace
from typing import get_type_hints

import gradio as gr
import mido
import numpy as np
import pytest
import soundfile
from hypothesis import given
from hypothesis import strategies as st

from app import continuation, endpoints, sound
from app.callbacks import CREATIVITY, Callbacks, facts_table, mood_of, roll_dice
from app.continuation import LARGEST_SEED, MusicOptions
from app.page import build_page
from app.player import SCRIPT, STYLES, TEMPLATE, UNITS_PER_BEAT, bar_lines, pack_notes, timeline
from app.studio import Studio, waiting
from app.upload import read_upload
from tests.app import fakes
from tokenization.errors import MidiError
from tokenization.score import Score, Tempo, TimeSignature, Track

REQUEST = SimpleNamespace(session_hash="someone")


@pytest.fixture
def model(monkeypatch):
    def silence(score):
        seconds = float(score.seconds_at(score.end_ticks))
        return sound.Audio(np.zeros((int(8000 * seconds), 2), np.float32), 8000, "builtin")

    monkeypatch.setattr(sound, "render", silence)
    return fakes.install(monkeypatch, speed=5000.0)


@pytest.fixture
def page(model, tmp_path):
    """The page, built while a loop runs: Gradio leaves open one that it had to make."""

    async def build():
        return build_page(model, tmp_path)

    return asyncio.run(build())


@pytest.fixture
def studio(model, tmp_path):
    return Studio(model, tmp_path / "out")


@pytest.fixture
def calls(studio):
    return Callbacks(studio, 100_000)


@pytest.fixture
def midi(tmp_path):
    path = tmp_path / "My prompt.mid"
    path.write_bytes(fakes.example_midi(bars=4))
    return path


def parse(text):
    return [tuple(map(int, row.split(","))) for row in text.split(";") if row]


# laws


@given(
    rows=st.lists(
        st.tuples(
            st.integers(0, 5000), st.integers(1, 800), st.integers(0, 127), st.integers(1, 127)
        ),
        max_size=30,
    ),
    count=st.integers(0, 30),
)
def test_packed_notes_grow_at_the_end_and_are_the_notes(rows, count):
    rows = sorted(rows, key=lambda row: (row[0], row[2], row[1], row[3]))
    whole, part = pack_notes(Track.of(rows), 12), pack_notes(Track.of(rows[:count]), 12)
    assert whole.startswith(part)
    factor = UNITS_PER_BEAT // 12
    assert parse(whole) == [(on * factor, n * factor, *rest) for on, n, *rest in rows]


@given(
    changes=st.lists(st.tuples(st.integers(0, 400), st.integers(1, 7)), max_size=4),
    end=st.integers(1, 600),
)
def test_bar_lines_rise_and_reach_the_end(changes, end):
    signatures = tuple(TimeSignature(tick, top, 4) for tick, top in sorted(dict(changes).items()))
    lines = list(bar_lines(signatures, 12, end))
    assert lines[0] == 0
    assert all(np.diff(lines) > 0)
    assert lines[-1] >= end > lines[-2]
    assert {s.tick for s in signatures if s.tick < end} <= set(lines)


@given(bpms=st.lists(st.integers(20, 300), min_size=1, max_size=5))
def test_the_timeline_keeps_the_time(bpms):
    score = Score(12, tempos=tuple(Tempo(96 * i, float(bpm)) for i, bpm in enumerate(bpms)))
    score = Score(12, tempos=score.tempos, end_ticks=96 * len(bpms))
    points = parse(timeline(score)["tempos"])
    for unit, millis in points:
        seconds = float(score.seconds_at(unit * 12 // UNITS_PER_BEAT))
        assert millis / 1000 == pytest.approx(seconds, abs=0.001)
    assert points[-1][0] == 8 * len(bpms) * UNITS_PER_BEAT


def test_a_hostile_length_does_not_fill_the_page():
    score = Score(12, time_signatures=(TimeSignature(0, 1, 32),), end_ticks=10**9)
    assert len(parse(timeline(score)["bars"])) < 30_000


# the page


def test_the_page_builds_and_offers_three_calls_to_scripts(page):
    named = {
        fn.api_name: fn for fn in page.fns.values() if fn.api_visibility == "public" and fn.api_name
    }
    assert set(named) == {"continue", "generate", "stop"}
    assert page.analytics_enabled is False


def test_all_that_needs_the_model_waits_in_one_queue(page):
    waiting_for_model = [
        fn for fn in page.fns.values() if fn.concurrency_id == endpoints.MODEL_QUEUE
    ]
    assert len(waiting_for_model) == 4  # two buttons, two endpoints
    assert {fn.concurrency_limit for fn in waiting_for_model} == {1}


def test_the_players_files_suit_gradios_template():
    assert all(path.is_file() for path in STYLES)
    assert not any(sign in TEMPLATE for sign in ("${", "{{", "`", "<script"))
    used = {name.split('"')[0] for name in SCRIPT.split('part("')[1:]}
    assert all(f'data-part="{name}"' in TEMPLATE for name in used)
    assert "http" not in SCRIPT + TEMPLATE


def test_creativity_names_its_settings():
    assert all(mood_of(*pair) == name for name, pair in CREATIVITY.items())
    assert mood_of(0.73, 0.5) is None
    seed, fresh = roll_dice()
    assert 0 <= seed <= LARGEST_SEED
    assert fresh is False


# upload


def test_an_upload_shows_its_facts_and_allows_to_continue(calls, midi):
    upload, card, slider, go, frame = calls.read(str(midi))
    for fact in ("96 bpm", "4/4", f"<dd>{upload.whole.facts.notes}</dd>", "<dt>Bars</dt>"):
        assert fact in card
    assert upload.whole.facts.notices[0] in card
    assert (slider.maximum, slider.value) == (upload.bars, upload.bars) == (4, 4)
    assert go.interactive
    assert frame["phase"] == "prompt"
    assert frame["title"] == "My prompt"
    assert frame["prompt"]["joint"] == 16


@pytest.mark.parametrize("content", [b"", b"MThd", b"<b>no</b>", fakes.example_midi()[:100]])
def test_a_refused_upload_gives_its_reason_and_nothing_else(calls, tmp_path, content):
    path = tmp_path / "<b>odd.mid"
    path.write_bytes(content)
    upload, card, slider, go, frame = calls.read(str(path))
    assert upload is None
    assert "role='alert'" in card
    assert "&lt;b&gt;odd.mid" in card
    assert "<b>" not in card
    assert not slider.visible
    assert not go.interactive
    assert frame["phase"] == "empty"


def test_a_file_over_the_limit_is_refused_before_it_is_read(tmp_path):
    path = tmp_path / "big.mid"
    path.write_bytes(bytes(2000))
    with pytest.raises(MidiError, match=r"big.mid: .* at most 0.0 MB"):
        read_upload(path, 1000)


def test_the_joint_moves_with_the_last_bar(calls, midi):
    upload, *_ = calls.read(str(midi))
    moved, frame = calls.move_joint(upload, 2)
    assert moved.bars == 2
    assert frame["prompt"]["joint"] == 8
    assert calls.move_joint(moved, 4)[0].prompt is upload.whole


def test_facts_are_escaped():
    facts = continuation.PromptFacts(1, 1, 1, 120.0, "<4>", 61.0, ("<x>",))
    card = facts_table(facts)
    assert "&lt;4&gt;" in card
    assert "&lt;x&gt;" in card
    assert "1:01" in card


# jobs


def compose(calls, upload, *, bars=3, variations=1, seed=7):
    return list(calls.compose(upload, bars, variations, 1.0, 0.95, seed, REQUEST))


def test_a_continuation_grows_then_has_files_then_sound(calls, midi, tmp_path):
    upload, *_ = calls.read(str(midi))
    frames = compose(calls, upload, variations=2)
    phases = [frame["phase"] for frame in frames]
    assert phases[0] == "composing"
    assert phases[-3:] == ["rendering", "rendering", "done"]
    assert len({frame["job"] for frame in frames}) == 1
    last = frames[-1]
    assert len(last["variations"]) == 2
    for index, variation in enumerate(last["variations"]):
        stem = f"My-prompt_fake_s{7 + index}_T1.00_p0.95_v{index + 1}"
        assert Path(variation["midi"]).name == f"{stem}.mid"
        assert Path(variation["new_midi"]).name == f"{stem}_new_part.mid"
        assert Path(variation["audio"]).name == f"{stem}.flac"
        assert f"seed {7 + index} " in variation["settings"]
        assert Path(variation["midi"]).is_relative_to(tmp_path / "out")
        assert mido.MidiFile(variation["midi"]).length > mido.MidiFile(variation["new_midi"]).length
        assert soundfile.info(variation["audio"]).duration > 10
    assert not list((tmp_path / "out").rglob("*.part"))


def test_a_piece_from_nothing_has_no_new_part(calls):
    last = compose(calls, None)[-1]
    assert "prompt" not in last
    assert "new_midi" not in last["variations"][0]
    assert last["title"] == "A new piece"


def test_the_same_seed_gives_the_same_file(calls, midi):
    upload, *_ = calls.read(str(midi))
    first, second = (Path(compose(calls, upload)[-1]["variations"][0]["midi"]) for _ in range(2))
    assert first != second
    assert first.read_bytes() == second.read_bytes()


def test_stop_keeps_what_is_there(calls, studio, midi):
    upload, *_ = calls.read(str(midi))
    seed, frame, *_ = calls.begin(upload, 5, False, REQUEST)
    assert (seed, frame["phase"]) == (5, "waiting")
    frames = calls.compose(upload, 400, 1, 1.0, 0.95, seed, REQUEST)
    while not next(frames)["variations"][0]["tracks"]:
        pass
    calls.stop_job(REQUEST)
    last = list(frames)[-1]
    assert last["phase"] == "done"
    assert 0 < len(parse(last["variations"][0]["tracks"][0]["notes"])) < 2000
    assert not studio.stop("someone")  # nothing left to stop


def test_a_job_stopped_while_it_waits_writes_nothing(calls, midi, tmp_path):
    upload, *_ = calls.read(str(midi))
    calls.begin(upload, 5, False, REQUEST)
    calls.stop_job(REQUEST)
    last = compose(calls, upload)[-1]
    assert "nothing to keep" in last["alert"]
    assert not (tmp_path / "out").exists()


def test_closing_the_tab_ends_the_work(calls, studio, model, monkeypatch):
    ended = []

    def endless(*_):
        try:
            while True:
                score = Score(12, (Track.of([(0, 12, 60, 80)]),))
                yield continuation.Progress(0, 16, 1, 1, 1.0, (score,))
        finally:
            ended.append(True)

    monkeypatch.setattr(continuation, "generate_piece", endless)
    frames = studio.compose("someone", None, MusicOptions(seed=1))
    for _ in range(3):
        next(frames)
    frames.close()
    assert ended
    assert not studio.stop("someone")


def test_two_sessions_stop_each_their_own_and_share_no_folder(studio, tmp_path):
    studio.begin("one")
    studio.begin("other")
    assert studio.stop("one")
    piece = list(studio.compose("other", None, MusicOptions(bars=2, seed=1)))[-1]
    assert piece["phase"] == "done"
    list(studio.compose("../../third", None, MusicOptions(bars=2, seed=1)))
    folders = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert len(folders) == 2
    assert all(len(name) == 16 and name.isalnum() for name in folders)


def test_what_goes_wrong_is_said_in_the_player(calls, monkeypatch):
    def broken(*_, **__):
        raise sound.SoundError("there is no sound font")

    monkeypatch.setattr(sound, "render", broken)
    last = compose(calls, None)[-1]
    assert last["phase"] == "done"
    assert last["alert"] == "there is no sound font"
    assert Path(last["variations"][0]["midi"]).exists()


def test_a_bug_is_shown_and_raised(calls, monkeypatch):
    def broken(*_):
        raise ZeroDivisionError
        yield

    monkeypatch.setattr(continuation, "generate_piece", broken)
    frames = calls.compose(None, 2, 1, 1.0, 0.95, 1, REQUEST)
    seen = []
    with pytest.raises(ZeroDivisionError):
        seen.extend(frames)
    assert "log" in seen[-1]["alert"]


def test_a_new_seed_is_drawn_and_told_unless_one_is_kept(calls):
    kept, _, *buttons = calls.begin(None, 42, False, REQUEST)
    assert kept == 42
    assert [button.visible for button in buttons] == [False, True, False, True]
    assert [button.visible for button in calls.end(None)] == [True, False, True, False]
    assert calls.end(None)[0].interactive is False
    seeds = {calls.begin(None, 42, True, REQUEST)[0] for _ in range(3)}
    assert len(seeds | {42}) == 4


def test_wav_is_made_of_the_studios_own_sounds_only(calls, studio, tmp_path, monkeypatch):
    noise = np.random.default_rng(0).uniform(-0.5, 0.5, (9000, 2)).astype(np.float32)
    monkeypatch.setattr(sound, "render", lambda _: sound.Audio(noise, 8000, "builtin"))
    flac = compose(calls, None)[-1]["variations"][0]["audio"]
    wav = studio.wav(flac)
    samples, original = (soundfile.read(path, dtype="int16")[0] for path in (wav, flac))
    np.testing.assert_array_equal(samples, original)
    outside = tmp_path / "secret.flac"
    outside.write_bytes(Path(flac).read_bytes())
    inside = f"{Path(flac).parent}/../../../secret.flac"
    for path in (str(outside), inside, flac.replace(".flac", ".mid"), "/etc/passwd", ""):
        with pytest.raises(ValueError, match="not a sound"):
            studio.wav(path)


def test_the_player_waits_with_the_prompt_in_sight(calls, midi):
    upload, *_ = calls.read(str(midi))
    frame = waiting(upload)
    assert frame.get("phase") == "waiting"
    assert frame.get("prompt", {}).get("tracks")
    assert waiting(None).get("timeline", {}).get("end") == 64


def test_the_written_file_begins_with_the_upload(calls, midi):
    upload, *_ = calls.read(str(midi))
    whole = compose(calls, upload)[-1]["variations"][0]["midi"]
    before = [m for m in mido.MidiFile(midi).tracks[1] if not m.is_meta]
    after = mido.MidiFile(file=io.BytesIO(Path(whole).read_bytes())).tracks[1]
    assert [m for m in after if not m.is_meta][: len(before)] == before


def test_gradio_sees_the_request_of_each_callback(calls):
    for call in (calls.begin, calls.compose, calls.stop_job, calls.leave):
        assert gr.Request in get_type_hints(call).values()
