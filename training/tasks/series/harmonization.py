"""The task `harmonization`: the accompaniment of a melody, as piano rolls.

A frame is a sixteenth note. A model reads which keys the melody of a song of POP909 sounds, and
gives each key the probability that bridge or piano sound it in the same frame, from the melody up
to that frame and from its place in the structure: time, bar and chord. That is the harmonization
of Agarwal, Wang and Richard (ICASSP 2024 and 2025), whose frames are shorter. Probabilities above
one half sound when similarity to the true accompaniment is measured; see `similarity`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple
from zlib import crc32

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, dropout

from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from tokenization import MidiError, Score, read_midi
from training.errors import TrainingError, check_range
from training.tasks.batches import TensorBatch, exists, padded, parts_of
from training.tasks.series.piano_rolls import KEYS, PianoRollModule
from training.tasks.task import Measured, Results, Split, Task, check_vocabulary

FRAMES_PER_BEAT = 4
_BINS = 20
"""Bins of the histograms that grooves are compared by."""
_FOLDS = 20
"""Songs with a number of remainder 0 are the validation split, and half of this, the test split."""
_PER_BAR = 4 * FRAMES_PER_BEAT


class Song(NamedTuple):
    """A song, or some of its frames."""

    melody: NDArray[np.uint8]  # (l, 88)
    accompaniment: NDArray[np.uint8]  # (l, 88)
    places: NDArray[np.int64]
    """(l, 5): time; bar; frames since the bar line; number of changes of chord; chord, a label."""

    def window(self, start: int, length: int) -> Song:
        """Return `length` frames from `start` on, whose time, bar and changes begin with 0."""
        part = slice(start, start + length)
        places = self.places[part] - self.places[start] * np.array([1, 1, 0, 1, 0])
        return Song(self.melody[part], self.accompaniment[part], places)


@dataclass(frozen=True)
class Rolls(TensorBatch):
    """Windows of songs, padded at the end."""

    melody: Tensor
    """(b, l, 88) uint8."""
    accompaniment: Tensor
    """(b, l, 88) uint8."""
    positions: Tensor
    """(b, l, 5) int64; see `Song.places`."""
    exists: Tensor
    """(b, l) bool: which frames are no padding."""


class HarmonizationModule(PianoRollModule):
    """A decoder that reads a melody and predicts its accompaniment."""

    def losses(self, batch: Any, state: DecoderState) -> Iterator[Tensor]:  # noqa: ANN401
        """Return the negative log-likelihood of the frames, in nats."""
        logits = logits_of(self.decoder, batch, state, self._task.hidden_notes)
        yield (_nats(logits, batch) * batch.exists).sum()

    def num_targets(self, batch: Any) -> Tensor:  # noqa: ANN401
        """Return the number of frames that are predicted."""
        return batch.exists.sum()


@dataclass(frozen=True, kw_only=True)
class HarmonizationTask(Task):
    """Prediction of the accompaniment from the melody."""

    module = HarmonizationModule

    kind: Literal["harmonization"] = "harmonization"
    data: Path
    """Folder of POP909, with the MIDI file, `beat_midi.txt` and `chord_midi.txt` of each song in a
    folder named by its number."""
    length: int = 256
    """Frames of a window: 256 are 16 bars of four beats."""
    dropout: float = 0.0
    """Share of the features that training drops."""
    hidden_notes: float = 0.0
    """Share of the melody that training hides from the model."""
    model: DecoderConfig
    """Configuration of the model."""
    batch_size: int = 16
    """Windows per step, in all processes and micro-batches together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("length", self.length, 2 * _PER_BAR)
        check_range("dropout", self.dropout, 0, 0.9)
        check_range("hidden_notes", self.hidden_notes, 0, 0.9)
        check_vocabulary(self.model.vocabulary_size, KEYS, exact=True)
        if self.model.events is not None:
            raise TrainingError("model.events: frames are no events; leave it out")

    @property
    def axes(self) -> int:
        """Number of axes of `Song.places`."""
        return 5

    @property
    def tokens_per_step(self) -> int:
        """Frames of a step, padding included."""
        return self.batch_size * self.length

    @cached_property
    def _songs(self) -> dict[Split, list[Song]]:
        return read_songs(self.data)

    def windows(self, split: Split, length: int) -> list[Song]:
        """Return the songs of a split in windows; what is shorter than half of one is left out.

        Raises:
            TrainingError: the data are missing or damaged, or all songs are too short.
        """
        windows = [
            song.window(start, length)
            for song in self._songs[split]
            for start in range(0, len(song.melody) - length // 2 + 1, length)
        ]
        if not windows:
            raise TrainingError(
                f"{self.data}: no song for {split} has {length // 2} frames, half of a window; "
                "choose a smaller task.length"
            )
        return windows

    def training_examples(self) -> list[Song]:
        """Return the windows of the training split."""
        return self.windows("train", self.length)

    def held_out(self, world: int) -> list[Song]:
        """Return the windows of the validation split."""
        return self.windows("validation", self.length)

    def batch(self, examples: Sequence[Song], numbers: Sequence[int]) -> Rolls:
        """Return a batch of windows."""
        melody, accompaniment, places = zip(*(examples[number] for number in numbers), strict=True)
        arrays = padded(melody), padded(accompaniment), padded(places)
        return Rolls(*arrays, exists(melody))

    def content(self, examples: Sequence[Song]) -> Iterator[bytes]:
        """Return all accompaniments."""
        for song in examples:
            yield song.accompaniment.tobytes()

    def evaluate(self, model: Decoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure likelihood and similarity, in windows of the trained length and of four times it.

        Similarities are means over windows.
        """
        device = model.embedding.weight.device
        results: dict[str, Any] = {"task": self.kind, "data": self.origin, "split": split}
        for times in (1, 4):
            examples, each, nats, frames = self.windows(split, times * self.length), [], 0.0, 0
            for part in parts_of(range(len(examples)), max(batch_size // times, 1)):
                batch = self.batch(examples, part).to(device)
                with torch.inference_mode():
                    logits = logits_of(model, batch, model.init_state(len(batch)))
                    nats += float((_nats(logits, batch).double() * batch.exists).sum())
                frames += int(batch.exists.sum())
                for number, row in zip(part, logits.cpu().numpy(), strict=True):
                    truth = examples[number].accompaniment
                    each.append(similarity((row[: len(truth)] > 0).astype(np.uint8), truth))
            means = {name: float(np.mean([one[name] for one in each])) for name in each[0]}
            lengths = {"windows": len(examples), "frames": frames, "nats_per_frame": nats / frames}
            results["trained length" if times == 1 else "four times the length"] = lengths | means
        first = self.batch(examples, range(min(batch_size, len(examples)))).to(device)
        start = model.init_state(len(first))
        return Measured(results, lambda: logits_of(model, first, start), len(first))

    def summary(self, results: Results) -> list[str]:
        """Return one line for each length."""
        return [
            f"{self.kind} ({results['data']}), {results['split']}, {name}: "
            + ", ".join(
                f"{key.replace('_', ' ')} {value:.3f}"
                for key, value in results[name].items()
                if isinstance(value, float)
            )
            for name in ("trained length", "four times the length")
        ]


def logits_of(
    model: Decoder, batch: Rolls, state: DecoderState, hidden_notes: float = 0.0
) -> Tensor:
    """Return the log-odds (b, l, 88) that the accompaniment sounds each key.

    In training, the model does not see a share `hidden_notes` of the melody.
    """
    seen = dropout(batch.melody.to(model.embedding.weight.dtype), hidden_notes, model.training)
    rows, _ = model.through_blocks(seen @ model.embedding.weight, batch.positions, state)
    logits = model.project_out(model.norm(rows))
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def _nats(logits: Tensor, batch: Rolls) -> Tensor:
    truth = batch.accompaniment.to(logits)
    return binary_cross_entropy_with_logits(logits, truth, reduction="none").sum(-1)


def similarity(roll: NDArray[np.uint8], truth: NDArray[np.uint8]) -> dict[str, float]:
    """Compare two accompaniments (l, 88) of the same frames, as Agarwal et al. do.

    Args:
        roll: the keys that sound in each frame.
        truth: the same for the true accompaniment.

    Returns:
        `chroma_similarity`: mean cosine between the onsets by pitch class in each two bars of four
        beats, x 100; `groove_similarity`: overlap of the histograms of the numbers of onsets per
        frame as shares of the largest number, x 100; `self_similarity_distance`: mean absolute
        difference of the cosines between the pitch classes of all pairs of half beats, x 100;
        `density_distance`: mean absolute difference of the numbers of keys that sound.
    """
    onsets = [_onsets(each) for each in (roll, truth)]
    chroma = [_cosines(*(_classes(each, 2 * _PER_BAR) for each in onsets)).diagonal()]
    grooves = [_groove(each.sum(1)) for each in onsets]
    halves = [_classes(each, FRAMES_PER_BEAT // 2) for each in (roll, truth)]
    matrices = [_cosines(each, each) for each in halves]
    density = roll.sum(1, dtype=np.int64) - truth.sum(1, dtype=np.int64)
    return {
        "chroma_similarity": 100 * float(np.mean(chroma)),
        "groove_similarity": 100 * float(np.minimum(*grooves).sum()),
        "self_similarity_distance": 100 * float(np.abs(matrices[0] - matrices[1]).mean()),
        "density_distance": float(np.abs(density).mean()),
    }


def _onsets(roll: NDArray[np.uint8]) -> NDArray[np.uint8]:
    before = np.concatenate([np.zeros_like(roll[:1]), roll[:-1]])
    return np.where(before, 0, roll)


def _classes(roll: NDArray[np.uint8], unit: int) -> NDArray[np.float64]:
    """Return the counts (n, 12) of pitch classes in units of frames, the last one shorter."""
    counts = np.zeros((-(-len(roll) // unit), 12))
    frame, key = roll.nonzero()
    np.add.at(counts, (frame // unit, (key + 21) % 12), 1)
    return counts


def _cosines(a: NDArray[np.float64], b: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the cosines (n, m) of rows; two empty rows are equal, and no other is like them."""
    sizes = [np.linalg.norm(each, axis=1) for each in (a, b)]
    products = a @ b.T / np.maximum(np.outer(*sizes), 1e-12)
    return np.where(np.add.outer(*sizes) == 0, 1.0, products)


def _groove(onsets: NDArray[Any]) -> NDArray[np.float64]:
    counts, _ = np.histogram(onsets / max(onsets.max(), 1), _BINS, (0, 1))
    return counts / len(onsets)


def read_songs(folder: Path) -> dict[Split, list[Song]]:
    """Return the songs of POP909 by split; see `HarmonizationTask.data`.

    Raises:
        TrainingError: files are missing or damaged.
    """
    songs: dict[Split, list[Song]] = {"train": [], "validation": [], "test": []}
    for path in sorted(folder.glob("[0-9]*/[0-9]*.mid")):
        rest = int(path.stem) % _FOLDS if path.stem.isdecimal() else 1
        split: Split = "validation" if rest == 0 else "test" if rest == _FOLDS // 2 else "train"
        try:
            songs[split].append(_read_song(path))
        except (MidiError, OSError, ValueError, IndexError) as error:
            raise TrainingError(f"{path.parent}: expected a song of POP909 ({error})") from error
    for name, of_split in songs.items():
        if not of_split:
            raise TrainingError(
                f"{folder}: found no songs for {name}; expected POP909 with folders such as 001"
            )
    return songs


def _read_song(path: Path) -> Song:
    score = read_midi(path)
    beats = np.loadtxt(path.with_name("beat_midi.txt"), ndmin=2)
    lines = path.with_name("chord_midi.txt").read_text(encoding="utf-8").splitlines()
    chords = [(float(start), name) for start, _, name in (line.split()[:3] for line in lines)]
    # a frame per sixteenth, from the first bar line on
    bars = np.flatnonzero(beats[:, 2] == 1)
    grid = np.arange(bars[0] * FRAMES_PER_BEAT, (len(beats) - 1) * FRAMES_PER_BEAT)
    times = np.interp(grid / FRAMES_PER_BEAT, np.arange(len(beats)), beats[:, 0])
    time = np.arange(len(grid))
    bar = np.searchsorted(bars * FRAMES_PER_BEAT, grid, side="right") - 1
    middle = times + np.diff(times, append=times[-1]) / 2
    chord = np.searchsorted([start for start, _ in chords], middle, side="right") - 1
    label = np.array([crc32(name.encode()) for _, name in chords])[np.maximum(chord, 0)]
    changes = np.cumsum(np.diff(label, prepend=label[0]) != 0)
    places = np.stack([time, bar, grid - bars[bar] * FRAMES_PER_BEAT, changes, label], 1)
    return Song(_roll(score, times, melody=True), _roll(score, times, melody=False), places)


def _roll(score: Score, times: NDArray[np.float64], *, melody: bool) -> NDArray[np.uint8]:
    """Return the keys (l, 88) that sound in frames which begin at these times, in seconds."""
    roll = np.zeros((len(times), KEYS), np.uint8)
    # a note begins and ends with the nearest frame
    edges = np.interp(np.arange(-0.5, len(times)), np.arange(len(times)), times)
    edges[0], edges[-1] = 1.5 * times[0] - 0.5 * times[1], 1.5 * times[-1] - 0.5 * times[-2]
    for track in score.tracks:
        if (track.name == "MELODY") == melody:
            onset, length, pitch = track.notes[:, 0], track.notes[:, 1], track.notes[:, 2]
            starts = np.searchsorted(edges, score.seconds_at(onset), side="right") - 1
            stops = np.searchsorted(edges, score.seconds_at(onset + length), side="right") - 1
            for start, stop, key in zip(starts, stops, pitch - 21, strict=True):
                if 0 <= key < KEYS:
                    roll[max(start, 0) : max(stop, start + 1), key] = 1
    return roll
