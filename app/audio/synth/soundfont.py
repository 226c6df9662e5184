"""Reads SoundFont 2 files: the samples of each preset, with their synthesis parameters.

Source of names, units and defaults: SoundFont Technical Specification 2.04 (E-mu Systems, 2006),
sections 6 to 9. Not supported: chorus and reverb sends, the low bytes of 24-bit samples, and
modulators. The default modulators for velocity, volume, expression, pan and pitch bend are built
in; the modulation wheel and channel pressure have no effect.
"""

from __future__ import annotations

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property, lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from app.errors import UserError

_log = logging.getLogger(__name__)

_ADVICE = "reinstall pretty_midi, which contains a SoundFont, or choose another SF2 file"


class SoundError(UserError):
    """Audio cannot be rendered or saved; the message is written for the user."""


class Generator(IntEnum):
    """Numbers of the supported synthesis parameters (section 8.1.2)."""

    START = 0
    END = 1
    LOOP_START = 2
    LOOP_END = 3
    START_COARSE = 4
    MOD_LFO_TO_PITCH = 5
    VIBRATO_TO_PITCH = 6
    MOD_ENVELOPE_TO_PITCH = 7
    FILTER_CUTOFF = 8
    FILTER_Q = 9
    MOD_LFO_TO_FILTER = 10
    MOD_ENVELOPE_TO_FILTER = 11
    END_COARSE = 12
    MOD_LFO_TO_VOLUME = 13
    PAN = 17
    MOD_LFO_DELAY = 21
    MOD_LFO_FREQUENCY = 22
    VIBRATO_DELAY = 23
    VIBRATO_FREQUENCY = 24
    MOD_ENVELOPE = 25
    """The first of eight consecutive numbers: delay, attack, hold, decay, sustain, release, key to
    hold, key to decay."""
    VOLUME_ENVELOPE = 33
    """The first of eight consecutive numbers, in the same order."""
    INSTRUMENT = 41
    KEY_RANGE = 43
    VELOCITY_RANGE = 44
    LOOP_START_COARSE = 45
    KEY = 46
    VELOCITY = 47
    ATTENUATION = 48
    LOOP_END_COARSE = 50
    COARSE_TUNE = 51
    FINE_TUNE = 52
    SAMPLE = 53
    SAMPLE_MODES = 54
    SCALE_TUNING = 56
    EXCLUSIVE_CLASS = 57
    ROOT_KEY = 58


_G = Generator
_DEFAULTS: Mapping[int, int] = (
    dict.fromkeys(range(61), 0)
    | dict.fromkeys((21, 23, 25, 26, 27, 28, 30, 33, 34, 35, 36, 38), -12000)
    | {_G.FILTER_CUTOFF: 13500, _G.SCALE_TUNING: 100, _G.KEY: -1, _G.VELOCITY: -1, _G.ROOT_KEY: -1}
)
_INSTRUMENT_ONLY = frozenset(
    {_G.START, _G.END, _G.LOOP_START, _G.LOOP_END, _G.START_COARSE, _G.END_COARSE}
    | {_G.LOOP_START_COARSE, _G.LOOP_END_COARSE, _G.INSTRUMENT, _G.SAMPLE, _G.SAMPLE_MODES}
    | {_G.KEY_RANGE, _G.VELOCITY_RANGE, _G.KEY, _G.VELOCITY, _G.EXCLUSIVE_CLASS, _G.ROOT_KEY}
)
_ATTENUATION_SCALE = 0.4
# The original SoundFont hardware applied only this fraction of the initial attenuation, and players
# still do.
_LOOP, _LOOP_UNTIL_RELEASE = 1, 3
_UNUSABLE_SAMPLE = 0x8000  # stored in the ROM of a sound card
_COMPRESSED_SAMPLE = 0x10  # Ogg Vorbis, as in the unofficial SF3 format
_DRUM_BANK = 128


def _record(**fields: str) -> np.dtype:
    return np.dtype(list(fields.items()))


_BAG = _record(generator="<u2", modulator="<u2")
_VALUE = _record(operator="<u2", amount="<i2")
_RECORDS = {
    b"phdr": _record(name="S20", program="<u2", bank="<u2", bag="<u2", unused="V12"),
    b"pbag": _BAG,
    b"pgen": _VALUE,
    b"inst": _record(name="S20", bag="<u2"),
    b"ibag": _BAG,
    b"igen": _VALUE,
    b"shdr": _record(
        name="S20",
        start="<u4",
        end="<u4",
        loop_start="<u4",
        loop_end="<u4",
        rate="<u4",
        key="u1",
        correction="i1",
        link="<u2",
        type="<u2",
    ),
}


class Sample(NamedTuple):
    """A range of the sample data."""

    start: int
    end: int
    loop_start: int
    loop_end: int
    rate: int
    """Data points per second."""
    root_key: int
    """MIDI key that sounds if the range is played at its own rate."""
    correction_cents: int


@dataclass(frozen=True, eq=False)
class Zone:
    """A sample in a preset, with the keys and velocities that play it; compared by identity."""

    keys: tuple[int, int]
    velocities: tuple[int, int]
    values: Mapping[int, int]
    """Values of all generators, summed over preset and instrument."""
    sample: Sample

    @property
    def pan(self) -> int:
        """-500 (left) to 500 (right)."""
        return self.values[_G.PAN]

    @property
    def exclusive_class(self) -> int:
        """A later voice of the same class on the same channel stops this one; 0: no class."""
        return self.values[_G.EXCLUSIVE_CLASS]

    @property
    def gain(self) -> float:
        """Amplitude factor of the initial attenuation."""
        decibels = max(self.values[_G.ATTENUATION], 0) / 10 * _ATTENUATION_SCALE
        return 10 ** (-decibels / 20)

    @property
    def loops(self) -> bool:
        """Whether the sample repeats its loop while the key is down."""
        has_loop = self.sample.loop_end - self.sample.loop_start > 1
        return has_loop and self.values[_G.SAMPLE_MODES] & 3 in {_LOOP, _LOOP_UNTIL_RELEASE}

    @property
    def leaves_loop(self) -> bool:
        """Whether the sample leaves its loop when the key is released."""
        return self.loops and self.values[_G.SAMPLE_MODES] & 3 == _LOOP_UNTIL_RELEASE

    def played_key(self, key: int) -> int:
        """Return the key to play for a note on `key`; some zones have a fixed key."""
        return self.values[_G.KEY] if self.values[_G.KEY] >= 0 else key

    def played_velocities(self, velocities: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the velocities to play for notes of `velocities`.

        Some zones have a fixed velocity.
        """
        fixed = self.values[_G.VELOCITY]
        return np.full_like(velocities, fixed) if fixed > 0 else velocities

    def transposition(self, key: int) -> float:
        """Return the interval in cents from the pitch of the sample to the pitch of `key`."""
        root = self.values[_G.ROOT_KEY] if self.values[_G.ROOT_KEY] >= 0 else self.sample.root_key
        tune = self.values[_G.COARSE_TUNE] * 100 + self.values[_G.FINE_TUNE]
        keys = self.played_key(key) - root
        return keys * self.values[_G.SCALE_TUNING] + tune + self.sample.correction_cents


class SoundFont:
    """An open SoundFont file; samples are read from disk when they are played."""

    def __init__(self, path: Path) -> None:
        """Open a file. Raises SoundError if it is not a playable SoundFont."""
        self.path = path
        chunks = _read_chunks(path)
        missing = [name.decode() for name in (b"smpl", *_RECORDS) if name not in chunks]
        if missing:
            raise SoundError(
                f"{path}: the SoundFont has no {missing[0]} chunk and may be cut off; {_ADVICE}"
            )
        self.points: NDArray[np.int16] = _records(chunks[b"smpl"], np.dtype("<i2"))
        """All sample data, full scale 32768."""
        self._tables = {name: _records(chunks[name], dtype) for name, dtype in _RECORDS.items()}
        if np.any(self._tables[b"shdr"]["type"] & _COMPRESSED_SAMPLE):
            raise SoundError(
                f"{path}: the SoundFont's samples are compressed (SF3), expected SF2; {_ADVICE}"
            )
        if not self._places:
            raise SoundError(f"{path}: the SoundFont has no preset; {_ADVICE}")
        self._zones: dict[int, tuple[Zone, ...]] = {}

    @cached_property
    def _places(self) -> dict[tuple[int, int], int]:
        """Row of each (bank, program); the last row of the table, an end marker, is left out."""
        rows = self._tables[b"phdr"][:-1]
        return {(int(row["bank"]), int(row["program"])): place for place, row in enumerate(rows)}

    def zones(self, bank: int, program: int) -> tuple[Zone, ...]:
        """Return the zones of a preset, or of a replacement if it does not exist.

        Bank 128 is percussion; its programs are drum kits. A missing melodic program is replaced by
        the same program of bank 0, or else by program 0; a missing kit by the standard kit. If the
        SoundFont has no percussion, there are no zones for it.
        """
        if bank == _DRUM_BANK:
            candidates = [(bank, program), (bank, 0)]
            others = (place for place in self._places if place[0] == _DRUM_BANK)
        else:
            candidates = [(bank, program), (0, program), (0, 0)]
            others = (place for place in self._places if place[0] != _DRUM_BANK)
        preset = next((place for place in candidates if place in self._places), next(others, None))
        if preset != (bank, program):
            _log.info("%s has no bank %d program %d, playing %s", self.path, bank, program, preset)
        if preset is None:
            return ()
        row = self._places[preset]
        if row not in self._zones:
            self._zones[row] = tuple(self._preset_zones(row))
        return self._zones[row]

    def _preset_zones(self, row: int) -> Iterator[Zone]:
        instruments = self._tables[b"inst"]
        for added in self._bags(b"phdr", b"pbag", b"pgen", row, _G.INSTRUMENT):
            if added[_G.INSTRUMENT] >= len(instruments) - 1:
                continue
            for values in self._bags(b"inst", b"ibag", b"igen", added[_G.INSTRUMENT], _G.SAMPLE):
                zone = self._zone(added, values)
                if zone is not None:
                    yield zone

    def _bags(
        self, headers: bytes, bags: bytes, generators: bytes, row: int, target: Generator
    ) -> Iterator[dict[int, int]]:
        """Yield the generators of each zone of a header row, with those of its global zone."""
        first, end = (int(bag) for bag in self._tables[headers]["bag"][row : row + 2])
        places = self._tables[bags]["generator"]
        common: dict[int, int] = {}
        for bag in range(first, min(end, len(places) - 1)):
            table = self._tables[generators][places[bag] : places[bag + 1]]
            values = dict(zip(table["operator"].tolist(), table["amount"].tolist(), strict=True))
            if target in values:
                values[target] &= 0xFFFF
                yield common | values
            elif bag == first:
                common = values

    def _zone(self, added: dict[int, int], generators: dict[int, int]) -> Zone | None:
        headers = self._tables[b"shdr"]
        if generators[_G.SAMPLE] >= len(headers) - 1:
            return None
        header = headers[generators[_G.SAMPLE]]
        values = dict(_DEFAULTS) | generators
        for generator, amount in added.items():
            if generator not in _INSTRUMENT_ONLY and generator in values:
                values[generator] += amount
        keys = _range(_G.KEY_RANGE, generators, added)
        velocities = _range(_G.VELOCITY_RANGE, generators, added)

        def moved(field: str, fine: Generator, coarse: Generator) -> int:
            place = int(header[field]) + values[fine] + 32768 * values[coarse]
            return min(max(place, 0), len(self.points))

        start = moved("start", _G.START, _G.START_COARSE)
        end = moved("end", _G.END, _G.END_COARSE)
        loop = [
            moved("loop_start", _G.LOOP_START, _G.LOOP_START_COARSE),
            moved("loop_end", _G.LOOP_END, _G.LOOP_END_COARSE),
        ]
        playable = end - start > 1 and header["rate"] > 0
        if not playable or header["type"] & _UNUSABLE_SAMPLE or keys is None or velocities is None:
            return None
        sample = Sample(
            start,
            end,
            *np.clip(loop, start, end).tolist(),
            rate=int(header["rate"]),
            root_key=int(header["key"]) if header["key"] <= 127 else 60,
            correction_cents=int(header["correction"]),
        )
        return Zone(keys, velocities, values, sample)


def default_soundfont() -> Path:
    """Return the path of pretty_midi's General MIDI SoundFont. Raises SoundError without it."""
    package = importlib.util.find_spec("pretty_midi")  # importing it takes a second
    for folder in (package.submodule_search_locations or []) if package else []:
        path = Path(folder) / "TimGM6mb.sf2"
        if path.is_file():
            return path
    raise SoundError(
        f"no SoundFont was found: TimGM6mb.sf2 of the package pretty_midi is missing; {_ADVICE}"
    )


def open_soundfont(path: Path) -> SoundFont:
    """Return the SoundFont at a path, cached. Raises SoundError if it cannot be played."""
    try:
        status = path.stat()
    except OSError as error:
        raise SoundError(
            f"{path}: the SoundFont cannot be read ({error.strerror}); {_ADVICE}"
        ) from error
    return _opened(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=2)
def _opened(path: Path, _modified: int, _size: int) -> SoundFont:
    return SoundFont(path)


def _read_chunks(path: Path) -> dict[bytes, NDArray[np.uint8]]:
    """Return the memory-mapped bytes of each leaf chunk."""
    try:
        data = np.memmap(path, dtype=np.uint8, mode="r")
    except (OSError, ValueError) as error:  # ValueError: an empty file cannot be mapped
        raise SoundError(f"{path}: the SoundFont cannot be read ({error}); {_ADVICE}") from error
    if data[:4].tobytes() != b"RIFF" or data[8:12].tobytes() != b"sfbk":
        raise SoundError(f"{path}: this is not a SoundFont, expected an SF2 file; {_ADVICE}")
    chunks: dict[bytes, NDArray[np.uint8]] = {}
    place = 12
    while place + 8 <= len(data):
        name = data[place : place + 4].tobytes()
        size = int(data[place + 4 : place + 8].view("<u4")[0])
        if name == b"LIST":
            place += 12  # its chunks follow
            continue
        chunk = data[place + 8 : place + 8 + size]
        if len(chunk) < size:
            break
        chunks[name] = chunk
        place += 8 + size + size % 2
    return chunks


def _records(chunk: NDArray[np.uint8], dtype: np.dtype) -> NDArray:
    return np.asarray(chunk[: len(chunk) // dtype.itemsize * dtype.itemsize]).view(dtype)


def _range(generator: Generator, *zones: Mapping[int, int]) -> tuple[int, int] | None:
    """Return the lowest and highest key or velocity that all zones share; None if there is none.

    A generator stores them as its low and high byte.
    """
    amounts = [values.get(generator, 127 << 8) & 0xFFFF for values in zones]
    low, high = max(amount & 0xFF for amount in amounts), min(amount >> 8 for amount in amounts)
    return (low, high) if low <= high else None
