"""From a run folder to a released model, `checkpoints/<name>`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from relpe.checkpoint import save_model
from tokenization.tokenizer import load_tokenizer
from training.errors import TrainingError
from training.evaluate import load_decoder

if TYPE_CHECKING:
    from pathlib import Path


def export(run: Path, output: Path, weights: str = "best", licence: str = "unknown") -> Path:
    """Write weights, model.json, tokenizer.json and README.md of a run; returns the folder.

    The measured results are those that `relpe-train evaluate` has written into the run folder.
    `licence` is that of the data.

    Raises:
        TrainingError: the folder is no run, or holds no such checkpoint.
    """
    if not (run / "config.yaml").is_file() or not (run / "run.json").is_file():
        raise TrainingError(f"{run}: found no config.yaml and run.json, expected a run folder")
    decoder = load_decoder(run, weights)
    description = json.loads((run / "run.json").read_text())
    if load_tokenizer(run).vocabulary.hash != description["data"]["vocabulary"]:
        raise TrainingError(f"{run}: tokenizer.json is not that of the run's data")
    output.mkdir(parents=True, exist_ok=True)
    save_model(decoder, output)
    shutil.copyfile(run / "tokenizer.json", output / "tokenizer.json")
    results = run / "evaluation" / "results.json"
    measured = json.loads(results.read_text()) if results.is_file() else None
    lines = [*_head(output.name, description, licence), *_results(measured), ""]
    partial = output / "README.md.partial"
    partial.write_text("\n".join(lines))
    partial.replace(output / "README.md")
    return output


def _head(name: str, run: dict[str, Any], licence: str) -> list[str]:
    data = run["data"]
    train = data["splits"]["train"]
    include = f", files `{data['include']}`" if data["include"] else ""
    return [
        f"# {name}",
        "",
        f"A decoder of {run['parameters']:,} parameters, made by `relpe-train export`.",
        "",
        f"- Data: train split of `{data['source']}`{include}: {train['files']} pieces, "
        f"{train['tokens']:,} tokens; prepared corpus `{data['hash'][:16]}`.",
        f"- Licence of the data: {licence}.",
        f"- Command: `{run['command']}`",
        f"- Commit: {run['commit'] or 'unknown'}",
        f"- Machine: {run['machine']}, {run['threads']} threads, {run['precision']}; "
        f"torch {run['torch']}, Lightning {run['lightning']}.",
        "",
    ]


def _results(measured: dict[str, Any] | None) -> list[str]:
    if measured is None:
        return ["Not measured yet: run `relpe-train evaluate`, then export again."]
    rows: list[tuple[str, dict[str, float]]] = []
    for key, value in measured.items():
        if key.startswith("windows_"):
            rows.append((f"windows of {key.removeprefix('windows_')} tokens, no overlap", value))
        elif key == "streaming":
            rows.append(("whole pieces, state carried on", value))
        elif key.endswith("-gram"):
            rows.extend((f"{key}, {name}", values) for name, values in value.items())
    table = [
        f"| {name} | {values['nats_per_token']:.4f} | {values['nats_per_note']:.3f} |"
        for name, values in rows
    ]
    by_position = measured["by_position"]
    return [
        f"## Measured on the {measured['split']} split",
        "",
        f"{measured['pieces']} pieces, {measured['tokens']:,} tokens, {measured['notes']:,} notes.",
        "",
        "| read as | nats per token | nats per note |",
        "|---|---|---|",
        *table,
        "",
        f"{by_position['pieces']} pieces reach {by_position['reach']:,} tokens; over these, "
        "nats per token against the place in the piece:",
        "",
        "| tokens | " + " | ".join(f"{b['last']:,}" for b in by_position["bins"]) + " |",
        "|---" * (len(by_position["bins"]) + 1) + "|",
        "| nats | " + " | ".join(f"{b['nats_per_token']:.3f}" for b in by_position["bins"]) + " |",
    ]
