"""Export of the weights of a run as a model folder, such as `checkpoints/<name>`."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from safetensors import SafetensorError

from relpe.files import atomic_write, write_text
from relpe.models.checkpoint import StoredPrecision, load_model, save_model
from relpe.models.config import to_plain
from relpe.models.decoder import Decoder
from tokenization.presets import load_tokenizer
from training.data.card import credit
from training.errors import TrainingError
from training.evaluation.goals import goal_lines
from training.evaluation.report import (
    corpus_table,
    figure,
    memory_rows,
    music_tables,
    nats_line,
)
from training.evaluation.results import music_by_key, reading_label, readings
from training.experiment import is_run, read_experiment
from training.files import markdown, read_json
from training.runs.lineage import history, total_tokens, write_history
from training.runs.pointer import FittedPointer, PointerFit, pointer_digest, read_pointer
from training.runs.record import PastRun, PastSegment, UsedCorpus, read_run
from training.runs.weights import Origin, digest, load_decoder
from training.tasks.music import MusicTask

CARD_MEASURES = (
    "| continuations ",
    "| bars equal to any earlier bar",
    "| similarity to the most similar earlier bar",
    "| chord root of 4",
    "| chord root of 8",
    "| those with a harmonic period",
)
"""How the rows of a card's tables of music begin; results.json and evaluation.md have all."""


def export(
    run: Path,
    output: Path,
    weights: str = "best",
    licence: str = "unknown",
    precision: StoredPrecision = "bfloat16",
) -> Path:
    """Write weights, model.json, tokenizer.json, training.json, metrics.csv and README.md.

    Returns the folder. metrics.csv has the training curves of the run.

    The README includes the results of `relpe-train evaluate` in the run's folder, if they were
    measured with exactly these weights. `licence` is the licence of the data; if unknown, it lists
    those of the corpora. Attributions of the corpora are in training.json and in the section "Data"
    of the README.

    Raises:
        TrainingError: `run` is not a run or has no such checkpoint, or the model cannot be written.
    """
    if not is_run(run):
        raise TrainingError(f"{run}: found no config.yaml, expected the folder of a run")
    if not isinstance(read_experiment(run).task, MusicTask):
        raise TrainingError(
            f"{run}: a run of the task {read_experiment(run).task.kind}, expected one of music; "
            "only music is released (a classifier is written by --output NAME.onnx)"
        )
    decoder, origin = load_decoder(run, weights)
    description = read_run(run)
    if load_tokenizer(run).vocabulary.hash != description["data"]["vocabulary"]:
        raise TrainingError(
            f"{run}: tokenizer.json does not match the run's data; restore the original file"
        )
    results = run / "evaluation" / "results.json"
    measured = read_json(results, (), "evaluate again") if results.is_file() else {}
    same = measured.get("weights") == origin._asdict()
    same = same and measured.get("pointer") == pointer_digest(decoder.config.pointer)
    if same and "streaming" in measured:  # more than music was measured
        results_section = _results(measured)
    else:
        other = "weights, or to another pointer"
        why = f" The results in the run's folder belong to other {other}." if measured else ""
        again = f"run `relpe-train evaluate --weights {weights}`, then export again."
        results_section = [f"Not measured yet: {again}{why}"]
    fitted = read_pointer(run)
    fit = fitted.fit if fitted is not None and fitted.fit.weights == origin.digest else None
    pointer = [] if fit is None else [*_pointer(fit), ""]
    with _whole(output) as folder:
        save_model(decoder, folder, precision)
        stored = digest(load_model(folder))  # int8 changes the weights
        runs = history(run, origin._replace(digest=stored))
        write_history(runs, folder, None if fit is None else replace(fit, weights=stored))
        with atomic_write(folder / "tokenizer.json") as path:
            shutil.copyfile(run / "tokenizer.json", path)
        if (run / "metrics.csv").is_file():
            with atomic_write(folder / "metrics.csv") as path:
                shutil.copyfile(run / "metrics.csv", path)
        with atomic_write(folder / "README.md") as path:
            head = _head(output.resolve().name, description, origin, runs, licence)
            if precision == "int8":
                head += [_IN_INT8, ""]
            lines = [*head, *_data(runs), *pointer, *results_section, ""]
            path.write_text("\n".join(lines), encoding="utf-8")
    return output


def release_pointer(source: Path, output: Path, fitted: FittedPointer, origin: Origin) -> None:
    """Write a released model with a pointer: to its own folder, `source`, or to another one.

    model.json has the pointer, training.json and README.md have the record of its fit. `origin` is
    that of the model's weights.

    Raises:
        TrainingError: a file is damaged or cannot be written.
    """
    description = read_json(source / "model.json", ("decoder",), "download the model again")
    description["decoder"]["pointer"] = to_plain(fitted.pointer)
    runs = history(source, origin)
    readme = source / "README.md"
    text = readme.read_text("utf-8") if readme.is_file() else f"# {output.resolve().name}\n"
    with _whole(output) as folder:
        for path in source.iterdir():
            if path.is_file():
                shutil.copyfile(path, folder / path.name)
        write_text(folder / "model.json", json.dumps(description, indent=2) + "\n")
        write_history(runs, folder, fitted.fit)
        write_text(folder / "README.md", _described_again(text, fitted.fit))


def check_new(output: Path) -> None:
    """Raise TrainingError unless a folder for a new model is empty or does not exist."""
    if output.is_file() or (output.is_dir() and any(output.iterdir())):
        what = "a file" if output.is_file() else "a folder with files"
        raise TrainingError(
            f"--output {output}: found {what}, expected a new or an empty folder; choose another "
            "name, or remove it"
        )


def write_tuned(
    decoder: Decoder, source: Path, output: Path, runs: Sequence[PastRun], card: str
) -> None:
    """Write a model that was tuned, with the tokenizer of its `source` and a card of its own.

    Raises:
        TrainingError: the files cannot be written.
    """
    with _whole(output) as folder:
        save_model(decoder, folder)
        write_history(runs, folder)
        with atomic_write(folder / "tokenizer.json") as path:
            shutil.copyfile(source / "tokenizer.json", path)
        write_text(folder / "README.md", card)


def _described_again(readme: str, fit: PointerFit) -> str:
    """Return a README whose section about the pointer is that of a new fit."""
    head, *sections = re.split(r"^(?=## )", readme, flags=re.MULTILINE)
    kept = [section for section in sections if not section.startswith(_POINTER)]
    places = (i for i, section in enumerate(kept) if section.startswith("## Measured"))
    place = next(places, len(kept))
    lines = _pointer(fit)
    if place < len(kept):
        lines += ["", "The results below were measured before this pointer was fitted."]
    new = "\n".join([*lines, "", ""])
    return "".join([head.rstrip("\n") + "\n\n", *kept[:place], new, *kept[place:]]).rstrip() + "\n"


_POINTER = "## Pointer"


def _pointer(fit: PointerFit) -> list[str]:
    """Say in Markdown how the gates of the pointer were fitted, and what it gains."""
    on, test = fit.fitted, fit.test
    return [
        _POINTER,
        "",
        "The predictions are mixed with those of a pointer into the sequence so far. Its gates "
        f"were fitted to the {on.split} split of prepared corpus `{fit.data[:16]}` ({on.pieces} "
        f"pieces, {on.tokens:,} tokens), with the weights fixed. Whole pieces of the {test.split} "
        f"split ({test.pieces} pieces): {nats_line(test)}",
        "",
        f"- Command: `{fit.command}`",
        f"- Commit: {fit.commit or 'unknown'}",
    ]


_IN_INT8 = (
    "The weights of linear layers are stored in int8, in which compiled code generates anyway. The "
    "results below are for weights in bfloat16."
)


@contextmanager
def _whole(output: Path) -> Iterator[Path]:
    """Yield a temporary folder for a model, whose files are moved to `output` at the end.

    After an error it is removed, and `output` does not change.

    Raises:
        TrainingError: the files cannot be written, for example on a full disk.
    """
    target = output.resolve()
    partial = target.with_name(f"{target.name}.partial")
    new = [parent for parent in target.parents if not parent.exists()]
    try:
        shutil.rmtree(partial, ignore_errors=True)  # from an export that was killed
        partial.mkdir(parents=True)
        yield partial
        if not target.exists():
            partial.replace(target)
            return
        written = {path.name for path in partial.iterdir()}
        (target / "README.md").unlink(missing_ok=True)  # it must not describe other weights
        for name in sorted(written, reverse=True):  # weights first, README last
            (partial / name).replace(target / name)
        for old in target.glob("model*.safetensors"):
            if old.name not in written:
                old.unlink()
    except (OSError, SafetensorError) as error:
        why = error.strerror if isinstance(error, OSError) else None
        raise TrainingError(
            f"{output}: cannot be written ({why or error}). Existing files are unchanged; free "
            "some disk space, or choose another folder with --output"
        ) from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
        for parent in new:  # if empty
            with suppress(OSError):
                parent.rmdir()


def _head(
    name: str, run: dict[str, Any], origin: Origin, runs: tuple[PastRun, ...], licence: str
) -> list[str]:
    data = run["data"]
    train = data["splits"]["train"]
    held_out = data["splits"].get("validation", {"files": 0})["files"]
    note = "" if held_out else " (the last, since the validation split is empty)"
    include = f", files `{data['include']}`" if data["include"] else ""
    weights = f"`{origin.file}`, step {origin.step or 0:,}, {origin.tokens or 0:,} tokens"
    head = [
        f"# {name}",
        "",
        f"A decoder of {run['parameters']:,} parameters, made by `relpe-train export`.",
        "",
        f"- Data: train split of `{data['source']}`{include}: {train['files']} pieces, "
        f"{train['tokens']:,} tokens; prepared corpus `{data['hash'][:16]}`.",
        f"- Licence of the data: {_licence(licence, runs)}.",
    ]
    if len(runs) == 1:
        segments = [line for segment in runs[0].sessions for line in _segment(segment, runs[0])]
        return [*head, f"- Weights: {weights}{note}.", *segments, ""]
    head += [
        f"- Weights: {weights} of the last of {len(runs)} runs{note}.",
        f"- Tokens of all runs: {total_tokens(runs)}.",
        "",
        "## Runs, each starting from the weights of the previous one",
        "",
    ]
    for number, past in enumerate(runs, 1):
        sessions = (f"   {line}" for segment in past.sessions for line in _segment(segment, past))
        head += [f"{number}. {_described(past)}", *sessions]
    return [*head, ""]


def _corpora(runs: Sequence[PastRun]) -> list[UsedCorpus]:
    """Return the corpora of all runs, each as in the last run that used it.

    Corpora with the same name from other sources are listed as well.
    """
    corpora: dict[tuple[str, ...], UsedCorpus] = {}
    for one in (one for run in runs for one in run.corpora):
        corpora[one.name, one.licence, one.attribution, one.changes, one.address] = one
    return [*corpora.values()]


def _licence(given: str, runs: Sequence[PastRun]) -> str:
    """Return the licence of the data: the one that is given, otherwise those of the corpora."""
    names: dict[str, list[str]] = {}
    for one in _corpora(runs):
        names.setdefault(one.licence, []).append(one.name)
    if given != "unknown" or not names:
        return given
    return "; ".join(f"{licence} ({', '.join(of)})" for licence, of in names.items())


def _data(runs: Sequence[PastRun]) -> list[str]:
    """Return the corpora with their licences and attributions, as Markdown.

    The text is empty if no corpus has any.
    """
    corpora = _corpora(runs)
    if not any(one.attribution or one.licence != "unknown" for one in corpora):
        return []
    rows = (
        (one.name, f"{one.weight:.1%}", f"{one.files:,}", f"{one.tokens:,}", one.licence)
        for one in corpora
    )
    return [
        "## Data",
        "",
        *markdown([("corpus", "share of the examples", "pieces", "tokens", "licence"), *rows]),
        "",
        *(credit(to_plain(one)) for one in corpora),
        "",
    ]


def _described(run: PastRun) -> str:
    """Return the length and data of a run."""
    if run.tokens is None or run.steps is None:
        return f"`{run.name}`: no record of this run."
    data = "" if run.data is None else f"; prepared corpus `{run.data[:16]}` of `{run.source}`"
    return f"`{run.name}`: {run.steps:,} steps, {run.tokens:,} tokens{data}."


def _segment(segment: PastSegment, run: PastRun) -> list[str]:
    """Return the command, commit and machine of a segment of a run."""
    since = f" from step {segment.step:,}" if len(run.sessions) > 1 else ""
    return [
        f"- Command{since}: `{segment.command}`",
        f"- Commit{since}: {segment.commit or 'unknown'}",
        f"- Machine{since}: {segment.machine}, {run.threads} threads, {run.precision}; "
        f"torch {segment.torch}, Lightning {segment.lightning}.",
    ]


def _results(measured: dict[str, Any]) -> list[str]:
    rows = [(reading_label(key), values) for key, values in readings(measured).items()]
    for key, value in measured.items():
        if key.endswith("-gram"):
            rows.extend((f"{key}, {name}", values) for name, values in value.items())
    table = [("pieces read as", "nats per token", "nats per note")]
    table += [
        (name, figure(values, "nats_per_token", 4), figure(values, "nats_per_note", 3))
        for name, values in rows
    ]
    by_position = measured["by_position"]
    draws = measured["draws"]
    spread = f" Mean ± standard deviation over {draws} draws of noise." if draws > 1 else ""
    memory = [f"- {row.label}: {row.value}" for row in memory_rows(measured)]
    corpora = corpus_table(measured)
    return [
        f"## Measured on the {measured['split']} split",
        "",
        f"{measured['pieces']} pieces, {measured['tokens']:,} tokens, {measured['notes']:,} notes "
        f"of prepared corpus `{measured['data'][:16]}`; {measured['precision']}.{spread}",
        "",
        *markdown(table),
        *(["", "By corpus:", "", *corpora] if corpora else []),
        *(_against_place(measured) if by_position["pieces"] else []),
        *(["", *memory] if memory else []),
        *(_music(measured) if music_by_key(measured) else []),
    ]


def _music(measured: dict[str, Any]) -> list[str]:
    """Return the chief measures of generated and real music, and the goals, as Markdown."""
    tables = [
        line
        for line in music_tables({"model": measured}, "###")
        if not line.startswith("| ") or line.startswith(("|  |", "| ---", *CARD_MEASURES))
    ]
    lines = goal_lines(measured)
    missed = [line for line in lines if line.startswith("- MISSED")]
    held = sum(line.startswith("- holds") for line in lines)
    goals = ["", f"{held} of {held + len(missed)} goals hold.", "", *missed] if lines else []
    return ["", "## Generated music compared with real music", *tables, *goals]


def _against_place(measured: dict[str, Any]) -> list[str]:
    """Return the loss by position in long pieces, as Markdown."""
    by_position = measured["by_position"]
    rows = {"nats": by_position["bins"]}
    if "by_position_pointer" in measured:
        rows["with pointer"] = measured["by_position_pointer"]["bins"]
    nats = ([name, *(f"{b['nats_per_token']:.3f}" for b in bins)] for name, bins in rows.items())
    return [
        "",
        f"Loss by position, over the {by_position['pieces']} pieces with at least "
        f"{by_position['reach']:,} tokens:",
        "",
        *markdown([["tokens", *(f"{b['last']:,}" for b in by_position["bins"])], *nats]),
    ]
