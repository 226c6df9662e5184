from __future__ import annotations

import struct
import time

import numpy as np
import soundfile

from app.audio.ogg import number_stream, page_checksum
from app.audio.render import Audio, save_audio


def noise(seconds: float) -> np.ndarray:
    samples = np.random.default_rng(0).normal(scale=0.1, size=(int(44100 * seconds), 2))
    return samples.astype(np.float32)


def pages(data: bytes) -> list[bytes]:
    """The pages of an Ogg file, by their own account of their length."""
    found = []
    while data:
        assert data[:4] == b"OggS"
        lengths = data[27 : 27 + data[26]]
        size = 27 + len(lengths) + sum(lengths)
        found.append(data[:size])
        data = data[size:]
    return found


def test_checksums_are_those_of_libogg(tmp_path):
    soundfile.write(tmp_path / "a.ogg", noise(3), 44100, format="OGG", subtype="VORBIS")
    for page in pages((tmp_path / "a.ogg").read_bytes()):
        (stored,) = struct.unpack("<I", page[22:26])
        assert page_checksum(page[:22] + bytes(4) + page[26:]) == stored


def test_a_numbered_file_sounds_as_before(tmp_path):
    path = tmp_path / "a.ogg"
    soundfile.write(path, noise(3), 44100, format="OGG", subtype="VORBIS")
    before, _ = soundfile.read(path)
    number_stream(path)
    assert {page[14:18] for page in pages(path.read_bytes())} == {b"\1\0\0\0"}
    np.testing.assert_array_equal(soundfile.read(path)[0], before)


def test_the_same_sound_is_the_same_file(tmp_path):
    audio = Audio(noise(1), 44100, "builtin")
    save_audio(audio, tmp_path / "a.ogg")
    time.sleep(1.1)  # libsndfile draws numbers by the second
    save_audio(audio, tmp_path / "b.ogg")
    assert (tmp_path / "a.ogg").read_bytes() == (tmp_path / "b.ogg").read_bytes()
