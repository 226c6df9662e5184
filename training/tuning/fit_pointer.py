"""Fits a model's pointer to a held-out split; the weights of the model do not change."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from tqdm import tqdm

from relpe.models.pointer.config import LOG_ODDS, BalanceConfig, GateConfig, PointerConfig
from tokenization.remi.vocabulary import BAR, MAX_DISTANCE, Families
from tokenization.tokenizer import Vocabulary
from training.data.corpus import read_facts
from training.errors import TrainingError
from training.evaluation.likelihood import (
    Nats,
    pointer_nats,
    predicted,
    streaming_nats,
    token_bar,
)
from training.evaluation.metrics.by_family import nats_by_family
from training.evaluation.subject import MeasuredPieces, Subject, load_split, load_subject
from training.experiment import is_run
from training.learning.gates import examples, fit_gates
from training.release import release_pointer
from training.runs.device import choose_device
from training.runs.pointer import (
    NAME,
    FamilyGain,
    FittedPointer,
    Gain,
    PointerFit,
    write_pointer,
)
from training.runs.record import current_command, current_commit
from training.tuning.options import FitPointerOptions

logger = logging.getLogger(__name__)

BALANCE_NAMES = (*LOG_ODDS, "notes", "plan", "run")
"""Names of `--balance`."""
NOTE_FAMILIES = {
    *("Position", "Program", "Part", "Pitch", "Drum", "Velocity", "Duration", "DrumVelocity")
}
"""Families of the tokens of notes; all others are the plan, bar lines, metre and tempo."""
FEW_PIECES = 20
"""With fewer pieces, there is a warning that fit and gain are not reliable."""


def fit_pointer(options: FitPointerOptions) -> tuple[Path, FittedPointer]:
    """Fit the gates of a model's pointer and store it; return the folder and the pointer.

    The pointer of a run is stored in its `pointer.json`, from which `load_decoder` reads it; that
    of a released model in its `model.json`. Both have a record of the fit. The result depends only
    on the weights, the data and the machine's floating-point arithmetic.

    Raises:
        TrainingError: the data and the model do not match, or the pointer cannot be stored.
    """
    if options.output is not None and is_run(Path(options.model)):
        raise TrainingError(
            f"--output is for released models, but {options.model} is a run, whose pointer is "
            f"stored in its {NAME}; leave out --output, then write a model with relpe-train export"
        )
    if options.threads is not None:
        torch.set_num_threads(options.threads)
    device = choose_device(options.device, "--device")
    facts = read_facts(options.data)
    subject = load_subject(options.model, options.data, options.weights)
    fitted_on, tested_on = (
        _split(options, subject, split, option)
        for split, option in ((options.split, "--split"), (options.test_split, "--test-split"))
    )
    if options.output is not None:
        _check_output(options.output)
    _warn_of_few(fitted_on, tested_on)
    subject.decoder.to(device)
    pointer = music_pointer(subject.tokenizer.vocabulary, subject.decoder.config.pointer)
    vocabulary = subject.tokenizer.vocabulary
    balance = changed_balance(pointer.balance, options.balance, vocabulary)
    balance = changed_temperature(balance, options.temperature, vocabulary)
    pointer = replace(pointer, balance=balance)
    nats = _nats(subject, fitted_on, options)
    with token_bar(f"{options.split}, pointer", fitted_on.pieces.num_tokens) as bar:
        given = examples(pointer, fitted_on.pieces.ids, nats, bar.update)
    with tqdm(desc="fit", unit=" evaluations", mininterval=2) as bar:
        fit = fit_gates(given, pointer.gates, bar.update)
    pointer = replace(pointer, gates=fit.gates)
    fitted = FittedPointer(
        pointer=pointer,
        fit=PointerFit(
            weights=subject.origin.digest,
            data=facts["hash"],
            source=facts.get("source"),
            fitted=Gain(
                split=options.split,
                pieces=len(fitted_on.pieces.ids),
                tokens=len(given.nats),
                notes=sum(fitted_on.pieces.notes),
                decoder=given.nats.mean().item(),
                mixture=fit.nats_per_token,
            ),
            test=_gain(subject, pointer, tested_on, options),
            command=current_command(),
            commit=current_commit(),
            torch=torch.__version__,
        ),
    )
    if fitted.fit.test.mixture > fitted.fit.test.decoder:
        logger.warning(
            "the pointer lowers the likelihood of the split %r; fit it to more pieces, or "
            "leave it out",
            options.test_split,
        )
    if is_run(subject.place):
        write_pointer(fitted, subject.place)
        return subject.place, fitted
    output = options.output or subject.place
    release_pointer(subject.place, output, fitted, subject.origin)
    return output, fitted


def music_pointer(vocabulary: Vocabulary, before: PointerConfig | None = None) -> PointerConfig:
    """Return a pointer for music, whose units are bars.

    It ignores differences of velocity and duration. A Return names an earlier bar. A match ignores
    what Returns name, so that each bar begins with a match. The gates are not fitted; the balance
    is that of `before`.
    """
    families = Families(vocabulary)
    first = tuple(families.first_ids.values())
    gates = GateConfig(family=(0.0,) * len(first))
    balance = BalanceConfig() if before is None else before.balance
    ignored = (
        (families.velocity, families.duration),
        (families.duration, families.return_),
        (families.return_, families.chord),
    )
    names = families.return_ + 1, families.return_ + 1 + MAX_DISTANCE
    return PointerConfig(
        unit=BAR, ignored=ignored, names=names, families=first, gates=gates, balance=balance
    )


def changed_balance(
    balance: BalanceConfig, changes: Sequence[str], vocabulary: Vocabulary
) -> BalanceConfig:
    """Return `balance` with some fields changed, each given as NAME=LOG_ODDS.

    NAME is a field, or `notes` or `plan`, `BalanceConfig.proposed` for the families of notes or for
    all others; `run` is that field for the families of notes.

    Raises:
        TrainingError: a name is unknown, or a value is not a log-odds.
    """
    families = list(Families(vocabulary).first_ids)
    is_note = [family in NOTE_FAMILIES for family in families]
    for change, name, log_odds in _parsed(
        "--balance", changes, BALANCE_NAMES, "NAME=LOG_ODDS", 0.5
    ):
        field, values = name, log_odds
        if name not in LOG_ODDS:
            field = "run" if name == "run" else "proposed"
            before = getattr(balance, field) or [0.0] * len(families)
            changed = [note == (name != "plan") for note in is_note]
            pairs = zip(before, changed, strict=True)
            values = tuple(log_odds if change else old for old, change in pairs)
        balance = _replaced(balance, f"--balance {change}", **{field: values})
    return balance


def changed_temperature(
    balance: BalanceConfig, changes: Sequence[str], vocabulary: Vocabulary
) -> BalanceConfig:
    """Return `balance` with some factors of the temperature changed, each given as FAMILY=FACTOR.

    Raises:
        TrainingError: a family is unknown, or a factor is not a number in the range.
    """
    names = list(Families(vocabulary).first_ids)
    factors = dict(zip(names, balance.temperature or [1.0] * len(names), strict=True))
    for change, name, factor in _parsed("--temperature", changes, names, "FAMILY=FACTOR", 0.9):
        factors[name] = factor
        temperature = tuple(factors.values())
        balance = _replaced(balance, f"--temperature {change}", temperature=temperature)
    return balance


def _parsed(
    option: str, changes: Sequence[str], names: Sequence[str], form: str, example: float
) -> Iterator[tuple[str, str, float]]:
    """Yield each change with its name and number. Raises TrainingError."""
    for change in changes:
        name, _, value = change.partition("=")
        expected = f"{option} {change}: expected {form} with"
        if name not in names:
            raise TrainingError(f"{expected} {form.partition('=')[0]} one of {', '.join(names)}")
        try:
            yield change, name, float(value)
        except ValueError as error:
            raise TrainingError(f"{expected} a number, such as {name}={example}") from error


def _replaced(balance: BalanceConfig, where: str, **values: Any) -> BalanceConfig:  # noqa: ANN401
    try:
        return replace(balance, **values)
    except ValueError as error:
        raise TrainingError(f"{where}: {error}") from error


def _check_output(output: Path) -> None:
    """Warn if a model will be replaced.

    Raises:
        TrainingError: the folder has other files.
    """
    if (output / "model.json").is_file():
        logger.warning("%s: the model in this folder will be replaced", output)
    elif output.is_dir() and any(output.iterdir()):
        raise TrainingError(
            f"{output}: found other files, expected a new or an empty folder, or one with a model; "
            "choose another folder with --output"
        )


def _warn_of_few(*splits: _Split) -> None:
    few = [
        f"{name!r} only {len(pieces.ids)} piece{'s' * (len(pieces.ids) != 1)}"
        for name, pieces in splits
        if len(pieces.ids) < FEW_PIECES
    ]
    if few:
        logger.warning(
            "the split %s: expected at least %d of each split for reliable gates and gains",
            ", and ".join(few).replace(" only", " has only", 1),
            FEW_PIECES,
        )


class _Split(NamedTuple):
    """Pieces of a split."""

    name: str
    pieces: MeasuredPieces
    """Tokens that are hidden are not counted."""


def _split(options: FitPointerOptions, subject: Subject, name: str, option: str) -> _Split:
    corpus = load_split(options.data, name, option)
    return _Split(name, MeasuredPieces.of(corpus, subject.tokenizer, options.pieces))


def _nats(subject: Subject, split: _Split, options: FitPointerOptions) -> Nats:
    """Return the nats of each token of each piece except the first; NaN if it is not predicted."""
    with token_bar(f"{split.name}, decoder", split.pieces.num_tokens) as bar:
        nats = streaming_nats(
            subject.decoder,
            split.pieces.ids,
            options.chunk,
            options.batch_size,
            advance=bar.update,
            families=subject.tokenizer.families,
        )
    return predicted(nats, split.pieces.hidden)


def _gain(
    subject: Subject, pointer: PointerConfig, split: _Split, options: FitPointerOptions
) -> Gain:
    """Measure the gain on a split."""
    nats = _nats(subject, split, options)
    ids, vocabulary = split.pieces.ids, subject.tokenizer.vocabulary
    with token_bar(f"{split.name}, pointer", split.pieces.num_tokens) as bar:
        mixed = pointer_nats(pointer, ids, nats, bar.update)
    without, with_pointer = (nats_by_family(vocabulary, ids, of) for of in (nats, mixed))
    return Gain(
        split=split.name,
        pieces=len(ids),
        tokens=int(np.count_nonzero(~np.isnan(np.concatenate(nats)))),
        notes=sum(split.pieces.notes),
        decoder=float(np.nanmean(np.concatenate(nats))),
        mixture=float(np.nanmean(np.concatenate(mixed))),
        families=tuple(
            FamilyGain(
                family=name,
                tokens=family.tokens,
                decoder=family.nats_per_token,
                mixture=with_pointer[name].nats_per_token,
            )
            for name, family in without.items()
        ),
    )
