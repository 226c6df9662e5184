"""A model without weights that generates broken chords and a melody at a steady speed.

Also contains steps of a decoder that take no time.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from app.audio.stems import SoundFiles, Stems, places_of
from app.compose import continuation
from app.compose.continuation import Progress, Result
from app.compose.options import MusicOptions
from app.compose.piece import Piece
from app.compose.prompt.prompt import Prompt
from app.server import scheduler
from app.server.worker import Worker
from tokenization.midi import append_to_midi, write_midi
from tokenization.remi.remi import PianoRemi
from tokenization.score import Score, Tempo, TimeSignature, Track

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    import pytest

    from app.compose.continuation import Steps, Variations
    from app.compose.models import MusicModel
    from relpe.models.decoder import DecoderState

BAR = 48  # a bar of 4/4 in twelfths of a quarter note
SCALE = np.array([0, 2, 4, 5, 7, 9, 11])


@dataclass(eq=False)
class FakeModel:
    """The attributes of a model that the page reads, and its speed in notes per second."""

    name: str = "fake"
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    backend: str = "fake"
    sha256: str = "abcd"
    parameters: int = 4_200_000
    tokenizer: PianoRemi = field(default_factory=PianoRemi)
    speed: float = 50.0
    ended: list[int] = field(default_factory=list)
    """Number of notes of each job when it ended."""

    def preparing(self) -> Iterator[None]:
        """Yields nothing, since the model is always ready."""
        return iter(())


class FakeWorker:
    """Replaces `Worker`: calls the functions of `continuation`, which `install` replaces."""

    def __init__(self, model: MusicModel) -> None:
        self.model = model

    def generate(self, variations: Variations, stop: threading.Event) -> Steps:
        """See `Worker.generate`."""
        opening = variations.opening
        if opening.prompt is None:
            return continuation.generate_piece(self.model, opening.options, stop.is_set)
        return continuation.continue_prompt(
            self.model, opening.prompt, opening.options, stop.is_set
        )


def _worker_of(model: MusicModel) -> FakeWorker | Worker:
    return FakeWorker(model) if isinstance(model, FakeModel) else Worker(model)


class QuickSteps:
    """Steps with a table instead of a decoder; logits depend on position and earlier tokens."""

    name = "quick"

    def __init__(self, vocabulary_size: int) -> None:
        self._table = np.random.default_rng(0).normal(size=(97, vocabulary_size))
        self._past: list[int] = []

    def admit(self, state: DecoderState, position: int) -> int:
        """See `TokenSteps.admit`."""
        self._past.append(position)
        return len(self._past) - 1

    def fork(self, slot: int) -> int:
        """See `TokenSteps.fork`."""
        self._past.append(self._past[slot])
        return len(self._past) - 1

    def release(self, slot: int) -> None:
        """See `TokenSteps.release`."""

    def step(
        self, slots: Sequence[int], tokens: Sequence[int], coordinates: np.ndarray | None = None
    ) -> np.ndarray:
        """See `TokenSteps.step`."""
        assert coordinates is None
        for slot, token in zip(slots, tokens, strict=True):
            self._past[slot] = hash((self._past[slot], token))
        return self._table[[self._past[slot] % 97 for slot in slots]].astype(np.float32)


def example_midi(bars: int = 8) -> bytes:
    """A prompt of `bars` bars with two tracks."""
    tracks = [
        Track.of(_music(seed, 0, bars)[half::2].tolist(), program=0)
        for seed, half in ((1, 0), (2, 1))
    ]
    return write_midi(Score(12, tuple(tracks), (Tempo(0, 96.0),), (TimeSignature(0, 4, 4),)))


def install(patch: pytest.MonkeyPatch, *, speed: float = 50.0) -> FakeModel:
    """Replaces the functions that call a model by the fakes below, except for other models."""
    patch.setattr(scheduler, "Worker", _worker_of)
    patch.setattr(continuation, "continue_prompt", continue_prompt)
    patch.setattr(continuation, "generate_piece", generate_piece)
    return FakeModel(speed=speed)


def continue_prompt(
    model: FakeModel,
    prompt: Prompt,
    options: MusicOptions,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[Progress | Result]:
    """Continues the prompt; the last item is the result."""
    splice = prompt.splice_ticks
    written = yield from _write(model, options, splice, prompt.score, stop)
    pieces = []
    for row, new in enumerate(written):
        whole = prompt.score.with_tracks([*prompt.score.tracks, *new.tracks])
        midi = append_to_midi(prompt.data, new, splice)
        seed = (options.seed or 0) + row
        pieces.append(_piece(midi, new, whole, seed, splice, stopped=stop()))
    yield _result(pieces, splice, options, model)


def generate_piece(
    model: FakeModel, options: MusicOptions, stop: Callable[[], bool] = lambda: False
) -> Iterator[Progress | Result]:
    """Generates a piece; the last item is the result."""
    base = Score(12, (), (Tempo(0, 84.0),), (TimeSignature(0, 4, 4),))
    written = yield from _write(model, options, 0, base, stop)
    pieces = [
        _piece(write_midi(new), new, new, (options.seed or 0) + row, stopped=stop())
        for row, new in enumerate(written)
    ]
    yield _result(pieces, 0, options, model)


def _write(
    model: FakeModel, options: MusicOptions, splice: int, base: Score, stop: Callable[[], bool]
) -> Iterator[Progress]:
    rows = [
        _music((options.seed or 0) + row, splice, options.bars) for row in range(options.variations)
    ]
    started = time.monotonic()
    scores: tuple[Score, ...] = ()
    count = 0
    try:
        while count < min(map(len, rows)) and not stop():
            count += 1
            time.sleep(1 / model.speed)
            scores = tuple(base.with_tracks([Track.of(row[:count].tolist())]) for row in rows)
            yield Progress(
                bars_done=int(rows[0][count - 1, 0] - splice) // BAR,
                bars=options.bars,
                tokens=4 * count,
                notes=count,
                seconds=time.monotonic() - started,
                scores=scores,
                done_ticks=splice + (int(rows[0][count - 1, 0]) - splice) // BAR * BAR,
                part_done=(rows[0][count - 1, 0] - splice) // BAR / options.bars,
            )
    finally:
        model.ended.append(count)
    return scores


def _music(seed: int, start: int, bars: int) -> np.ndarray:
    """Notes (n, 4): broken chords with a melody above them."""
    random = np.random.default_rng(seed)
    notes = []
    step = 7
    for bar in range(bars):
        root = int(random.choice([0, 3, 4, 5]))
        at = start + bar * BAR
        for place in range(8):
            degree = root + (0, 4, 2, 4)[place % 4]
            pitch = 48 + 12 * (degree // 7) + SCALE[degree % 7]
            notes.append((at + 6 * place, 6, pitch, 46 + int(random.integers(14))))
        place = 0
        while place < BAR:
            length = int(random.choice([6, 12, 12, 24]))
            step = int(np.clip(step + random.integers(-2, 3), 3, 16))
            pitch = 67 + 12 * (step // 7) + SCALE[step % 7]
            length = min(length, BAR - place)
            notes.append((at + place, length, pitch, 66 + int(random.integers(40))))
            place += length
    return np.array(sorted(notes))


def _result(pieces: list[Piece], splice: int, options: MusicOptions, model: FakeModel) -> Result:
    end = max((piece.new.end_ticks for piece in pieces), default=splice)
    bars = min(options.bars, max(1, -(-(end - splice) // BAR)))
    notes = max((piece.notes for piece in pieces), default=0)
    tokens = sum(piece.tokens for piece in pieces)
    return Result(tuple(pieces), bars=bars, seconds=notes / model.speed, tokens=tokens)


def _piece(
    midi: bytes, new: Score, whole: Score, seed: int, splice: int = 0, *, stopped: bool
) -> Piece:
    notes = new.num_notes
    alone = (Track(track.notes - [splice, 0, 0, 0]) for track in new.tracks)
    return Piece(
        midi=midi,
        new_midi=write_midi(Score(12, tuple(alone), (Tempo(0, 96.0),))),
        score=whole,
        new=new,
        seed=seed,
        tokens=4 * notes,
        notes=notes,
        tokens_per_second=200.0,
        bars=max(1, -(-(new.end_ticks - splice) // BAR)),
        stopped=stopped,
    )


def silent_stems(
    score: Score,
    folder: Path,
    name: str,
    *,
    ids: Sequence[int] | None = None,
    soundfont: Path | None = None,
    progress: Callable[[float], None] | None = None,
) -> Stems:
    """Replaces `stems.render`; all stems are silent."""
    if progress is not None:
        progress(1.0)
    seconds = float(score.seconds_at(score.end_ticks))
    samples = np.zeros((int(8000 * seconds), 2), np.int16)
    numbers = places_of(score, ids)
    names = {number: f"Track {number}" for number in numbers}
    files = SoundFiles(folder, name, names)
    return Stems(files, 8000, samples, dict.fromkeys(numbers, samples), names)
