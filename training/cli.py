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

from training.config import OptimizerConfig, TrainerConfig, describe, read_yaml
from training.errors import TrainingError

_OWN = ("app", "relpe", "tokenization", "training")
_USERS = {"TrainingError", "MidiError", "TokenizerError", "CheckpointError"}
"""Errors caused by a user's input, by name, since their modules import torch."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit code.

    0, or 2 for unusable input, or 128 plus the number of the signal that ended a run.
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
        said = f"found no {error.name}; pip install 'relpe[train]'"
    except KeyboardInterrupt:  # while reading or writing; training handles signals
        said, code = "stopped", 130
    sys.stderr.write(f"relpe-train: {said}\n")
    return code


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="relpe-train", description="Train and measure models.", allow_abbrev=False
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    add = partial(commands.add_parser, allow_abbrev=False)
    _add_prepare(add("prepare", help="folders or zips of MIDI files to tokens"))
    settings = [*describe(TrainerConfig, "trainer"), *describe(OptimizerConfig, "optimizer")]
    _add_fit(
        add(
            "fit",
            help="train a model, or go on with a run",
            formatter_class=argparse.RawDescriptionHelpFormatter,
            epilog="what --set can change, beside task.*:\n" + "\n".join(settings),
        )
    )
    _add_evaluate(add("evaluate", help="measure a model"))
    report = add("report", help="what was measured of several models, side by side")
    models = "run folder, released model's folder or name, or folder that evaluate has written"
    report.add_argument("models", nargs="+", metavar="MODEL", help=models)
    report.add_argument("--output", type=Path, required=True, help="folder to write")
    report.set_defaults(call=_report)
    export = add("export", help="release a run's weights")
    export.add_argument("--run", type=Path, required=True, help="run folder")
    export.add_argument("--output", type=Path, required=True, help="folder to write")
    export.add_argument("--weights", choices=("best", "last"), default="best")
    export.add_argument("--licence", default="unknown", help="licence of the data")
    export.set_defaults(call=_export)
    return parser


def _add_prepare(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option(
        "--corpus",
        type=Path,
        required=True,
        action="append",
        help="folder or zip of MIDI files; may be given several times",
    )
    option("--output", type=Path, required=True, help="folder to write")
    option(
        "--include",
        action="append",
        help="pattern of the names to take, as a shell writes it; once, or once for each --corpus",
    )
    option("--splits", type=Path, help="JSON of split -> names without suffix")
    option(
        "--tokenizer", default="piano", help="piano (default) or multitrack: all instruments, drums"
    )
    option("--workers", type=int, help="processes; one per core if not given")
    command.set_defaults(call=_prepare)


def _prepare(options: argparse.Namespace) -> int:
    from tokenization.presets import PRESETS
    from training.data.corpus_writer import LISTS
    from training.data.prepare import prepare

    # crops start at a Bar token, which the tokenizers of other projects do not have
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


def _add_fit(command: argparse.ArgumentParser) -> None:
    option = command.add_argument
    option("--config", type=Path, required=True, help="YAML file of the experiment")
    option("--run", type=Path, help="run folder; runs/<name of the config> if not given")
    option("--data", type=Path, help="prepared corpus, instead of the config's")
    option("--devices", type=int, help="as --set trainer.devices: processes of each node")
    option("--nodes", type=int, help="as --set trainer.nodes: machines")
    option("--set", action="append", default=[], metavar="KEY=VALUE", help="see below")
    option("--init-from", type=Path, help="run or checkpoint to take the weights from")
    option("--resume", action="store_true", help="refuse to start when there is nothing to resume")
    option("--fresh", action="store_true", help="start anew over an old run")
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
        raise TrainingError(f"{folder}: found no last.ckpt to resume")
    if options.resume and options.fresh:
        raise TrainingError("--resume and --fresh contradict each other")
    # each process would warn that DDP searches for unused parameters, as configured
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")
    # OpenMP reads this once, when torch is imported
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
        line += f", validation {result.validation:.4f} nats per token"
    sys.stdout.write(f"{line}\n")
    # the convention of shells, so that loops and && end as well
    return 0 if result.stopped_by is None else 128 + result.stopped_by


def _add_evaluate(command: argparse.ArgumentParser) -> None:
    """Options have the names of the fields of `EvaluateOptions` and `GenerationOptions`.

    Defaults are those of the fields.
    """
    option = command.add_argument
    option(
        "--run",
        dest="model",
        metavar="RUN",
        required=True,
        help="run folder, or checkpoint folder or name",
    )
    option("--data", type=Path, required=True, help="prepared corpus")
    option("--split", help="split to measure on")
    option("--weights", choices=("best", "last"), help="of a run")
    option("--length", type=int, help="tokens of a window")
    option("--chunk", type=int, help="tokens per streaming call")
    option("--reach", type=int, help="tokens of a long piece")
    option("--batch-size", type=int, help="pieces at once")
    option("--device", choices=("auto", "cpu", "cuda"), help="auto: a GPU if any")
    option("--draws", type=int, metavar="S", help="draws of the noise to take the mean over")
    option("--threads", type=int, help="threads of torch")
    option("--ngram", type=int, metavar="N", help="measure an n-gram model as well")
    option(
        "--trained-length",
        type=int,
        metavar="N",
        help="tokens that the model was trained on at once, which a released model does not know",
    )
    option("--map-length", type=int, help="positions of the maps that are measured")
    music = "what the model writes behind the beginnings of pieces, beside their real music"
    _add_music(command.add_argument_group("music", music))
    option(
        "--output",
        type=Path,
        help="folder to write; RUN/evaluation of a run folder, else evaluation/NAME",
    )
    command.set_defaults(call=_evaluate)


def _add_music(group: argparse._ArgumentGroup) -> None:
    music = group.add_argument
    music("--continuations", type=int, default=0, metavar="N", help="measure so many; none: 0")
    music("--per-prompt", type=int, help="continuations of each prompt")
    music(
        "--prompt-bars",
        type=int,
        nargs="+",
        metavar="N",
        help="bars of a prompt; with several numbers each is measured with its number of --bars",
    )
    music(
        "--bars",
        type=int,
        nargs="+",
        metavar="N",
        help="new bars; one number for all prompts, or one for each number of --prompt-bars",
    )
    music("--seed", type=int, help="of each prompt's first continuation")
    music("--temperature", type=float, help="as relpe continue has it if not given")
    music("--top-p", type=float, help="as relpe continue has it if not given")
    music(
        "--presence",
        type=float,
        help="how strongly instruments that rest for too long are called back, 0 to 1; as relpe "
        "continue has it if not given",
    )
    music(
        "--recall",
        type=float,
        help="how strongly new music of several instruments takes up what the prompt played, "
        "0 to 1; as relpe continue has it if not given",
    )
    music("--samples-output", type=Path, help="folder for the continuations as MIDI and pictures")
    music(
        "--music-only",
        action="store_true",
        help="leave the likelihood out; what was measured of the same weights stays",
    )


def _evaluate(options: argparse.Namespace) -> int:
    from training.evaluation.evaluate import EvaluateOptions, evaluate
    from training.evaluation.generated_music import GenerationOptions
    from training.evaluation.report import music_tables, table

    def given(kind: type, **others: Any) -> dict[str, Any]:  # noqa: ANN401
        values = {field.name: getattr(options, field.name, None) for field in fields(kind)}
        return {name: value for name, value in values.items() if value is not None} | others

    music: list[GenerationOptions] = []
    for prompt_bars, bars in _lengths(options) if options.continuations else ():
        settings = given(GenerationOptions, prompt_bars=prompt_bars, bars=bars)
        music.append(GenerationOptions(**settings))
    if options.samples_output is not None and len(music) > 1:
        folder = options.samples_output
        music = [replace(one, samples_output=folder / one.key) for one in music]
    results = evaluate(EvaluateOptions(**given(EvaluateOptions, music=tuple(music))))
    entries = {options.model: results}
    sys.stdout.write("\n".join([*table(entries), *music_tables(entries), ""]))
    return 0


def _lengths(options: argparse.Namespace) -> list[tuple[int, int]]:
    """Bars of the prompt and new bars of each kind of music to measure."""
    from training.evaluation.generated_music import GenerationOptions

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
    from training.release import export

    sys.stdout.write(f"{export(options.run, options.output, options.weights, options.licence)}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
