"""The command relpe-train; torch is imported only after the options are parsed."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

from relpe.command_line import Parser
from training.config import (
    MOST_THREADS,
    OptimizerConfig,
    TrainerConfig,
    add_options,
    describe,
    given_options,
    read_yaml,
)
from training.errors import TrainingError, check_range
from training.evaluation.options import EvaluateOptions, GenerationOptions, RunOptions
from training.tuning.options import FitPointerOptions, TuneOptions

_OWN = ("app", "relpe", "tokenization", "training")
_USERS = {"TrainingError", "MidiError", "TokenizerError", "CheckpointError"}
"""Errors that a user's input causes, by name because their modules import torch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code.

    It is 0 on success, 1 if some runs of a sweep failed, 2 for unusable input, and 128 plus the
    signal's number if a signal ended the run.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # file names need not be UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    code = 2
    try:
        return options.call(options)
    except ValueError as error:
        if not any(kind.__name__ in _USERS for kind in type(error).__mro__):
            raise
        said = str(error)
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        said = (
            f"the package {error.name} is not installed; run pip install -c constraints.txt -e "
            "'.[train]' in the folder of this project"
        )
    except KeyboardInterrupt:  # while files are read or written; training handles signals itself
        said, code = "stopped", 130
    sys.stderr.write(f"relpe-train: {said}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="relpe-train", description="Train and measure models.", allow_abbrev=False)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = partial(commands.add_parser, allow_abbrev=False)
    _add_fetch(add("fetch", help="download a public data set"))
    _add_prepare(add("prepare", help="make a corpus from folders or zips of MIDI files"))
    settings = [*describe(TrainerConfig, "trainer"), *describe(OptimizerConfig, "optimizer")]
    _add_fit(
        add(
            "fit",
            help="train a model or resume a run",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="settings for --set, besides task.*:\n" + "\n".join(settings),
        )
    )
    evaluate = add("evaluate", help="measure a model")
    add_options(evaluate, EvaluateOptions, data={"required": False})
    music = "continuations of the beginnings of pieces, compared with the real music"
    add_options(
        evaluate.add_argument_group("music", music),
        GenerationOptions,
        continuations={"default": 0},
        prompt_bars={"nargs": "+"},
        bars={"nargs": "+"},
    )
    evaluate.set_defaults(call=_evaluate)
    _add_sweep(add("sweep", help="train, measure and compare a grid of settings over seeds"))
    pointer = add("fit-pointer", help="fit the pointer of a model to held-out pieces, in minutes")
    add_options(pointer, FitPointerOptions)
    pointer.set_defaults(call=_fit_pointer)
    tune = add("tune", help="tune a model to your own pieces, in minutes")
    add_options(tune, TuneOptions)
    tune.set_defaults(call=_tune)
    report = add("report", help="compare the results of several models")
    models = "folder of a run, folder or name of a released model, or folder written by evaluate"
    report.add_argument("models", nargs="+", metavar="MODEL", help=models)
    report.add_argument("--output", type=Path, required=True, help="output folder")
    report.set_defaults(call=_report)
    export = add("export", help="write the weights of a run as a model folder or ONNX file")
    export.add_argument("--run", type=Path, required=True, help="folder of the run")
    export.add_argument(
        "--output", type=Path, required=True, help="output folder; for a classifier, NAME.onnx"
    )
    export.add_argument(
        "--weights",
        choices=("best", "last"),
        default="best",
        help="checkpoint of the run (default: best)",
    )
    export.add_argument(
        "--licence",
        default="unknown",
        help="licence of the data (default: those of the corpora of a mixture, otherwise unknown)",
    )
    export.add_argument(
        "--precision",
        choices=("bfloat16", "int8"),
        default="bfloat16",
        help="precision of the weights; int8, in which compiled code generates anyway, halves the "
        "size (default: bfloat16)",
    )
    export.set_defaults(call=_export)
    return parser


def _add_fetch(command: argparse.ArgumentParser) -> None:
    from training.data.fetch.public import SETS

    option = command.add_argument
    option(
        "name",
        metavar="NAME",
        help=f"{', '.join(SETS)}, or ucr/NAME for a set of the UCR and UEA archives of time "
        "series, such as ucr/GunPoint",
    )
    option("--data-dir", type=Path, required=True, metavar="DIR", help="folder for the data")
    command.set_defaults(call=_fetch)


def _fetch(options: argparse.Namespace) -> int:
    from training.data.fetch.public import public_set

    wanted = public_set(options.name)

    from training.data.fetch.download import fetch

    sys.stdout.write("\n".join([*fetch(options.name, wanted, options.data_dir), ""]))
    return 0


def _add_prepare(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option(
        "--corpus",
        type=Path,
        action="append",
        help="folder or zip of MIDI files; may be repeated",
    )
    option(
        "--mixture",
        metavar="NAME",
        help="several corpora with weights, styles and licences, instead of --corpus: piano, band, "
        "or a YAML file (default: none)",
    )
    option(
        "--from",
        dest="folder",
        type=Path,
        help="folder of the corpora of --mixture (default: the current folder)",
    )
    option("--output", type=Path, required=True, help="output folder")
    option(
        "--include",
        action="append",
        help="shell pattern of file names to include; give it once, or once for each --corpus "
        "(default: all files)",
    )
    option(
        "--splits",
        type=Path,
        help="JSON file: split -> list of file names without suffix (default: splits.json of the "
        "corpus; else folders named after splits; else by a hash of the names)",
    )
    option(
        "--tokenizer",
        help="piano-2 for one keyboard, multitrack-2 for all instruments and drums (default: "
        "piano-2; with --mixture: the one that it names)",
    )
    option("--workers", type=int, help="number of processes (default: one per core)")
    option(
        "--strict",
        action="store_true",
        help="refuse damaged files; by default, all of them that can be understood is read",
    )
    command.set_defaults(call=_prepare)


def _prepare(options: argparse.Namespace) -> int:
    from training.data.corpus_writer import LISTS

    data = _prepared(options)
    for warning in data["warnings"]:
        sys.stderr.write(f"warning: {warning}\n")
    for what in LISTS:
        for name, reason in data[what].items():
            sys.stderr.write(f"{what}: {reason if name in reason else f'{name}: {reason}'}\n")
    if data["unassigned"]:
        sys.stderr.write(f"left out because in no split: {', '.join(data['unassigned'])}\n")
    for what, count in data["listed"].items():
        if count > len(data[what]):
            sys.stderr.write(f"{what}: {count:,} files, see {options.output / what}.txt\n")
    for split, facts in data["splits"].items():
        counts = {key: value for key, value in facts.items() if key != "losses"}
        line = ", ".join(f"{value:,} {key}" for key, value in counts.items())
        sys.stdout.write(f"{split}: {line}\n")
    return 0


def _prepared(options: argparse.Namespace) -> dict[str, Any]:
    """Prepare the corpora or the mixture; return the contents of data.json."""
    from tokenization.presets import PRESETS
    from training.data.mixtures.mixture import Mixture
    from training.data.prepare import prepare, prepare_mixture

    if options.tokenizer not in (None, *PRESETS):
        raise TrainingError(f"--tokenizer {options.tokenizer}: expected {' or '.join(PRESETS)}")
    if (options.mixture is None) == (options.corpus is None):
        raise TrainingError("give either --corpus or --mixture")
    alone = {"workers": options.workers, "strict": options.strict}
    if options.mixture is None:
        if options.folder is not None:
            raise TrainingError("--from is only for --mixture; give the path in --corpus")
        tokenizer = PRESETS[options.tokenizer or "piano-2"].build()
        corpora, output = options.corpus, options.output
        given = {"include": options.include, "splits": options.splits}
        return prepare(corpora, output, tokenizer, **given, **alone)
    if options.include is not None or options.splits is not None:
        raise TrainingError(
            "--include and --splits are only for --corpus; write them into a mixture of your own"
        )
    folder = options.folder or Path()
    mixture = Mixture.load(options.mixture, folder)
    sources = [corpus.source for corpus in mixture.corpora.values()]
    missing = [source for source in sources if not (folder / source).exists()]
    if missing:
        raise TrainingError(
            f"--mixture {options.mixture}: found no {' and no '.join(missing)} in the folder "
            f"{folder.resolve()}; give the folder that has the corpora with --from"
        )
    tokenizer = options.tokenizer or mixture.tokenizer
    if tokenizer not in PRESETS:
        raise TrainingError(
            f"--mixture {options.mixture}: tokenizer is {tokenizer}, expected "
            f"{' or '.join(PRESETS)}"
        )
    return prepare_mixture(mixture, options.output, PRESETS[tokenizer].build(), **alone)


def _add_fit(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--config", type=Path, required=True, help="YAML file of the experiment")
    option("--run", type=Path, help="folder of the run (default: runs/<name of the config>)")
    option("--data", type=Path, help="prepared corpus (default: that of the config)")
    option(
        "--devices",
        type=int,
        help="processes per node; same as --set trainer.devices (default: see below)",
    )
    option(
        "--nodes",
        type=int,
        help="number of machines; same as --set trainer.nodes (default: see below)",
    )
    option(
        "--set",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="change a setting of the config, see below; may be repeated (default: none)",
    )
    option(
        "--init-from",
        metavar="MODEL",
        help="folder of a run, or folder or name of a released model, with the initial weights "
        "(default: random weights)",
    )
    option("--resume", action="store_true", help="fail if there is no run to resume")
    option("--fresh", action="store_true", help="delete an existing run and start again")
    command.set_defaults(call=_fit)


def _fit(options: argparse.Namespace) -> int:
    given = {
        "task.data": options.data,
        "trainer.devices": options.devices,
        "trainer.nodes": options.nodes,
    }
    settings = [f"{key}={value}" for key, value in given.items() if value is not None]
    mapping = read_yaml(options.config, [*options.set, *settings])
    folder = options.run or Path("runs") / options.config.stem
    if options.resume and not (folder / "last.ckpt").exists():
        raise TrainingError(
            f"{folder}: found no last.ckpt to resume from; start a run without --resume"
        )
    if options.resume and options.fresh:
        raise TrainingError("--resume and --fresh cannot be combined; leave one out")
    # keep each process from warning that DDP searches for unused parameters, which is intended
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # OpenMP reads this only once, when torch is imported
    section = mapping.get("trainer")
    policy = section.get("omp_wait_policy") if isinstance(section, dict) else None
    if policy:
        os.environ.setdefault("OMP_WAIT_POLICY", str(policy))

    from training.experiment import build_experiment
    from training.runs.fit import fit

    result = fit(
        build_experiment(mapping), folder, fresh=options.fresh, init_from=options.init_from
    )
    if result.rank:
        return 0
    line = f"{folder}: step {result.step}, {result.tokens:,} tokens, {result.minutes:.1f} minutes"
    if result.validation is not None:
        line += f", validation {result.validation:.4f} nats per "
        line += "token" if result.accuracy is None else f"example, {result.accuracy:.1%} right"
    sys.stdout.write(f"{line}\n")
    # the convention of shells, so that loops and && stop too
    return 0 if result.stopped_by is None else 128 + result.stopped_by


def _add_sweep(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("config", type=Path, metavar="CONFIG", help="YAML file of the sweep")
    option("--runs", type=Path, required=True, help="folder for the runs and results")
    option("--processes", type=int, default=1, help="runs at a time (default: 1)")
    several: dict[str, Any] = {"nargs": "+", "default": [], "metavar": "NAME"}
    option("--configs", **several, help="only these configs, as shell patterns (default: all)")
    option("--rows", **several, help="only these rows, as shell patterns (default: all)")
    option(
        "--seeds",
        type=int,
        nargs="+",
        default=[],
        metavar="N",
        help="only these seeds (default: all)",
    )
    option(
        "--known",
        type=Path,
        metavar="FILE",
        help="cells.jsonl of an earlier sweep, whose runs are not made again",
    )
    option("--list", action="store_true", help="print the runs, and which are done; train nothing")
    option("--table", action="store_true", help="write and print the results; train nothing")
    command.set_defaults(call=_sweep)


def _sweep(options: argparse.Namespace) -> int:
    from training.evaluation.sweep.config import read_sweep
    from training.evaluation.sweep.processes import is_done, run_cells

    check_range("--processes", options.processes, 1, MOST_THREADS)
    sweep = read_sweep(options.config, options.runs)
    cells = sweep.select(options.configs, options.rows, options.seeds)
    if options.known is not None:
        from training.evaluation.sweep.kept import take_results

        taken = take_results(options.known, sweep.cells)
        sys.stderr.write(f"{options.known}: has results of {taken} more runs of the sweep\n")
    if options.list:
        for cell in cells:
            sys.stdout.write(f"{cell.folder}: {cell.name}{', done' * is_done(cell)}\n")
        return 0
    if options.table and not any(map(is_done, cells)):
        raise TrainingError(
            f"{options.runs}: found no finished runs of this sweep; leave out --table to make them"
        )
    failures, stopped_by = {}, None
    if not options.table:
        failures, stopped_by = run_cells(cells, sweep.runs, options.processes)
        cells = sweep.cells  # those of earlier commands too

    from training.evaluation.sweep.results import write_tables

    report = write_tables(sweep, cells, failures)
    sys.stdout.write(report.read_text("utf-8") if options.table else f"{report}\n")
    if stopped_by is not None:
        return 128 + stopped_by
    return 1 if failures else 0


def _fit_pointer(options: argparse.Namespace) -> int:
    from training.evaluation.report import gain_table
    from training.tuning.fit_pointer import fit_pointer

    folder, fitted = fit_pointer(FitPointerOptions(**given_options(options, FitPointerOptions)))
    sys.stdout.write("\n".join([*gain_table(fitted.fit.test), "", str(folder), ""]))
    return 0


def _tune(options: argparse.Namespace) -> int:
    from training.tuning.tune import tune

    tuned, stopped = tune(TuneOptions(**given_options(options, TuneOptions)))
    sys.stdout.write(f"{options.output}: {tuned.line()}\n")
    if stopped:
        sys.stderr.write("relpe-train: stopped; the best weights so far were written\n")
    return 130 if stopped else 0


def _evaluate(options: argparse.Namespace) -> int:
    from training.experiment import is_run, read_experiment
    from training.tasks.task import Task

    folder = Path(options.model)
    task = read_experiment(folder).task if is_run(folder) else None
    if isinstance(task, Task):
        return _evaluate_run(options, task)
    if options.data is None:
        raise TrainingError(
            f"{options.model}: a model of music is measured on a prepared corpus; give it with "
            "--data"
        )
    from training.evaluation.evaluate import evaluate
    from training.evaluation.report import music_tables, table

    music: list[GenerationOptions] = []
    for prompt_bars, bars in _lengths(options) if options.continuations else ():
        settings = given_options(options, GenerationOptions, prompt_bars=prompt_bars, bars=bars)
        music.append(GenerationOptions(**settings))
    if options.samples_output is not None and len(music) > 1:
        folder = options.samples_output
        music = [replace(each, samples_output=folder / each.key) for each in music]
    results = evaluate(
        EvaluateOptions(**given_options(options, EvaluateOptions, music=tuple(music)))
    )
    entries = {options.model: results}
    sys.stdout.write("\n".join([*table(entries), *music_tables(entries), ""]))
    return 0


def _evaluate_run(options: argparse.Namespace, task: Any) -> int:  # noqa: ANN401 - imports torch
    """Evaluate a run of another task than music; refuse options that only music has."""
    from training.evaluation.runs import evaluate_run

    names = {"call", *(field.name for field in fields(RunOptions))}
    if not task.has_splits:
        names -= {"data", "split"}
    others = [
        f"--{name.replace('_', '-')}"
        for name, value in vars(options).items()
        if name not in names and value not in (None, 0)
    ]
    if others:
        raise TrainingError(
            f"{', '.join(others)}: only for a model of music, and {options.model} is a run of the "
            f"task {task.kind}; leave {'them' if len(others) > 1 else 'it'} out"
        )
    lines = evaluate_run(RunOptions(**given_options(options, RunOptions)))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def _lengths(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Bars of the prompt and new bars of each kind of music to measure."""
    prompts = options.prompt_bars or [GenerationOptions.prompt_bars]
    new = options.bars or [GenerationOptions.bars]
    new = new * len(prompts) if len(new) == 1 else new
    if len(new) != len(prompts):
        raise TrainingError(
            f"--bars has {len(new)} numbers and --prompt-bars {len(prompts)}; give one number of "
            "--bars for all prompts, or one for each number of --prompt-bars"
        )
    return [*zip(prompts, new, strict=True)]


def _report(options: argparse.Namespace) -> int:
    from training.evaluation.report import report

    sys.stdout.write(f"{report(options.models, options.output)}\n")
    return 0


def _export(options: argparse.Namespace) -> int:
    if options.output.suffix == ".onnx":
        from training.runs.onnx_export import export_onnx

        sys.stdout.write(f"{export_onnx(options.run, options.output, options.weights)}\n")
        return 0

    from training.release import export

    chosen = options.weights, options.licence, options.precision
    sys.stdout.write(f"{export(options.run, options.output, *chosen)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
