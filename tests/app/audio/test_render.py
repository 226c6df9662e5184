from __future__ import annotations

import shutil
import time
from dataclasses import replace

import numpy as np
import pyloudnorm
import pytest
import soundfile
from hypothesis import given, settings
from hypothesis import strategies as st

from app.audio import render as sound
from app.audio.loudness import true_peak
from app.audio.render import Audio, SoundError, render, render_clip, save_audio
from app.audio.synth import mixer as mixing
from app.audio.synth.cache import ToneCache
from app.audio.synth.soundfont import default_soundfont
from tokenization.score import Score, Tempo, Track

RATE = 44100
PEDAL = 64


def score(*tracks: Track, end_ticks: int = 0) -> Score:
    """A score whose ticks are milliseconds."""
    return Score(500, tracks, (Tempo(0, 120.0),), end_ticks=end_ticks)


def piano(*notes: tuple[int, int, int, int], program: int = 0, **rest) -> Track:
    return Track(np.array(notes, dtype=np.int64).reshape(-1, 4), program=program, **rest)


def played(music: Score) -> Audio:
    return render(music, renderer="builtin")


def level(audio: Audio, start: float, end: float) -> float:
    """Root mean square between two times in seconds."""
    part = audio.samples[int(start * RATE) : int(end * RATE)]
    return float(np.sqrt(np.mean(np.square(part))))


def peak_hertz(audio: Audio, start: float, end: float, near: float) -> float:
    """Frequency of the strongest partial within a perfect fourth of `near`."""
    part = audio.samples[int(start * RATE) : int(end * RATE)].mean(axis=1)
    spectrum = np.abs(np.fft.rfft(part * np.hanning(len(part)), 1 << 17))
    frequencies = np.fft.rfftfreq(1 << 17, 1 / RATE)
    inside = (frequencies > near * 0.75) & (frequencies < near / 0.75)
    return float(frequencies[inside][np.argmax(spectrum[inside])])


def texture(seed: int, seconds: int, program: int = 0) -> Score:
    """Chords and runs across the whole keyboard."""
    generator = np.random.default_rng(seed)
    count = seconds * 8
    onsets = np.sort(generator.integers(0, seconds * 1000 - 200, count))
    durations = generator.integers(100, 1500, count)
    columns = [onsets, durations, *(generator.integers(30, top, count) for top in (96, 120))]
    return score(piano(*np.stack(columns, axis=1).tolist(), program=program))


def test_instruments_and_a_chromatic_scale_are_in_tune():
    # The SoundFont's own flute is 13 cents sharp at this key; FluidSynth gives the same result.
    for program, hertz in ((32, 440), (40, 440), (73, 443.3)):
        audio = played(score(piano((0, 2000, 69, 90), program=program)))
        assert peak_hertz(audio, 0.1, 1.9, 440) == pytest.approx(hertz, abs=2)
    notes = [(index * 600, 500, 48 + index, 90) for index in range(37)]
    audio = played(score(piano(*notes)))
    for onset, _, key, _ in notes:
        hertz = 440 * 2 ** ((key - 69) / 12)
        found = peak_hertz(audio, onset / 1000 + 0.05, onset / 1000 + 0.5, hertz)
        assert abs(1200 * np.log2(found / hertz)) < 15


def test_drums_sound_ignore_their_program_and_a_closed_hi_hat_silences_the_open_one():
    for key in (36, 38, 42, 46, 49, 51):
        drum = Track.of([(0, 100, key, 90)], is_drum=True)
        audio = played(score(drum, end_ticks=500))
        assert level(audio, 0, 0.3) > 0.01
    odd = played(score(replace(drum, program=99), end_ticks=500))
    np.testing.assert_array_equal(odd.samples, audio.samples)
    both = Track.of([(0, 100, 46, 100), (200, 100, 42, 1)], is_drum=True)
    alone = Track.of([(0, 100, 46, 100)], is_drum=True)
    cut, ringing = (played(score(track, end_ticks=1000)) for track in (both, alone))
    ratio = [level(a, 0.5, 0.8) / level(a, 0, 0.2) for a in (cut, ringing)]
    assert ratio[0] < ratio[1] / 3


def test_bend_pan_and_volume_of_a_channel():
    bend = np.array([[1000, 8191], [2000, -8192]])
    audio = played(score(piano((0, 3000, 69, 90), program=56, bends=bend)))
    for start, semitones in ((0.1, 0), (1.1, 2), (2.1, -2)):
        hertz = 440 * 2 ** (semitones / 12)
        assert peak_hertz(audio, start, start + 0.8, hertz) == pytest.approx(hertz, rel=0.003)
    left = piano((0, 2000, 72, 90), program=16, controls=np.array([[0, 10, 0], [1000, 7, 50]]))
    audio = played(score(left))
    assert np.abs(audio.samples[:, 1]).max() < 1e-6
    assert level(audio, 1.2, 1.9) / level(audio, 0.2, 0.9) == pytest.approx(0.25, rel=0.1)


@settings(max_examples=5)
@given(seed=st.integers(0, 99), program=st.integers(0, 127), delay=st.integers(1, 20))
def test_music_is_equally_loud_does_not_clip_and_sounds_the_same_later(seed, program, delay):
    music = texture(seed, 3, program)
    notes = music.tracks[0].notes + np.array([delay * 10, 0, 0, 0])
    early, late = played(music), played(score(replace(music.tracks[0], notes=notes)))
    assert early.samples.dtype == np.float32
    assert early.samples.shape[1] == 2
    assert np.isfinite(early.samples).all()
    peak = true_peak(early.samples.T)
    assert peak <= 10 ** (-1 / 20) * 1.0001
    if peak < 0.85:
        loudness = pyloudnorm.Meter(RATE).integrated_loudness(early.samples)
        assert loudness == pytest.approx(-23, abs=0.5)
    # ten milliseconds are 441 samples; loudness is measured in blocks, so it differs a little
    shifted = late.samples[441 * delay :][: len(early.samples)]
    gain = np.abs(early.samples).max() / np.abs(shifted).max()
    assert gain == pytest.approx(1, abs=0.1)
    np.testing.assert_allclose(shifted * gain, early.samples[: len(shifted)], atol=2e-3)


def test_samples_do_not_depend_on_cache_and_order_and_progress_rises_to_one(monkeypatch):
    tracks = [piano((0, 500, 60, 90), program=48), piano((200, 500, 70, 80), program=0)]
    one, other = played(score(*tracks)), played(score(*tracks[::-1]))
    np.testing.assert_allclose(one.samples, other.samples, atol=1e-6)
    music, steps = texture(1, 5), []
    first = render(music, renderer="builtin", progress=steps.append).samples
    assert steps == sorted(steps)
    assert steps[-1] == 1
    assert len(steps) > 3
    np.testing.assert_array_equal(played(music).samples, first)
    monkeypatch.setattr(mixing, "_cache", ToneCache(max_bytes=0))
    np.testing.assert_array_equal(played(music).samples, first)


@given(
    notes=st.lists(
        st.tuples(st.just(0), st.integers(1, 4000), st.just(60), st.just(90)), max_size=1
    ),
    end=st.integers(0, 4000),
    program=st.integers(0, 127),
)
@settings(max_examples=15)
def test_sound_lasts_to_the_end_of_the_score_and_two_seconds_more_at_most(notes, end, program):
    music = score(piano(*notes, program=program), end_ticks=end)
    audio = played(music)
    assert music.end_ticks / 1000 < audio.seconds <= music.end_ticks / 1000 + 2
    assert np.isfinite(audio.samples).all()
    assert np.abs(audio.samples[-20:]).max() < 0.01
    with pytest.raises(SoundError, match="lasts 1667 minutes"):
        render(score(piano((100_000_000, 1000, 60, 90))))


def test_the_given_soundfont_is_played(tmp_path):
    copy = tmp_path / "copy.sf2"
    shutil.copyfile(default_soundfont(), copy)
    music = score(piano((0, 500, 60, 90)))
    audio = render(music, soundfont=copy, renderer="builtin")
    np.testing.assert_array_equal(audio.samples, played(music).samples)
    with pytest.raises(SoundError, match="cannot be read"):
        render(music, soundfont=tmp_path / "none.sf2")
    # another sample rate gives the same length and pitch
    music = score(piano((0, 1000, 69, 90)))
    audio = render(music, sample_rate=22050, renderer="builtin")
    assert audio.sample_rate == 22050
    assert audio.seconds == pytest.approx(played(music).seconds, abs=0.01)
    doubled = Audio(np.repeat(audio.samples, 2, axis=0), RATE, "builtin")
    assert peak_hertz(doubled, 0.1, 0.9, 440) == pytest.approx(440, abs=2)


def test_files_are_read_back_and_the_same_audio_gives_the_same_file(tmp_path):
    audio = played(texture(2, 5))
    for suffix in (".WAV", ".flac", ".ogg"):
        path = tmp_path / f"sound{suffix}"
        save_audio(audio, path)
        samples, rate = soundfile.read(path, dtype="float32")
        assert rate == RATE
        assert samples.shape == audio.samples.shape
        if suffix == ".ogg":
            assert np.corrcoef(samples[:, 0], audio.samples[:, 0])[0, 1] > 0.97
        else:
            np.testing.assert_allclose(samples, audio.samples, atol=1 / 32768)
        assert list(tmp_path.iterdir()) == [path]
        before = path.read_bytes()
        if suffix == ".ogg":
            time.sleep(1.1)  # libsndfile derives the serial number from the time in seconds
        save_audio(audio, path)
        assert path.read_bytes() == before
        path.unlink()


def test_a_file_that_cannot_be_written_is_refused(tmp_path):
    audio = Audio(np.zeros((10, 2), dtype=np.float32), RATE, "builtin")
    for name in ("sound.mp3", "sound"):
        with pytest.raises(SoundError, match=r"expected one of \.flac, \.wav, \.ogg"):
            save_audio(audio, tmp_path / name)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SoundError, match="cannot be written") as caught:
        save_audio(audio, tmp_path / "none" / "sound.wav")
    assert "\n" not in str(caught.value)


def test_fluidsynth_is_used_if_it_is_installed_or_requested(monkeypatch, tmp_path):
    music = score(piano((0, 500, 60, 90)))
    monkeypatch.setenv("PATH", str(tmp_path))
    assert render(music).renderer == "builtin"
    with pytest.raises(SoundError, match="fluidsynth was not found"):
        render(music, renderer="fluidsynth")
    command = tmp_path / "fluidsynth"
    command.write_text("#!/bin/sh\nexit 3\n")
    command.chmod(0o755)
    with pytest.raises(SoundError, match="could not play"):
        render(music, renderer="fluidsynth")
    assert render(music).renderer == "builtin"
    # one that writes noise
    written = np.random.default_rng(0).normal(0, 0.1, (3 * RATE, 2)).astype(np.float32)
    soundfile.write(tmp_path / "noise.wav", written, RATE, subtype="FLOAT")
    command.write_text(
        '#!/bin/sh\nwhile [ "$1" != -F ]; do shift; done\n/bin/cp "${0%/*}/noise.wav" "$2"\n'
    )
    mixed = sound._fluidsynth(score(), default_soundfont(), RATE, 2)
    np.testing.assert_array_equal(mixed[:, : len(written)].T, written)
    assert render(music).renderer == "fluidsynth"
    (track,) = music.tracks
    bent = music.with_tracks([replace(track, note_bends=[(0, 60, 50)])])
    assert render(bent).renderer == "builtin"
    with pytest.raises(SoundError, match="bends single notes"):
        render(bent, renderer="fluidsynth")


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("fluidsynth") is None, reason="compares with FluidSynth: not here")
def test_levels_follow_those_of_fluidsynth():
    # FluidSynth starts and ends tones only at multiples of 64 samples: here, a tick
    tempo = Tempo(0, 60 * RATE / 64 / 500)
    for program in (0, 1, 4, 19, 24, 33, 56, 61, 73):
        music = replace(texture(program, 30, program), tempos=(tempo,))
        ours, theirs = played(music), render(music, renderer="fluidsynth")
        assert theirs.renderer == "fluidsynth"
        count = min(len(ours.samples), len(theirs.samples)) // 2205
        levels = [
            np.sqrt(np.square(audio.samples[: count * 2205]).reshape(count, -1).mean(axis=1))
            for audio in (ours, theirs)
        ]
        assert np.corrcoef(*levels)[0, 1] > 0.97


def test_a_clip_continues_the_notes_that_sound_where_it_begins():
    score = Score(
        480,
        (Track.of([(0, 5 * 480, 50, 90), (2 * 480, 480, 62, 90), (4 * 480, 480, 64, 90)]),),
        (Tempo(0, 60.0),),
        end_ticks=6 * 480,
    )
    clip = render_clip(score, 2.0, 6.0, lufs=-30.0)
    assert clip.samples.shape == (8 * 44_100 - 2 * 44_100, 2)
    assert clip.loudness == pytest.approx(-30)
    meter = pyloudnorm.Meter(44_100)
    assert meter.integrated_loudness(clip.samples) == pytest.approx(-30, abs=0.2)
    assert abs(clip.samples[[0, -1]]).max() == 0
    whole = render(score, renderer="builtin").samples[2 * 44_100 :][1000 : 2 * 44_100]
    part = clip.samples[1000 : 2 * 44_100]
    ratio = np.sqrt(np.square(part).sum() / np.square(whole).sum())
    np.testing.assert_allclose(part, whole * ratio, atol=1e-4)
    # clips of one length have one number of samples
    scores = [Score(480, (Track.of([(0, d, 60, 90)]),), end_ticks=960) for d in (10, 960)]
    assert len({render_clip(score, 0.0, 1.0).samples.shape for score in scores}) == 1
    silent = render_clip(Score(480, end_ticks=960), 0.0, 1.0)
    assert silent.loudness == -np.inf
    assert not silent.samples.any()
