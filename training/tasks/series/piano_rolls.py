"""The task `piano_rolls`: the likelihood of the next frame of polyphonic music.

A frame is the set of keys that sound, as a vector y of 88 bits; key 0 is MIDI pitch 21. A model
reads the frames of a sequence and predicts each from those before it. Its likelihood is that of

    independent:  p(y | past) = prod_k p(y_k | past), a sigmoid for each key;
    in_order:     p(y | past) = prod_i p(n_i | n_1 ... n_{i-1}, past), n the sounding keys from low
                  to high and then an end; a key that is not higher than the one before it, which
                  no frame has, has the probability 0.

Both are exact, and only the second knows which keys sound together. The measure is the mean
negative log-likelihood in nats of a frame; the first frame of a sequence is not predicted
(Boulanger-Lewandowski, Bengio & Vincent, 2012; Bai, Kolter & Koltun, 2018).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, dropout

from relpe.models.blocks import Block
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from training.errors import TrainingError, check_range
from training.tasks.batches import Passes, TensorBatch, exists, padded, parts_of
from training.tasks.likelihood import windows
from training.tasks.module import SeededModule
from training.tasks.task import Measured, Results, Split, Task, check_vocabulary

KEYS = 88
AXES = 4
"""Axes of the positions; see `places_of`."""
_SPLITS = {"train": "train", "validation": "valid", "test": "test"}
_FILES = {
    "jsb": "JSB_Chorales",
    "nottingham": "Nottingham",
    "musedata": "MuseData",
    "piano_midi": "Piano_midi",
}


class Window(NamedTuple):
    """Frames that are read at once."""

    frames: NDArray[np.uint8]  # (l, 88)
    places: NDArray[np.int64]  # (l, p)
    first: int
    """The first frame that is predicted."""


@dataclass(frozen=True)
class Frames(TensorBatch):
    """Windows, padded at the end."""

    frames: Tensor
    """(b, l, 88) uint8."""
    positions: Tensor
    """(b, l, p) int64; see `places_of`."""
    asked: Tensor
    """(b, l) bool: whether a frame is predicted, from those before it."""


class PianoRollModule(SeededModule[Decoder]):
    """A decoder that predicts frames. In training, outputs and notes that are read are dropped.

    Dropout is applied to the output of each attention and feed-forward layer and to the features
    that predict; `hidden_notes` hides each note of the frames that are read.
    """

    def __init__(self, *args: Any) -> None:  # noqa: ANN401
        super().__init__(*args)
        for block in self.decoder.blocks:
            assert isinstance(block, Block)
            block.attention.register_forward_hook(self._drop)
            block.feed_forward.register_forward_hook(self._drop)
        self.decoder.norm.register_forward_hook(self._drop)
        self.decoder.embedding.register_forward_hook(self._hide)

    def _drop(self, layer: Any, inputs: Any, outputs: Any) -> Any:  # noqa: ANN401
        if not layer.training:
            return outputs
        if isinstance(outputs, tuple):
            return self._drop(layer, inputs, outputs[0]), *outputs[1:]
        return dropout(outputs, self._task.dropout)

    def _hide(self, layer: Any, inputs: tuple[Tensor], embedded: Tensor) -> Tensor:  # noqa: ANN401
        kept = inputs[0].new_ones(inputs[0].shape, dtype=embedded.dtype)
        kept = dropout(kept, self._task.hidden_notes, training=layer.training)
        return embedded * kept[..., None]

    def losses(self, batch: Frames, state: DecoderState) -> Iterator[Tensor]:
        """Return the negative log-likelihood of the frames, in nats."""
        most = self._task.transpose
        if self.decoder.training and most:
            moves = torch.randint(-most, most + 1, (len(batch),)).to(batch.device)
            batch = replace(batch, frames=transposed(batch.frames, moves))
        yield (nats_of(self.decoder, batch, state, self._task.hidden_notes) * batch.asked).sum()

    def num_targets(self, batch: Frames) -> Tensor:
        """Return the number of frames that are predicted."""
        return batch.asked.sum()


@dataclass(frozen=True, kw_only=True)
class PianoRollTask(Task):
    """Prediction of the next frame of a piano roll.

    With `events` in the model, keys are predicted in order, otherwise independently.
    """

    module = PianoRollModule

    kind: Literal["piano_rolls"] = "piano_rolls"
    data: Path
    """Folder with the `.mat` files of the repository of TCN, or an `.npz` file with the frames of
    all sets: `NAME_SPLIT`, packed bits (frames, 11), and the lengths of sequences
    `NAME_SPLIT_len`."""
    name: Literal["jsb", "nottingham", "musedata", "piano_midi"]
    """The set: JSB chorales, Nottingham, MuseData or Piano-midi.de, with their published splits."""
    longest: int = 256
    """Largest number of frames that the model reads at a time. Longer sequences are read in windows
    that overlap by half; see `windows`."""
    dropout: float = 0.0
    """Share of the features that training drops."""
    hidden_notes: float = 0.0
    """Share of the notes that training hides from the model, which still predicts them."""
    transpose: int = 0
    """Largest number of semitones by which training moves a window up or down. The published
    sequences begin in C, so this is no likely variation of them, but they modulate."""
    model: DecoderConfig
    """Configuration of the model."""
    batch_size: int = 16
    """Windows per step, in all processes and micro-batches together."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_range("longest", self.longest, 2)
        check_range("dropout", self.dropout, 0, 0.9)
        check_range("hidden_notes", self.hidden_notes, 0, 0.9)
        check_range("transpose", self.transpose, 0, 12)
        in_order = self.model.events is not None
        check_vocabulary(self.model.vocabulary_size, KEYS + in_order, exact=True)
        if self.model.events is not None and self.model.events.closing != ((KEYS, KEYS + 1),):
            raise TrainingError(
                f"model.events.closing is {self.model.events.closing}, expected [[{KEYS}, "
                f"{KEYS + 1}]]: the end of a frame follows its keys"
            )

    @property
    def axes(self) -> int:
        """Number of axes of `places_of`."""
        return AXES

    @property
    def origin(self) -> str:
        """The set and where it is."""
        return f"{self.name} in {self.data}"

    @property
    def tokens_per_step(self) -> int:
        """Frames of a step, padding included."""
        return self.batch_size * self.longest

    @cached_property
    def _read(self) -> dict[Split, list[Window]]:
        return {}

    def split(self, name: Split) -> list[Window]:
        """Return the windows of a split, which predict all frames but the first of sequences.

        Raises:
            TrainingError: the data are missing or damaged.
        """
        if name not in self._read:
            found: list[Window] = []
            for frames in read_frames(self.data, self.name, name):
                places = places_of(frames)
                for start, stop, first in windows(1, len(frames), self.longest):
                    part = slice(start, stop)
                    found.append(Window(frames[part], places[part], first - start))
            self._read[name] = found
        return self._read[name]

    def training_examples(self) -> list[Window]:
        """Return the windows of the training split."""
        return self.split("train")

    def passes(self, examples: Sequence[Window], seed: int) -> Passes:
        """Return the numbers of the windows of each step, which have similar lengths."""
        lengths = np.array([len(window.frames) for window in examples])
        return Passes(len(examples), self.batch_size, seed, lengths)

    def held_out(self, world: int) -> list[Window]:
        """Return all windows of the validation split, and empty ones to fill the shares."""
        validation = self.split("validation")
        empty = validation[0]._replace(first=len(validation[0].frames))
        return [*validation, *[empty] * (-len(validation) % world)]

    def batch(self, examples: Sequence[Window], numbers: Sequence[int]) -> Frames:
        """Return a batch of windows."""
        windows_of_batch = [examples[number] for number in numbers]
        asked = exists([window.frames for window in windows_of_batch])
        asked &= (
            torch.arange(asked.shape[1])
            >= torch.tensor([w.first for w in windows_of_batch])[:, None]
        )
        return Frames(
            padded([window.frames for window in windows_of_batch]),
            padded([window.places for window in windows_of_batch]),
            asked,
        )

    def content(self, examples: Sequence[Window]) -> Iterator[bytes]:
        """Return all frames."""
        for window in examples:
            yield window.frames.tobytes()

    def evaluate(self, model: Decoder, run: Path, split: Split, batch_size: int) -> Measured:
        """Measure the likelihood of the frames of a split."""
        examples, device = self.split(split), model.embedding.weight.device
        order = sorted(range(len(examples)), key=lambda number: len(examples[number].frames))
        nats, count = 0.0, 0
        with torch.inference_mode():
            for part in parts_of(order, batch_size):
                batch = self.batch(examples, part).to(device)
                each = nats_of(model, batch, model.init_state(len(batch))).double()
                nats += float((each * batch.asked).sum())
                count += int(batch.asked.sum())
        first = self.batch(examples, range(min(batch_size, len(examples)))).to(device)
        results = {
            "task": self.kind,
            "data": self.origin,
            "split": split,
            "outputs": "independent" if model.events is None else "in order",
            "frames": count,
            "nats_per_frame": nats / count,
        }
        start = model.init_state(len(first))
        return Measured(results, lambda: nats_of(model, first, start), len(first))

    def summary(self, results: Results) -> list[str]:
        """Return the likelihood in one line."""
        return [
            f"{self.kind} ({results['data']}), {results['split']}, keys {results['outputs']}: "
            f"{results['nats_per_frame']:.4f} nats per frame ({results['frames']:,} frames)"
        ]


def nats_of(
    model: Decoder, batch: Frames, state: DecoderState, hidden_notes: float = 0.0
) -> Tensor:
    """Return the negative log-likelihood (b, l) of each frame given those before it, in nats.

    That of the first frame is 0 with independent keys. In training, a model with independent keys
    does not see a share `hidden_notes` of the notes.
    """
    if model.events is not None:
        return _nats_in_order(model, batch, state)
    frames = batch.frames.to(model.embedding.weight.dtype)
    seen = dropout(frames, hidden_notes, training=model.training)
    rows, _ = model.through_blocks(
        seen[:, :-1] @ model.embedding.weight, batch.positions[:, :-1], state
    )
    logits = model.project_out(model.norm(rows))
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    nats = binary_cross_entropy_with_logits(logits, frames[:, 1:].to(logits), reduction="none").sum(
        -1
    )
    return torch.cat([nats.new_zeros(len(nats), 1), nats], 1)


def _nats_in_order(model: Decoder, batch: Frames, state: DecoderState) -> Tensor:
    """See `nats_of`: of the tokens of a frame, its keys from low to high and then an end."""
    tokens, frame = tokens_of(batch.frames)
    positions = batch.positions.gather(
        1, frame[:, :-1, None].expand(-1, -1, batch.positions.shape[-1])
    )
    logits, _ = model(tokens[:, :-1], positions, state)
    # after a key, keys up to it are not possible; after an end, all tokens are
    end = logits.shape[-1] - 1
    last = tokens[:, :-1, None].where(tokens[:, :-1, None] < end, -1)
    possible = torch.arange(end + 1, device=tokens.device) > last
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    logits = logits.masked_fill(~possible, -torch.inf)
    nats = -logits.log_softmax(-1).gather(-1, tokens[:, 1:, None])[..., 0]
    by_frame = nats.new_zeros(batch.frames.shape[:2])
    return by_frame.scatter_add(1, frame[:, 1:], nats * _is_token(batch.frames)[:, 1:])


def transposed(frames: Tensor, moves: Tensor) -> Tensor:
    """Return frames (b, l, k) moved up by `moves` (b,) keys, without the notes beyond the last."""
    keys = frames.shape[2]
    source = torch.arange(keys, device=frames.device) - moves[:, None]
    moved = frames.gather(2, source.clamp(0, keys - 1)[:, None].expand_as(frames))
    return moved * ((source >= 0) & (source < keys))[:, None]


def tokens_of(frames: Tensor) -> tuple[Tensor, Tensor]:
    """Return the tokens (b, n) of frames (b, l, k), and the frame (b, n) of each.

    Token k is the end of a frame. Rows with fewer tokens are continued by ends, which belong to the
    last frame.
    """
    length, keys = frames.shape[1:]
    bits = torch.cat([frames, frames.new_ones(*frames.shape[:2], 1)], -1).flatten(1)
    places = bits.long().cumsum(1) - 1
    count = int(places[:, -1].max()) + 1
    flat = torch.full((len(frames), count), length * (keys + 1) - 1, device=frames.device)
    row, bit = bits.nonzero(as_tuple=True)
    flat[row, places[row, bit]] = bit
    return flat % (keys + 1), flat // (keys + 1)


def _is_token(frames: Tensor) -> Tensor:
    """Return whether the tokens (b, n) of `tokens_of` belong to frames (b, l, k)."""
    counts = frames.long().sum((1, 2)) + frames.shape[1]
    return torch.arange(int(counts.max()), device=frames.device) < counts[:, None]


def places_of(frames: NDArray[np.uint8]) -> NDArray[np.int64]:
    """Return the places (l, p) of frames (l, 88), none of which depends on later frames.

    The axes are the time; the number of changes of the frame so far; the time since the last
    change; and the set of pitch classes, a label, as a number of 12 bits.
    """
    time = np.arange(len(frames))
    changes = np.concatenate([[False], (frames[1:] != frames[:-1]).any(1)])
    since = time - np.maximum.accumulate(np.where(changes, time, 0))
    classes = np.zeros((len(frames), 12), np.int64)
    for key in range(KEYS):
        classes[:, (key + 21) % 12] |= frames[:, key]
    return np.stack([time, changes.cumsum(), since, classes @ (1 << np.arange(12))], 1)


def read_frames(data: Path, name: str, split: Split) -> list[NDArray[np.uint8]]:
    """Return the sequences of a split, each (l, 88).

    Raises:
        TrainingError: the file is missing or damaged.
    """
    path = data / f"{_FILES[name]}.mat" if data.is_dir() else data
    try:
        if path.suffix == ".mat":
            from scipy.io import loadmat

            sequences = loadmat(path)[f"{_SPLITS[split]}data"][0]
            read = [np.asarray(one).astype(np.uint8) for one in sequences]
        else:
            with np.load(path) as arrays:
                key = f"{name}_{_SPLITS[split]}"
                bits = np.unpackbits(arrays[key], axis=1, count=KEYS)
                read = np.split(bits, np.cumsum(arrays[f"{key}_len"])[:-1])
    except (OSError, KeyError, ValueError, IndexError, TypeError) as error:
        raise TrainingError(f"{path}: found no {split} frames of {name} ({error})") from error
    if not read or any(
        one.ndim != 2 or not one.size or one.shape[1] != KEYS or one.max() > 1 for one in read
    ):
        raise TrainingError(f"{path}: expected sequences of frames with {KEYS} keys, each 0 or 1")
    return read
