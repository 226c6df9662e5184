"""Speed and memory of the tokenizers compared with MidiTok's REMI and other tokenizers, as CSV.

    python -m benchmarks.tokenization.bench_tokenizer CORPUS [CORPUS ...]
        [--files 60] [--rounds 7] > x.csv

A CORPUS is a folder or a zip of MIDI files, or a part of it: `pop909.zip#original/` selects the
files with `original/` in their paths. The two tokenizers of a row take turns in one process; CPU
time is measured, and the result is the median of the ratios, so that other work on the machine
matters little. MidiTok has the same grid, velocities and tempos. `encode` starts from parsed files,
`decode` from encoded ones; `parse` is parsing, `file to ids` is parsing and encoding, and `ids to
file` is decoding and writing. Reading and writing is compiled if Numba is installed. Memory is the
growth of a new process after its imports.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import miditok
import symusic

from benchmarks.timing import csv_output, growth, in_new_process, run
from benchmarks.tokenization.midi_corpora import midi_files, spread
from tokenization.midi import event_bytes, read_midi, write_midi
from tokenization.presets import PRESETS


class Codec(NamedTuple):
    """The steps of a tokenizer; each takes the result of the previous one."""

    parse: Callable[[bytes], Any]
    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]
    write: Callable[[Any], bytes]

    def file(self, sequence: Any) -> bytes:  # noqa: ANN401  every library has its own type
        """Return the bytes of a file from its ids."""
        return self.write(self.decode(sequence))

    def ids(self, content: bytes) -> Any:  # noqa: ANN401  every library has its own type
        """Return the ids of a file."""
        return self.encode(self.parse(content))


def ours(preset: str) -> Codec:
    """Return a tokenizer of this package."""
    tokenizer: Any = PRESETS[preset].build()
    event_bytes.warm_up()  # otherwise the first files are read by uncompiled code
    return Codec(
        read_midi,
        tokenizer.encode,
        # as in typical use, with the original names and metres
        lambda sequence: tokenizer.decode(
            sequence.ids,
            sequence.signatures,
            **({"tracks": sequence.tracks} if sequence.tracks else {}),
        ),
        write_midi,
    )


def miditok_remi(*, with_tempo: bool = True, with_programs: bool = False) -> Codec:
    """Return MidiTok's REMI on twelve positions per quarter; tempos, metres, programs optional."""
    remi = miditok.REMI(
        miditok.TokenizerConfig(
            pitch_range=(0, 127) if with_programs else (21, 109),
            beat_res={(0, 4): 12, (4, 64): 4},
            num_velocities=32,
            use_programs=with_programs,
            programs=list(range(-1, 128)),
            use_tempos=with_tempo,
            num_tempos=211,
            tempo_range=(30, 240),
            use_time_signatures=with_tempo,
        )
    )

    def decode(encoded: Any) -> object:  # noqa: ANN401  one sequence, or one for each track
        # from ids, as ours does; MidiTok's own sequence would still contain the names of tokens
        if isinstance(encoded, list):
            return remi.decode([sequence.ids for sequence in encoded])
        return remi.decode(encoded.ids)

    # MidiTok's preprocessing changes its argument.
    return Codec(
        symusic.Score.from_midi,
        lambda score: remi.encode(deepcopy(score)),
        decode,
        lambda score: score.dumps_midi(),
    )


CODECS: dict[str, Callable[[], Codec]] = {
    "piano-2": lambda: ours("piano-2"),
    "multitrack-2": lambda: ours("multitrack-2"),
    "MidiTok, notes only": lambda: miditok_remi(with_tempo=False),
    "MidiTok": miditok_remi,
    "MidiTok, programs": lambda: miditok_remi(with_programs=True),
}


STEPS = ("encode", "decode", "parse", "file to ids", "ids to file")
COMPARED = (
    ("piano-2", "MidiTok, notes only", STEPS[:1]),
    ("piano-2", "MidiTok", STEPS),
    ("multitrack-2", "MidiTok, programs", STEPS),
)


def milliseconds(step: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    """Return the CPU time of one step per file."""
    begin = time.process_time()
    for value in inputs:
        step(value)
    return 1e3 * (time.process_time() - begin) / len(inputs)


def measure(
    our_codec: Codec, other: Codec, step: str, files: Sequence[bytes], num_rounds: int
) -> tuple[float, ...]:
    """Return milliseconds of both; median, lowest and highest ratio, and that of the best times."""
    works: list[tuple[Callable[[Any], Any], Sequence[Any]]] = []
    for codec in (our_codec, other):
        inputs: Sequence[Any] = files
        if step in ("encode", "decode", "ids to file"):
            inputs = list(map(codec.parse, inputs))
        if step in ("decode", "ids to file"):
            inputs = list(map(codec.encode, inputs))
        functions = {
            "encode": codec.encode,
            "decode": codec.decode,
            "parse": codec.parse,
            "file to ids": codec.ids,
            "ids to file": codec.file,
        }
        function = functions[step]
        function(inputs[0])
        works.append((function, inputs))
    rounds = [[milliseconds(*work) for work in works] for _ in range(num_rounds)]
    mine, theirs = zip(*rounds, strict=True)
    ratios = [that / this for this, that in rounds]
    return (
        *(statistics.median(mine), statistics.median(theirs), statistics.median(ratios)),
        *(min(ratios), max(ratios), min(theirs) / min(mine)),
    )


def grown_megabytes(name: str, files: Sequence[bytes]) -> float:
    """Return the memory by which this process grows when a codec encodes and decodes files."""
    codec = CODECS[name]()
    return growth(lambda: [codec.decode(codec.ids(content)) for content in files])


def rows(files: Sequence[bytes], sample: Sequence[bytes], num_rounds: int) -> Iterator[list[Any]]:
    """Return the rows of the table."""
    for our_name, other, steps in COMPARED:
        pair = CODECS[our_name](), CODECS[other]()
        for step in steps:
            yield [our_name, other, f"{step}, ms", *measure(*pair, step, sample, num_rounds)]
    if sys.platform == "linux":
        largest = sorted(files, key=len)[-10:]
        for our_name, other in (("piano-2", "MidiTok"), ("multitrack-2", "MidiTok, programs")):
            grown = [in_new_process(grown_megabytes, name, largest) for name in (our_name, other)]
            yield [
                our_name,
                other,
                "memory of the 10 largest files, MB",
                *grown,
                grown[1] / grown[0],
            ]


def main(corpora: Sequence[str], /, *, files: int = 60, rounds: int = 7) -> None:
    """Measure and print."""
    ratios = ("ratio_median", "ratio_low", "ratio_high", "ratio_of_best")
    out = csv_output(
        *("corpus", "ours", "theirs", "what", "ours", "theirs", *ratios),
        packages=("numpy", "miditok", "symusic"),
    )
    for corpus in corpora:
        named = list(midi_files(corpus))
        if not named:
            sys.exit(f"{corpus} has no .mid files")
        contents = [content for _, content in named]
        sample = [content for _, content in spread(named, files)]
        for row in rows(contents, sample, rounds):
            out(Path(corpus).name, *row)


if __name__ == "__main__":
    run(main)
