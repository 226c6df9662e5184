"""The command relpe-train; torch is imported only after the options are parsed."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from importlib.metadata import version
from pathlib import Path
from typing import Any, Literal

from relpe.command_line import Parser, add_options, given_options, help_of, install, quiet_in_pipes
from training.config import (
    MOST_THREADS,
    OptimizerConfig,
    TrainerConfig,
    check_names,
    describe,
    read_yaml,
)
from training.data.fetch.public import SETS, public_set
from training.errors import TrainingError, check_range
from training.evaluation.options import EvaluateOptions, GenerationOptions
from training.tuning.options import FitBalanceOptions, FitPointerOptions, TuneOptions

_OWN_PACKAGES = ("app", "relpe", "tokenization", "training")
_USER_ERRORS = {"TrainingError", "MidiError", "TokenizerError", "CheckpointError"}
"""Errors that a user's input causes, by name because their modules import torch."""
_REPEATED = {"action": "append", "nargs": None}
_OPTIONS_OF_ALL_TASKS = frozenset(
    ("command", "model", "data", "split", "weights", "batch_size", "device", "threads", "output")
)
"""Options of evaluate for runs of any task; all others are for music only."""


@quiet_in_pipes()
def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command and return the exit code.

    It is 0 on success, 1 if some runs of a sweep failed, 2 for unusable input, and 128 plus the
    signal's number if a signal ended the run, or if nobody reads its output any more.
    """
    options = _parser().parse_args(arguments)
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    code = 2
    try:
        if options.command is None:
            return _evaluate(options)
        return options.command(**given_options(options, options.command)).run()
    except ValueError as error:
        if not any(kind.__name__ in _USER_ERRORS for kind in type(error).__mro__):
            raise
        said = str(error)
    except BrokenPipeError:
        raise
    except OSError as error:
        said = f"{error.filename}: {error.strerror}" if error.filename else str(error)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN_PACKAGES:
            raise
        said = f"the package {error.name} is not installed; {install('train')}"
    except KeyboardInterrupt:  # while files are read or written; training handles signals itself
        said, code = "stopped", 130
    sys.stderr.write(f"relpe-train: {said}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = Parser(prog="relpe-train", description="Train and measure models.", allow_abbrev=False)
    shown = f"relpe-train {version('relpe')}"
    parser.add_argument("--version", action="version", version=shown)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    for name, kind in COMMANDS.items():
        command = commands.add_parser(
            name,
            help="measure a model" if kind is None else help_of(kind.__doc__ or ""),
            allow_abbrev=False,
        )
        command.set_defaults(command=kind)
        if kind is not None:
            add_options(command, kind)
            continue
        add_options(command, EvaluateOptions)
        music = "continuations of the beginnings of pieces, compared with the real music"
        add_options(
            command.add_argument_group("music", music),
            GenerationOptions,
            continuations={"default": 0},
            prompt_bars={"nargs": "+"},
            bars={"nargs": "+"},
        )
    settings = [*describe(TrainerConfig, "trainer"), *describe(OptimizerConfig, "optimizer")]
    fit = commands.choices["fit"]
    fit.formatter_class = argparse.RawDescriptionHelpFormatter
    fit.epilog = "settings for --set, besides task.*:\n" + "\n".join(settings)
    return parser


@dataclass(frozen=True, kw_only=True)
class Fetch:
    """Download a public data set."""

    name: str = field(
        metadata={
            "flag": "name",
            "metavar": "NAME",
            "help": f"{', '.join(SETS)}, or ucr/NAME for a set of the UCR and UEA archives of time "
            "series, such as ucr/GunPoint",
        }
    )
    data_dir: Path = field(metadata={"metavar": "DIR"})
    """Folder for the data."""

    def run(self) -> int:
        """Download, and print what to do next."""
        data = public_set(self.name)

        from training.data.fetch.download import fetch

        sys.stdout.write("\n".join([*fetch(self.name, data, self.data_dir), ""]))
        return 0


@dataclass(frozen=True, kw_only=True)
class Prepare:
    """Make a corpus from folders or zips of MIDI files."""

    corpus: Sequence[Path] = field(default=(), metadata=_REPEATED)
    """Folder or zip of MIDI files; may be repeated."""
    mixture: str | None = field(default=None, metadata={"metavar": "NAME"})
    """Several corpora with weights, styles and licences, instead of --corpus: all, or a YAML file;
    None: none."""
    folder: Path | None = field(default=None, metadata={"flag": "--from"})
    """Folder of the corpora of --mixture; None: the current folder."""
    output: Path
    """Output folder."""
    include: Sequence[str] = field(default=(), metadata=_REPEATED)
    """Shell pattern of file names to include; give it once, or once for each --corpus; none: all
    files."""
    splits: Path | None = None
    """JSON file: split -> list of file names without suffix; None: splits.json of the corpus; else
    folders named after splits; else by a hash of the names."""
    tokenizer: str | None = None
    """piano-2 for one keyboard, multitrack-2 for all instruments and drums; None: piano-2; with
    --mixture: the one that it names."""
    workers: int | None = None
    """Number of processes; None: one per core."""
    strict: bool = False
    """Refuse damaged files; by default, all of them that can be understood is read."""

    def run(self) -> int:
        """Prepare the data, and report what was left out."""
        from training.data.corpus_writer import LISTS

        data = self._prepare()
        for warning in data["warnings"]:
            sys.stderr.write(f"warning: {warning}\n")
        for what in LISTS:
            for name, reason in data[what].items():
                line = reason if name in reason else f"{name}: {reason}"
                sys.stderr.write(f"{what}: {line}\n")
        if data["unassigned"]:
            sys.stderr.write(f"left out because in no split: {', '.join(data['unassigned'])}\n")
        for what, count in data["listed"].items():
            if count > len(data[what]):
                sys.stderr.write(f"{what}: {count:,} files, see {self.output / what}.txt\n")
        for split, facts in data["splits"].items():
            counts = {key: value for key, value in facts.items() if key != "losses"}
            line = ", ".join(f"{value:,} {key}" for key, value in counts.items())
            sys.stdout.write(f"{split}: {line}\n")
        return 0

    def _prepare(self) -> dict[str, Any]:
        """Prepare the corpora or the mixture; return the contents of data.json."""
        from tokenization.presets import PRESETS
        from training.data.mixtures.mixture import Mixture
        from training.data.prepare import prepare, prepare_mixture

        if self.tokenizer not in (None, *PRESETS):
            raise TrainingError(f"--tokenizer {self.tokenizer}: expected {' or '.join(PRESETS)}")
        if (self.mixture is None) == (not self.corpus):
            raise TrainingError("give either --corpus or --mixture")
        reading = {"workers": self.workers, "strict": self.strict}
        if self.mixture is None:
            if self.folder is not None:
                raise TrainingError("--from is only for --mixture; give the path in --corpus")
            tokenizer = PRESETS[self.tokenizer or "piano-2"].build()
            return prepare(
                self.corpus,
                self.output,
                tokenizer,
                include=self.include or None,
                splits=self.splits,
                **reading,
            )
        if self.include or self.splits is not None:
            raise TrainingError(
                "--include and --splits are only for --corpus; write them into a mixture of your "
                "own"
            )
        folder = self.folder or Path()
        mixture = Mixture.load(self.mixture, folder)
        sources = [corpus.source for corpus in mixture.corpora.values()]
        missing = [source for source in sources if not (folder / source).exists()]
        if missing:
            raise TrainingError(
                f"--mixture {self.mixture}: found no {' and no '.join(missing)} in the folder "
                f"{folder.resolve()}; give the folder that has the corpora with --from"
            )
        tokenizer = self.tokenizer or mixture.tokenizer
        if tokenizer not in PRESETS:
            raise TrainingError(
                f"--mixture {self.mixture}: tokenizer is {tokenizer}, expected "
                f"{' or '.join(PRESETS)}"
            )
        return prepare_mixture(mixture, self.output, PRESETS[tokenizer].build(), **reading)


@dataclass(frozen=True, kw_only=True)
class Fit:
    """Train a model or resume a run."""

    config: Path
    """YAML file of the experiment."""
    folder: Path | None = field(default=None, metadata={"flag": "--run", "metavar": "RUN"})
    """Folder of the run; None: runs/<name of the config>."""
    data: Path | None = None
    """Prepared corpus; None: that of the config."""
    devices: int | None = None
    """Processes per node; same as --set trainer.devices; None: see below."""
    nodes: int | None = None
    """Number of machines; same as --set trainer.nodes; None: see below."""
    settings: Sequence[str] = field(
        default=(), metadata={**_REPEATED, "flag": "--set", "metavar": "KEY=VALUE"}
    )
    """Change a setting of the config, see below; may be repeated; none: as in the config."""
    init_from: str | None = field(default=None, metadata={"metavar": "MODEL"})
    """Folder of a run, or folder or name of a released model, with the initial weights; None:
    random weights."""
    resume: bool = False
    """Fail if there is no run to resume."""
    fresh: bool = False
    """Delete an existing run and start again."""

    def run(self) -> int:
        """Train until the budget is used up, or a signal stops the run."""
        options = {
            "task.data": self.data,
            "trainer.devices": self.devices,
            "trainer.nodes": self.nodes,
        }
        settings = [f"{key}={value}" for key, value in options.items() if value is not None]
        mapping = read_yaml(self.config, [*self.settings, *settings])
        for name, kind in {"trainer": TrainerConfig, "optimizer": OptimizerConfig}.items():
            check_names(kind, mapping.get(name), f"config.{name}")
        folder = self.folder or Path("runs") / self.config.stem
        if self.resume and not (folder / "last.ckpt").exists():
            raise TrainingError(
                f"{folder}: found no last.ckpt to resume from; start a run without --resume"
            )
        if self.resume and self.fresh:
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

        experiment = build_experiment(mapping)
        result = fit(experiment, folder, fresh=self.fresh, init_from=self.init_from)
        if result.rank:
            return 0
        line = (
            f"{folder}: step {result.step}, {result.tokens:,} tokens, {result.minutes:.1f} minutes"
        )
        if result.validation is not None:
            line += f", validation {result.validation:.4f} nats per "
            line += "token" if result.accuracy is None else f"example, {result.accuracy:.1%} right"
        sys.stdout.write(f"{line}\n")
        # the convention of shells, so that loops and && stop too
        return 0 if result.stopped_by is None else 128 + result.stopped_by


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """Train, measure and compare a grid of settings over seeds."""

    config: Path = field(metadata={"flag": "config", "metavar": "CONFIG"})
    """YAML file of the sweep."""
    runs: Path
    """Folder for the runs and results."""
    processes: int = 1
    """Runs at a time."""
    configs: Sequence[str] = field(default=(), metadata={"metavar": "NAME"})
    """Only these configs, as shell patterns; none: all."""
    rows: Sequence[str] = field(default=(), metadata={"metavar": "NAME"})
    """Only these rows, as shell patterns; none: all."""
    seeds: Sequence[int] = field(default=(), metadata={"metavar": "N"})
    """Only these seeds; none: all."""
    known: Path | None = field(default=None, metadata={"metavar": "FILE"})
    """cells.jsonl of an earlier sweep, whose runs are not made again."""
    names_only: bool = field(default=False, metadata={"flag": "--list"})
    """Print the runs, and which are done; train nothing."""
    table: bool = False
    """Write and print the results; train nothing."""

    def run(self) -> int:
        """Train and measure what is not done yet, and compare all results."""
        from training.evaluation.sweep.config import read_sweep
        from training.evaluation.sweep.processes import is_done, run_cells

        check_range("--processes", self.processes, 1, MOST_THREADS)
        sweep = read_sweep(self.config, self.runs)
        cells = sweep.select(self.configs, self.rows, self.seeds)
        if self.known is not None:
            from training.evaluation.sweep.kept import take_results

            taken = take_results(self.known, sweep.cells)
            sys.stderr.write(f"{self.known}: has results of {taken} more runs of the sweep\n")
        if self.names_only:
            for cell in cells:
                done = ", done" if is_done(cell) else ""
                sys.stdout.write(f"{cell.folder}: {cell.name}{done}\n")
            return 0
        if self.table and not any(map(is_done, cells)):
            raise TrainingError(
                f"{self.runs}: found no finished runs of this sweep; leave out --table to make them"
            )
        failures, stopped_by = {}, None
        if not self.table:
            failures, stopped_by = run_cells(cells, sweep.runs, self.processes)
            cells = sweep.cells  # those of earlier commands too

        from training.evaluation.sweep.results import write_tables

        report = write_tables(sweep, cells, failures)
        sys.stdout.write(report.read_text("utf-8") if self.table else f"{report}\n")
        if stopped_by is not None:
            return 128 + stopped_by
        return 1 if failures else 0


class FitPointer(FitPointerOptions):
    """Fit the pointer of a model to held-out pieces, in minutes."""

    def run(self) -> int:
        """Fit, and print what the pointer gains."""
        from training.evaluation.report import gain_table
        from training.tuning.fit_pointer import fit_pointer

        folder, fitted = fit_pointer(self)
        sys.stdout.write("\n".join([*gain_table(fitted.fit.test), "", str(folder), ""]))
        return 0


class FitBalance(FitBalanceOptions):
    """Fit how much comes back in music that a model writes, in minutes."""

    def run(self) -> int:
        """Fit, and print how much closer the music is to real music."""
        from training.tuning.fit_balance import balance_table, fit_balance

        sys.stdout.write("\n".join([*balance_table(fit_balance(self)), ""]))
        return 0


class Tune(TuneOptions):
    """Tune a model to your own pieces, in minutes."""

    def run(self) -> int:
        """Tune, and print how much likelier held-back pieces have become."""
        from training.tuning.tune import tune

        tuned, stopped = tune(self)
        sys.stdout.write(f"{self.output}: {tuned.line()}\n")
        if stopped:
            sys.stderr.write("relpe-train: stopped; the best weights so far were written\n")
        return 130 if stopped else 0


@dataclass(frozen=True, kw_only=True)
class Report:
    """Compare the results of several models."""

    models: Sequence[str] = field(metadata={"flag": "models", "metavar": "MODEL"})
    """Folder of a run, folder or name of a released model, or folder written by evaluate."""
    output: Path
    """Output folder."""

    def run(self) -> int:
        """Write the report, and print its path."""
        from training.evaluation.report import report

        sys.stdout.write(f"{report(self.models, self.output)}\n")
        return 0


@dataclass(frozen=True, kw_only=True)
class Export:
    """Write the weights of a run as a model folder or ONNX file."""

    folder: Path = field(metadata={"flag": "--run", "metavar": "RUN"})
    """Folder of the run."""
    output: Path
    """Output folder; for a classifier, NAME.onnx."""
    weights: Literal["best", "last"] = "best"
    """Checkpoint of the run."""
    licence: str | None = None
    """Licence of the data; None: those of the corpora of a mixture, otherwise unknown."""
    precision: Literal["bfloat16", "int8"] = "bfloat16"
    """Precision of the weights; int8, in which compiled code generates anyway, halves the size."""

    def run(self) -> int:
        """Write the model, and print its path."""
        if self.output.suffix == ".onnx":
            from training.runs.onnx_export import export_onnx

            path = export_onnx(self.folder, self.output, self.weights)
        else:
            from training.release import export

            licence = self.licence or "unknown"
            path = export(self.folder, self.output, self.weights, licence, self.precision)
        sys.stdout.write(f"{path}\n")
        return 0


COMMANDS: dict[str, Any] = {
    "fetch": Fetch,
    "prepare": Prepare,
    "fit": Fit,
    "evaluate": None,
    "sweep": Sweep,
    "fit-pointer": FitPointer,
    "fit-balance": FitBalance,
    "tune": Tune,
    "report": Report,
    "export": Export,
}
"""The options and the work of each command; None: evaluate, which has two classes of options."""


def _evaluate(options: argparse.Namespace) -> int:
    """Measure a run of any task, or a model of music, and print the results."""
    from training.experiment import is_run, read_experiment

    folder = Path(options.model)
    task = read_experiment(folder).task if is_run(folder) else None
    if task is None or task.kind == "music":
        lines = _evaluate_music(options)
    else:
        names = _OPTIONS_OF_ALL_TASKS - (set() if task.has_splits else {"data", "split"})
        others = [
            f"--{name.replace('_', '-')}"
            for name, value in vars(options).items()
            if name not in names and value not in (None, 0)
        ]
        if others:
            raise TrainingError(
                f"{', '.join(others)}: only for a model of music, and {options.model} is a run of "
                f"the task {task.kind}; leave {'them' if len(others) > 1 else 'it'} out"
            )
        from training.evaluation.runs import evaluate_run

        lines = evaluate_run(EvaluateOptions(**given_options(options, EvaluateOptions)))
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def _evaluate_music(options: argparse.Namespace) -> list[str]:
    """Measure a model of music, and its continuations if they are asked for; return tables."""
    from training.evaluation.evaluate import evaluate
    from training.evaluation.report import music_tables, table

    music: list[GenerationOptions] = []
    for prompt_bars, bars in _lengths(options) if options.continuations else ():
        settings = given_options(options, GenerationOptions, prompt_bars=prompt_bars, bars=bars)
        music.append(GenerationOptions(**settings))
    if options.samples_output is not None and len(music) > 1:
        folder = options.samples_output
        music = [replace(lengths, samples_output=folder / lengths.key) for lengths in music]
    settings = given_options(options, EvaluateOptions, music=tuple(music))
    entries = {options.model: evaluate(EvaluateOptions(**settings))}
    return [*table(entries), *music_tables(entries)]


def _lengths(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Return the bars of the prompt and new bars of each kind of music to measure."""
    prompts = options.prompt_bars or [GenerationOptions.prompt_bars]
    new = options.bars or [GenerationOptions.bars]
    new = new * len(prompts) if len(new) == 1 else new
    if len(new) != len(prompts):
        raise TrainingError(
            f"--bars has {len(new)} numbers and --prompt-bars {len(prompts)}; give one number of "
            "--bars for all prompts, or one for each number of --prompt-bars"
        )
    return [*zip(prompts, new, strict=True)]


if __name__ == "__main__":
    sys.exit(main())
