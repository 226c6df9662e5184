"""Stems: they add up to the whole mix, and tracks can be left out of a mix."""

from __future__ import annotations

import io
import os
import time
import wave
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import soundfile

from app.audio import render as sound
from app.audio import stems
from app.audio.synth.soundfont import SoundError
from tokenization.score import Score, Tempo, Track

RATE = 8000
PEDAL = np.array([[0, 64, 127], [900, 64, 0]])


def band(tracks: int = 4) -> Score:
    """Two tracks on one channel, one of which ends notes of the other, a bass and drums; in ms."""
    piano = Track(
        np.array([(0, 500, 60, 90), (300, 400, 64, 80)]), channel=0, chunk=1, controls=PEDAL
    )
    second = replace(piano, notes=np.array([(250, 400, 60, 70), (700, 200, 67, 60)]), chunk=2)
    bass = Track(np.array([(0, 900, 36, 100)]), program=33, channel=1, chunk=3, name="My bass")
    drums = Track.of([(0, 10, 46, 90), (400, 10, 42, 90), (800, 10, 36, 120)], is_drum=True)
    every = (piano, second, bass, replace(drums, channel=9, chunk=4))
    return Score(500, every[:tracks], (Tempo(0, 120.0),), end_ticks=1000)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stems")
    return stems.render(band(), folder, "song", ids=[7, 3, 1, 0], sample_rate=RATE)


def read(path: Path) -> np.ndarray:
    samples, rate = soundfile.read(path, dtype="int16")
    assert rate == RATE
    return samples.astype(np.int64)


def test_the_sum_of_the_tracks_is_the_whole_up_to_rounding(made, tmp_path):
    total = sum(track.astype(np.int64) for track in made.tracks.values())
    assert np.abs(total - made.whole).max() <= len(made.tracks) / 2 + 0.5
    assert all(np.abs(track).max() > 100 for track in made.tracks.values())
    # the second piano strikes the first one's C again, which ends it, as in the whole mix
    first = made.tracks[7].astype(float)
    alone = stems.render(band(1), made.files.folder, "alone", sample_rate=RATE).whole
    late = slice(int(0.3 * RATE), int(0.9 * RATE))
    assert np.square(first[late]).sum() < np.square(alone[late].astype(float)).sum()
    assert list(made.names.values()) == ["Piano 1", "Piano 2", "My bass", "Drums"]
    # the whole equals the rendered score
    audio = sound.render(band(), sample_rate=RATE, renderer="builtin")
    sound.save_audio(audio, tmp_path / "song.wav")
    assert np.abs(read(made.mix()) - read(tmp_path / "song.wav")).max() <= 1
    assert made.seconds == pytest.approx(audio.seconds)


def test_a_mix_without_tracks_is_the_sum_of_the_others(made):
    for without in (set(), {7}, {3, 1, 99}, {7, 3, 1, 0}):
        total = np.zeros(made.whole.shape, np.int64)
        for number, track in made.tracks.items():
            total += track * (number not in without)
        mix = read(made.mix(without))
        assert np.abs(mix - total).max() <= len(made.tracks) / 2 + 0.5
        assert made.mix(without) == made.mix(list(without))


def test_an_archive_has_each_track_as_a_wav_file_and_is_reproducible(made, tmp_path):
    path = made.zip()
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        assert names == [
            "song_stems/01_Piano-1.wav",
            "song_stems/02_Piano-2.wav",
            "song_stems/03_My-bass.wav",
            "song_stems/04_Drums.wav",
        ]
        for name, track in zip(names, made.tracks.values(), strict=True):
            with wave.open(io.BytesIO(archive.read(name))) as sound:
                assert sound.getparams()[:4] == (2, 2, RATE, len(made.whole))
                frames = np.frombuffer(sound.readframes(len(track)), "<i2").reshape(-1, 2)
            np.testing.assert_array_equal(frames, track)
    again = stems.render(band(), tmp_path, "song", ids=[7, 3, 1, 0], sample_rate=RATE).zip()
    assert again.read_bytes() == path.read_bytes()


def test_a_single_track_is_the_whole_and_long_pieces_have_no_stems(tmp_path, monkeypatch):
    seen: list[float] = []
    made = stems.render(band(1), tmp_path, "solo", sample_rate=RATE, progress=seen.append)
    assert made.tracks[0] is made.whole
    assert not read(made.mix({0})).any()
    assert seen == sorted(seen)
    assert seen[-1] == 1
    monkeypatch.setattr(stems, "MOST_SECONDS", 3.0)
    made = stems.render(band(), tmp_path, "long", sample_rate=RATE)
    assert len(read(made.mix())) == len(made.whole)
    for ask in (lambda: made.mix({1}), made.zip):
        with pytest.raises(SoundError, match="in total to render tracks separately"):
            ask()
    assert not list(tmp_path.glob("*.zip"))
    with pytest.raises(SoundError, match="the audio cannot be written"):
        stems.render(band(), tmp_path / "gone", "song", sample_rate=RATE)


def test_old_mixes_are_removed(made, monkeypatch):
    monkeypatch.setattr(stems, "MOST_MIXES", 2)
    for without in ({7}, {3}, {1}, {0}):
        newest = made.mix(without)
        time.sleep(0.01)
    assert newest.exists()
    assert len(list(made.files.folder.glob("*_without-*"))) == 2


def test_a_mix_that_was_just_removed_is_written_again(made, monkeypatch):
    """The file is removed right after the check that it exists; it must not be created again."""
    path = made.mix({7})
    whole = path.stat().st_size

    def then_removed(look):
        def call(path, *rest, **more):
            found = look(path, *rest, **more)
            if "_without" in str(path):
                Path(path).unlink()
            return found

        return call

    with monkeypatch.context() as patch:
        patch.setattr(Path, "exists", then_removed(Path.exists))
        patch.setattr(os, "utime", then_removed(os.utime))
        made.mix({7})
    assert made.mix({7}).stat().st_size == whole


def test_a_missing_folder_is_an_error_in_one_sentence(made, tmp_path):
    lost = replace(made, files=replace(made.files, folder=tmp_path / "gone"))
    for ask in (lambda: lost.mix({1}), lost.zip):
        with pytest.raises(SoundError, match="the audio cannot be written"):
            ask()
