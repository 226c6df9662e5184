"""Tunes a model to the user's pieces in minutes, and writes it as a model folder."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Final, Literal, NamedTuple, NoReturn

import torch
from lightning_fabric import Fabric
from tqdm import tqdm

from relpe.learning.low_rank import add_corrections, merge_corrections
from relpe.models.decoder import Decoder
from tokenization.presets import load_tokenizer
from tokenization.remi.remi import Remi
from training.config import OptimizerConfig, TrainerConfig
from training.data.documents import Documents
from training.errors import TrainingError
from training.release import check_new, write_tuned
from training.runs.device import Arithmetic, choose_arithmetic, fast_products
from training.runs.lineage import history
from training.runs.record import PastRun, this_segment
from training.runs.weights import digest, load_decoder, model_folder, round_as_released
from training.tasks.music import MusicModule
from training.tuning.card import Tuned, card
from training.tuning.measure import Measure, Nats, of_corpus
from training.tuning.options import Method, TuneOptions
from training.tuning.pieces import OwnPieces, read_own_pieces

logger = logging.getLogger(__name__)

LEARNING_RATES: Final[dict[Method, float]] = {"low-rank": 3e-4, "full": 1e-4}
"""The best of those that were tried, by what is learned."""
LENGTH: Final = 512
ROWS: Final = 4
"""Examples of `LENGTH` tokens in a step."""
_AVERAGED = 0.97
_WARMUP_STEPS = 20
_EVALUATIONS = 12
"""Evaluations in the whole time."""
_MOST_EVALUATING = 0.1
"""Maximum share of the time that evaluations take."""
_PATIENCE = 4
"""Evaluations in a row without a better result after which tuning stops."""
_WRITING_SECONDS = 2.0


class TuningOutcome(NamedTuple):
    """A tuned model."""

    tuned: Tuned
    stopped: bool
    """Whether Ctrl-C ended the tuning before its time."""


def tune(options: TuneOptions) -> TuningOutcome:
    """Tune a model and write it to `output`.

    The weights are averages over the last steps; those with which the held-back pieces were most
    likely are written. Tuning ends early if they do not get better. Ctrl-C during tuning keeps the
    best weights so far, and at any other time leaves no files.

    Raises:
        TrainingError: the pieces, the model or the output cannot be used, or the held-back pieces
            did not become more likely.
    """
    clock = _Clock(options.minutes, options.clock)
    check_new(options.output)
    folder = model_folder(options.model)
    tokenizer = load_tokenizer(folder)
    pieces = read_own_pieces(options.corpus, tokenizer)
    for name, why in pieces.unused.items():
        logger.warning("not used: %s", why if name in why else f"{name}: {why}")
    decoder, origin = load_decoder(options.model)
    settings = TrainerConfig(device=options.device, threads=options.threads, seed=options.seed)
    arithmetic = choose_arithmetic(settings)
    decoder.to(arithmetic.device)
    round_as_released(decoder)
    families = tokenizer.families
    held = Measure.of(pieces.held_back, tokenizer, decoder.config.pointer)
    original = None if options.original is None else of_corpus(options.original, tokenizer, decoder)
    with fast_products(arithmetic.device):
        began = clock.now()
        before = held(decoder, families)
        seconds = clock.now() - began
        original_before = None if original is None else original(decoder, families)
        clock.reserve(1.1 * (clock.now() - began) + _WRITING_SECONDS)
        tuning = _Tuning(decoder, pieces, options, arithmetic, tokenizer)
        stopped = tuning.run(clock, lambda: held.decoder_only(decoder, families), before, seconds)
        decoder = tuning.best()
        round_as_released(decoder)
        after = held(decoder, families)
        original_after = None if original is None else original(decoder, families)
    if not after.decoder < before.decoder:
        raise TrainingError(
            f"the held-back pieces did not become more likely ({before.decoder:.3f} nats per note "
            f"before, {after.decoder:.3f} after), so nothing was written; give more pieces or more "
            "--minutes"
        )
    tuned = Tuned(
        name=options.output.resolve().name,
        base=folder.resolve().name,
        method=options.method,
        learning_rate=tuning.learning_rate,
        learned=len(pieces.train),
        learned_notes=pieces.notes,
        held_back=pieces.names,
        shares_melodies=pieces.shares_melodies,
        held_notes=held.notes,
        before=before,
        after=after,
        original_before=original_before,
        original_after=original_after,
        steps=tuning.best_step,
        all_steps=tuning.step,
        minutes=clock.elapsed() / 60,
    )
    run = PastRun(
        name=tuned.name,
        steps=tuning.best_step,
        tokens=tuning.best_step * ROWS * tuning.length,
        weights=digest(decoder),
        source=f"{len(pieces.train) + len(pieces.held_back)} files for relpe-train tune",
        data=pieces.digest,
        device=arithmetic.device,
        precision=arithmetic.precision,
        threads=arithmetic.threads,
        sessions=(this_segment(arithmetic),),
    )
    decoder.to("cpu")
    write_tuned(decoder, folder, options.output, (*history(folder, origin), run), card(tuned, run))
    return TuningOutcome(tuned, stopped)


class _Clock:
    """The time of the command, of which the end is kept for measuring and writing."""

    def __init__(self, minutes: float, kind: Literal["wall", "cpu"]) -> None:
        self.now = time.process_time if kind == "cpu" else time.monotonic
        self._began = self.now()
        self._end = self._began + 60 * minutes

    def reserve(self, seconds: float) -> None:
        """Keep this time at the end."""
        self._end -= seconds

    def elapsed(self) -> float:
        """Return the seconds since the start."""
        return self.now() - self._began

    def left(self) -> float:
        """Return the seconds left before the part that is kept."""
        return self._end - self.now()


@dataclass
class _Tuning:
    """The model while it is tuned."""

    decoder: Decoder
    pieces: OwnPieces
    options: TuneOptions
    arithmetic: Arithmetic
    tokenizer: Remi
    best_step: int = 0
    _least: float = math.inf
    _best: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        torch.manual_seed(self.options.seed)
        method = self.options.method
        self.learning_rate = self.options.learning_rate or LEARNING_RATES[method]
        if method == "low-rank":  # corrections, which `best` merges into an ordinary model
            add_corrections(self.decoder)
        else:
            self.decoder.requires_grad_(requires_grad=True)
        optimizer = OptimizerConfig(
            kind="adamw" if method == "low-rank" else "muon",
            learning_rate=self.learning_rate,
            weight_decay=0.0,
            warmup_steps=_WARMUP_STEPS,
            decay_share=0.0,
        )
        self.length = min(LENGTH, max(int(self.pieces.train.longest), 16))
        self._examples = Documents(
            self.pieces.train, self.tokenizer, self.length, ROWS, self.options.seed
        )
        task = SimpleNamespace(tokens_per_step=ROWS * self.length, chunk=None, truncated=False)
        task.tokenizer = self.tokenizer
        trainer = TrainerConfig(token_budget=2**62, seed=self.options.seed, ema_decay=_AVERAGED)
        self._module = MusicModule(self.decoder, task, optimizer, trainer)
        accelerator = "gpu" if self.arithmetic.device == "cuda" else "cpu"
        precision = self.arithmetic.precision
        self._module.begin(Fabric(accelerator=accelerator, devices=1, precision=precision))

    @property
    def step(self) -> int:
        """Number of steps so far."""
        return self._module.step

    def run(
        self, clock: _Clock, evaluate: Callable[[], float], before: Nats, seconds: float
    ) -> bool:
        """Take steps until the time is up or results get no better; whether Ctrl-C ended it.

        `evaluate` takes about `seconds` and returns nats per note of the held-back pieces.
        """
        self._least = before.decoder
        self._keep()
        self.decoder.train()
        with tqdm(
            total=max(round(clock.left()), 1),
            desc=f"{self._least:.3f} nats per note",
            bar_format="{desc} |{bar}| {n:.0f}/{total:.0f} s",
            mininterval=1,
        ) as bar:
            try:
                self._take_steps(clock, evaluate, seconds, bar)
            except KeyboardInterrupt:
                if not self.best_step:
                    raise
                return True
        return False

    def best(self) -> Decoder:
        """Return the decoder with the best weights, as an ordinary one."""
        self.decoder.load_state_dict(self._best)
        merge_corrections(self.decoder)
        return self.decoder.eval()

    def _take_steps(
        self, clock: _Clock, evaluate: Callable[[], float], seconds: float, bar: tqdm[NoReturn]
    ) -> None:
        total = clock.left()
        every = max(total / _EVALUATIONS, seconds / _MOST_EVALUATING)
        due, slowest, failures = total - every, 0.0, 0
        while failures < _PATIENCE:
            began = clock.now()
            ends = clock.left() < seconds + slowest
            if self.step and (ends or clock.left() < due):
                due = clock.left() - every
                failures = 0 if self._is_best(evaluate) else failures + 1
                bar.set_description_str(f"{self._least:.3f} nats per note", refresh=False)
            if ends:
                break
            batch = torch.from_numpy(self._examples[self.step]).to(self.arithmetic.device)
            self._module.train_step(batch)
            slowest = max(slowest, clock.now() - began)
            bar.update(min(total - clock.left(), bar.total) - bar.n)

    def _keep(self) -> None:
        self._best = {name: value.clone() for name, value in self.decoder.state_dict().items()}

    def _is_best(self, evaluate: Callable[[], float]) -> bool:
        """Return whether the averaged weights are the best so far; keep them if so."""
        self._module.average.swap()
        self.decoder.eval()
        try:
            loss = evaluate()
            if not loss < self._least:
                return False
            self._least, self.best_step = loss, self.step
            self._keep()
            return True
        finally:
            self.decoder.train()
            self._module.average.swap()
