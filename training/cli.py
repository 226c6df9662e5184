"""The command relpe-train; imports the engine only after the options are read."""

from __future__ import annotations

import argparse
import io
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from training.config import OptimizerConfig, TrainerConfig, describe, read_yaml
from training.errors import TrainingError

if TYPE_CHECKING:
    from collections.abc import Sequence

_OWN = ("app", "relpe", "tokenization", "training")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code: 0, or 2 when the input cannot be used.

    128 and its number where a signal has ended it.
    """
    options = _parser().parse_args(arguments)
    if isinstance(sys.stdout, io.TextIOWrapper):  # names of files need not be UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    logging.basicConfig(format="%(message)s", level=logging.INFO, stream=sys.stderr)
    # One sentence for the errors of all packages without importing them: they are ValueErrors
    # defined in a module of the project called errors or checkpoint.
    try:
        return options.call(options)
    except ValueError as error:
        if not _is_users(error):
            raise
        sys.stderr.write(f"relpe-train: {error}\n")
        return 2
    except OSError as error:
        named = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        sys.stderr.write(f"relpe-train: {named}\n")
        return 2
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] in _OWN:
            raise
        sys.stderr.write(f"relpe-train: found no {error.name}; pip install 'relpe[train]'\n")
        return 2
    except (
        KeyboardInterrupt
    ):  # while it reads, writes or loads; steps of training end by themselves
        sys.stderr.write("relpe-train: stopped\n")
        return 130


def _is_users(error: Exception) -> bool:
    names = {"TrainingError", "MidiError", "TokenizerError", "CheckpointError", "ConfigError"}
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="relpe-train", description="Train and measure models.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    prepare = commands.add_parser(
        "prepare", allow_abbrev=False, help="folders or zips of MIDI files to tokens"
    )
    prepare.add_argument(
        "--corpus",
        type=Path,
        required=True,
        action="append",
        help="folder or zip of MIDI files; may be given several times",
    )
    prepare.add_argument("--output", type=Path, required=True, help="folder to write")
    prepare.add_argument(
        "--include",
        action="append",
        help="pattern of the names to take, as a shell writes it; once, or once for each --corpus",
    )
    prepare.add_argument("--splits", type=Path, help="JSON of split -> names without suffix")
    prepare.add_argument(
        "--tokenizer", default="piano", help="piano (default) or multitrack: all instruments, drums"
    )
    prepare.add_argument("--workers", type=int, help="processes; one per core if not given")
    prepare.set_defaults(call=_prepare)

    settings = [*describe(TrainerConfig, "trainer"), *describe(OptimizerConfig, "optimizer")]
    fit = commands.add_parser(
        "fit",
        allow_abbrev=False,
        help="train a model, or go on with a run",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="what --set can change, beside task.*:\n" + "\n".join(settings),
    )
    fit.add_argument("--config", type=Path, required=True, help="YAML file of the experiment")
    fit.add_argument("--run", type=Path, help="run folder; runs/<name of the config> if not given")
    fit.add_argument("--data", type=Path, help="prepared corpus, instead of the config's")
    fit.add_argument("--devices", type=int, help="as --set trainer.devices: processes of each node")
    fit.add_argument("--nodes", type=int, help="as --set trainer.nodes: machines")
    fit.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="see below")
    fit.add_argument("--init-from", type=Path, help="run or checkpoint to take the weights from")
    fit.add_argument(
        "--resume", action="store_true", help="refuse to start when there is nothing to resume"
    )
    fit.add_argument("--fresh", action="store_true", help="start anew over an old run")
    fit.set_defaults(call=_fit)

    evaluate = commands.add_parser("evaluate", allow_abbrev=False, help="measure a model")
    evaluate.add_argument("--run", required=True, help="run folder, or checkpoint folder or name")
    evaluate.add_argument("--data", type=Path, required=True, help="prepared corpus")
    evaluate.add_argument("--split", default="test", help="split to measure on")
    evaluate.add_argument("--weights", choices=("best", "last"), default="best", help="of a run")
    evaluate.add_argument("--length", type=int, default=1024, help="tokens of a window")
    evaluate.add_argument("--chunk", type=int, default=1024, help="tokens per streaming call")
    evaluate.add_argument("--reach", type=int, default=4096, help="tokens of a long piece")
    evaluate.add_argument("--batch-size", type=int, default=8, help="pieces at once")
    evaluate.add_argument(
        "--device", choices=("auto", "cpu", "cuda"), default="auto", help="auto: a GPU if any"
    )
    evaluate.add_argument(
        "--draws", type=int, default=1, metavar="S", help="draws of the noise to take the mean over"
    )
    evaluate.add_argument("--threads", type=int, help="threads of torch")
    evaluate.add_argument("--ngram", type=int, metavar="N", help="measure an n-gram model as well")
    evaluate.add_argument(
        "--trained-length",
        type=int,
        metavar="N",
        help="tokens that the model was trained on at once, which a released model does not know",
    )
    evaluate.add_argument(
        "--map-length", type=int, default=512, help="positions of the maps that are measured"
    )
    music = evaluate.add_argument_group(
        "music", "what the model writes behind the beginnings of pieces, beside their real music"
    )
    music.add_argument(
        "--continuations", type=int, default=0, metavar="N", help="measure so many; none: 0"
    )
    music.add_argument("--per-prompt", type=int, default=1, help="continuations of each prompt")
    music.add_argument("--prompt-bars", type=int, default=8, help="bars of a prompt")
    music.add_argument("--bars", type=int, default=32, help="new bars")
    music.add_argument("--seed", type=int, default=0, help="of each prompt's first continuation")
    music.add_argument("--temperature", type=float, help="as relpe continue has it if not given")
    music.add_argument("--top-p", type=float, help="as relpe continue has it if not given")
    music.add_argument(
        "--presence",
        type=float,
        help="how strongly instruments that rest for too long are called back, 0 to 1; as relpe "
        "continue has it if not given",
    )
    music.add_argument(
        "--recall",
        type=float,
        help="how strongly new music of several instruments takes up what the prompt played, "
        "0 to 1; as relpe continue has it if not given",
    )
    music.add_argument(
        "--samples-output", type=Path, help="folder for the continuations as MIDI and pictures"
    )
    music.add_argument(
        "--music-only",
        action="store_true",
        help="leave the likelihood out; what was measured of the same weights stays",
    )
    evaluate.add_argument(
        "--output",
        type=Path,
        help="folder to write; RUN/evaluation of a run folder, else evaluation/NAME",
    )
    evaluate.set_defaults(call=_evaluate)

    report = commands.add_parser(
        "report", allow_abbrev=False, help="what was measured of several models, side by side"
    )
    report.add_argument(
        "models",
        nargs="+",
        metavar="MODEL",
        help="run folder, released model's folder or name, or folder that evaluate has written",
    )
    report.add_argument("--output", type=Path, required=True, help="folder to write")
    report.set_defaults(call=_report)

    export = commands.add_parser("export", allow_abbrev=False, help="release a run's weights")
    export.add_argument("--run", type=Path, required=True, help="run folder")
    export.add_argument("--output", type=Path, required=True, help="folder to write")
    export.add_argument("--weights", choices=("best", "last"), default="best")
    export.add_argument("--licence", default="unknown", help="licence of the data")
    export.set_defaults(call=_export)
    return parser


def _prepare(options: argparse.Namespace) -> int:
    from tokenization.presets import PRESETS
    from training.data.corpus_writer import LISTS
    from training.data.prepare import prepare

    # crops begin at a Bar: the codecs of others are for reading and comparing
    known = [name for name, config in PRESETS.items() if "Bar" in config.build().vocabulary.ids]
    if options.tokenizer not in known:
        raise TrainingError(f"--tokenizer {options.tokenizer}: expected {' or '.join(known)}")
    data = prepare(
        options.corpus,
        options.output,
        PRESETS[options.tokenizer].build(),
        workers=options.workers,
        include=options.include,
        splits=options.splits,
    )
    for what in LISTS:
        for name, reason in data[what].items():
            sys.stderr.write(f"{what}: {reason if name in reason else f'{name}: {reason}'}\n")
    if data["unassigned"]:
        sys.stderr.write(f"in no split, left out: {', '.join(data['unassigned'])}\n")
    for what, count in data["listed"].items():
        if count > len(data[what]):
            sys.stderr.write(f"{what}: {count:,} files, see {options.output / what}.txt\n")
    for split, facts in data["splits"].items():
        line = ", ".join(f"{value:,} {key}" for key, value in facts.items())
        sys.stdout.write(f"{split}: {line}\n")
    return 0


def _fit(options: argparse.Namespace) -> int:
    overrides = list(options.set)
    if options.data is not None:
        overrides.append(f"task.data={options.data}")
    given = {"devices": options.devices, "nodes": options.nodes}
    overrides += [f"trainer.{k}={value}" for k, value in given.items() if value is not None]
    mapping = read_yaml(options.config, overrides)
    folder = options.run or Path("runs") / options.config.stem
    if options.resume and not (folder / "last.ckpt").exists():
        raise TrainingError(f"{folder}: found no last.ckpt to resume")
    if options.resume and options.fresh:
        raise TrainingError("--resume and --fresh contradict each other")
    # DDP warns, in each process, that it looks for unused parameters, as it is told to
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # OpenMP reads this once, when the engine is loaded.
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
    value = (
        "" if result.validation is None else f", validation {result.validation:.4f} nats per token"
    )
    sys.stdout.write(
        f"{folder}: step {result.step}, {result.tokens:,} tokens, {result.minutes:.1f} minutes"
        f"{value}\n"
    )
    # as a shell expects of what a signal ends, so that loops and && end as well
    return 0 if result.stopped_by is None else 128 + result.stopped_by


def _evaluate(options: argparse.Namespace) -> int:
    from training.evaluation.evaluate import EvaluateOptions, evaluate
    from training.evaluation.generated_music import GenerationOptions
    from training.evaluation.report import table

    music = None
    if options.continuations:
        sampling = {
            name: getattr(options, name)
            for name in ("temperature", "top_p", "presence", "recall")
            if getattr(options, name) is not None
        }
        music = GenerationOptions(
            continuations=options.continuations,
            per_prompt=options.per_prompt,
            prompt_bars=options.prompt_bars,
            bars=options.bars,
            seed=options.seed,
            samples_output=options.samples_output,
            **sampling,
        )
    results = evaluate(
        EvaluateOptions(
            model=options.run,
            data=options.data,
            split=options.split,
            weights=options.weights,
            length=options.length,
            chunk=options.chunk,
            reach=options.reach,
            batch_size=options.batch_size,
            device=options.device,
            draws=options.draws,
            threads=options.threads,
            ngram=options.ngram,
            trained_length=options.trained_length,
            map_length=options.map_length,
            music=music,
            music_only=options.music_only,
            output=options.output,
        )
    )
    sys.stdout.write("\n".join([*table({options.run: results}), ""]))
    return 0


def _report(options: argparse.Namespace) -> int:
    from training.evaluation.report import report

    sys.stdout.write(f"{report(options.models, options.output)}\n")
    return 0


def _export(options: argparse.Namespace) -> int:
    from training.release import export

    sys.stdout.write(f"{export(options.run, options.output, options.weights, options.licence)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
