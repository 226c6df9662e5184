from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.audio.synth.soundfont import (
    Generator,
    SoundError,
    SoundFont,
    default_soundfont,
    open_soundfont,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Values = dict[Generator, int]
G = Generator


def chunk(name: bytes, data: bytes) -> bytes:
    return name + struct.pack("<I", len(data)) + data + b"\0" * (len(data) % 2)


def span(low: int, high: int) -> int:
    return low | high << 8


def bags(zones: Sequence[Values]) -> tuple[bytes, bytes]:
    """Bag and generator chunks of zones; the target of a zone comes last, as required."""
    starts = np.cumsum([0, *(len(zone) for zone in zones)])
    bag = b"".join(struct.pack("<HH", start, 0) for start in starts)
    pairs = [struct.pack("<Hh", *pair) for zone in zones for pair in zone.items()]
    return bag, b"".join(pairs) + bytes(4)


def soundfont_bytes(
    preset: Sequence[Values],
    instrument: Sequence[Values],
    *,
    places: Sequence[tuple[int, int]] = ((0, 0),),
    sample_type: int = 1,
) -> bytes:
    """A SoundFont whose presets (bank, program) are all equal, with one sample of 1000 points."""
    wave = (np.sin(np.arange(1000) * 2 * np.pi / 100) * 20000).astype("<i2").tobytes()
    headers = [
        struct.pack("<20sHHH12x", b"preset", program, bank, index * len(preset))
        for index, (bank, program) in enumerate(places)
    ]
    headers.append(struct.pack("<20sHHH12x", b"EOP", 0, 0, len(places) * len(preset)))
    preset_bags, preset_values = bags(list(preset) * len(places))
    instrument_bags, instrument_values = bags(instrument)
    sample = struct.pack("<20sIIIIIBbHH", b"s", 0, 1000, 100, 900, 22050, 60, 7, 0, sample_type)
    parts = [
        chunk(b"phdr", b"".join(headers)),
        chunk(b"pbag", preset_bags),
        chunk(b"pmod", bytes(10)),
        chunk(b"pgen", preset_values),
        chunk(b"inst", struct.pack("<20sH20sH", b"i", 0, b"EOI", len(instrument))),
        chunk(b"ibag", instrument_bags),
        chunk(b"imod", bytes(10)),
        chunk(b"igen", instrument_values),
        chunk(b"shdr", sample + bytes(46)),
    ]
    body = b"sfbk" + chunk(b"LIST", b"INFO" + chunk(b"ifil", struct.pack("<HH", 2, 1)))
    body += chunk(b"LIST", b"sdta" + chunk(b"smpl", wave))
    body += chunk(b"LIST", b"pdta" + b"".join(parts))
    return chunk(b"RIFF", body)


PLAIN: Sequence[Values] = ({G.INSTRUMENT: 0},)
SAMPLE: Values = {G.SAMPLE: 0}


def written(folder: Path, data: bytes) -> SoundFont:
    path = folder / "font.sf2"
    path.write_bytes(data)
    return SoundFont(path)


@given(
    common=st.integers(-100, 100),
    own=st.none() | st.integers(-100, 100),
    added=st.integers(-50, 50),
)
def test_preset_values_are_added_to_those_of_the_zone_or_else_its_global_zone(
    tmp_path_factory, common, own, added
):
    zone = SAMPLE if own is None else {G.FINE_TUNE: own} | SAMPLE
    data = soundfont_bytes(({G.FINE_TUNE: added, G.INSTRUMENT: 0},), ({G.FINE_TUNE: common}, zone))
    (found,) = written(tmp_path_factory.mktemp("font"), data).zones(0, 0)
    assert found.values[G.FINE_TUNE] == added + (common if own is None else own)


def test_preset_zones_have_a_global_zone_too(tmp_path):
    preset = ({G.ATTENUATION: 50, G.PAN: 10}, {G.PAN: 20, G.INSTRUMENT: 0}, {G.INSTRUMENT: 0})
    zones = written(tmp_path, soundfont_bytes(preset, (SAMPLE,))).zones(0, 0)
    assert [zone.pan for zone in zones] == [20, 10]
    # 50 centibels, scaled by 0.4
    assert zones[0].gain == pytest.approx(10 ** (-2 / 20))
    # ranges of preset and instrument are intersected
    preset = ({G.KEY_RANGE: span(40, 80), G.INSTRUMENT: 0},)
    instrument = (
        {G.KEY_RANGE: span(0, 60), G.VELOCITY_RANGE: span(1, 64)} | SAMPLE,
        {G.KEY_RANGE: span(90, 127)} | SAMPLE,
    )
    (zone,) = written(tmp_path, soundfont_bytes(preset, instrument)).zones(0, 0)
    assert (zone.keys, zone.velocities) == ((40, 60), (1, 64))
    # zones with invalid references are left out
    preset = ({G.INSTRUMENT: 7}, {G.INSTRUMENT: 0})
    font = written(tmp_path, soundfont_bytes(preset, ({G.SAMPLE: 3}, SAMPLE)))
    assert len(font.zones(0, 0)) == 1


def test_transposition_counts_root_key_tuning_scale_and_correction(tmp_path):
    zone = {G.ROOT_KEY: 50, G.COARSE_TUNE: 1, G.FINE_TUNE: -20, G.SCALE_TUNING: 50} | SAMPLE
    font = written(tmp_path, soundfont_bytes(PLAIN, (zone, SAMPLE)))
    tuned, plain = font.zones(0, 0)
    assert tuned.transposition(60) == 10 * 50 + 100 - 20 + 7
    assert plain.transposition(61) == 100 + 7
    # offsets move the sample
    zone = {G.START: 10, G.END: -20, G.LOOP_START: 5, G.LOOP_END: -5, G.SAMPLE_MODES: 1} | SAMPLE
    (found,) = written(tmp_path, soundfont_bytes(PLAIN, (zone,))).zones(0, 0)
    assert found.sample[:4] == (10, 980, 105, 895)
    assert found.loops
    assert not found.leaves_loop


@given(start=st.integers(-500, 3000), end=st.integers(-1500, 500))
def test_a_loop_stays_within_its_sample(tmp_path_factory, start, end):
    zone = {G.LOOP_START: start, G.LOOP_END: end, G.SAMPLE_MODES: 1} | SAMPLE
    data = soundfont_bytes(PLAIN, (zone,))
    (found,) = written(tmp_path_factory.mktemp("font"), data).zones(0, 0)
    assert 0 <= found.sample.loop_start <= 1000
    assert 0 <= found.sample.loop_end <= 1000
    assert found.loops == (found.sample.loop_end - found.sample.loop_start > 1)


def test_a_missing_preset_is_replaced_by_the_nearest(tmp_path):
    for places, wanted, played in (
        ([(0, 0), (0, 5), (8, 5)], (8, 5), (8, 5)),
        ([(0, 0), (0, 5)], (8, 5), (0, 5)),
        ([(0, 0), (0, 5)], (0, 6), (0, 0)),
        ([(128, 0), (3, 7)], (0, 6), (3, 7)),
        ([(0, 0), (128, 0), (128, 16)], (128, 16), (128, 16)),
        ([(0, 0), (128, 0)], (128, 16), (128, 0)),
        ([(0, 0), (128, 9)], (128, 0), (128, 9)),
    ):
        font = written(tmp_path, soundfont_bytes(PLAIN, (SAMPLE,), places=places))
        assert font.zones(*wanted) is font.zones(*played)
        assert font.zones(*wanted)
    without_percussion = written(tmp_path, soundfont_bytes(PLAIN, (SAMPLE,)))
    assert without_percussion.zones(128, 0) == ()


def test_an_unplayable_file_is_refused_in_one_sentence(tmp_path):
    whole, path = soundfont_bytes(PLAIN, (SAMPLE,)), tmp_path / "font.sf2"
    with pytest.raises(SoundError, match="cannot be read"):
        open_soundfont(path)
    for data, said in (
        (b"", "cannot be read"),
        (b"MThd" + bytes(20), "not a SoundFont"),
        (whole[:1500], "cut off"),
        (whole[:-60], "cut off"),
        (soundfont_bytes(PLAIN, (SAMPLE,), places=()), "no preset"),
        (soundfont_bytes(PLAIN, (SAMPLE,), sample_type=0x11), "SF3"),
    ):
        path.write_bytes(data)
        with pytest.raises(SoundError, match=said) as caught:
            open_soundfont(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


@given(cut=st.integers(0, 4000), place=st.integers(0, 4000), value=st.integers(0, 255))
def test_a_damaged_file_raises_only_sound_errors(tmp_path_factory, cut, place, value):
    data = bytearray(soundfont_bytes(PLAIN, ({G.SAMPLE_MODES: 1} | SAMPLE,)))
    data[place % len(data)] = value
    try:
        font = written(tmp_path_factory.mktemp("font"), bytes(data[: len(data) - cut % 400]))
        font.zones(0, 0)
    except SoundError:
        pass


def test_the_soundfont_of_pretty_midi_is_general_midi():
    font = open_soundfont(default_soundfont())
    assert all(font.zones(0, program) is not font.zones(0, 0) for program in range(1, 128))
    assert {zone.exclusive_class for zone in font.zones(128, 0)} > {0, 1}
    assert open_soundfont(default_soundfont()) is font
