"""From a run folder to a released model, `checkpoints/<name>`."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

from relpe.checkpoint import save_model
from tokenization.tokenizer import load_tokenizer
from training.errors import TrainingError
from training.evaluate import figure
from training.files import replacing
from training.weights import load_decoder

if TYPE_CHECKING:
    from pathlib import Path

    from training.weights import Origin


def export(run: Path, output: Path, weights: str = "best", licence: str = "unknown") -> Path:
    """Write weights, model.json, tokenizer.json and README.md of a run; returns the folder.

    The measured results are those that `relpe-train evaluate` has written into the run folder,
    where it measured these very weights. `licence` is that of the data.

    Raises:
        TrainingError: the folder is no run, or holds no such checkpoint.
    """
    if not (run / "config.yaml").is_file() or not (run / "run.json").is_file():
        raise TrainingError(f"{run}: found no config.yaml and run.json, expected a run folder")
    decoder, origin = load_decoder(run, weights)
    description = json.loads((run / "run.json").read_text())
    if load_tokenizer(run).vocabulary.hash != description["data"]["vocabulary"]:
        raise TrainingError(f"{run}: tokenizer.json is not that of the run's data")
    output.mkdir(parents=True, exist_ok=True)
    save_model(decoder, output)
    shutil.copyfile(run / "tokenizer.json", output / "tokenizer.json")
    results = run / "evaluation" / "results.json"
    measured = json.loads(results.read_text()) if results.is_file() else {}
    if measured.get("weights") == origin._asdict():
        table = _results(measured)
    else:
        table = [
            f"Not measured yet: run `relpe-train evaluate --weights {weights}`, then export again."
        ]
    with replacing(output / "README.md") as path:
        path.write_text("\n".join([*_head(output.name, description, origin, licence), *table, ""]))
    return output


def _head(name: str, run: dict[str, Any], origin: Origin, licence: str) -> list[str]:
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
        f"- Weights: `{origin.file}`, step {origin.step or 0:,}, {origin.tokens or 0:,} tokens.",
        f"- Command: `{run['command']}`",
        f"- Commit: {run['commit'] or 'unknown'}",
        f"- Machine: {run['machine']}, {run['threads']} threads, {run['precision']}; "
        f"torch {run['torch']}, Lightning {run['lightning']}.",
        "",
    ]


def _results(measured: dict[str, Any]) -> list[str]:
    rows: list[tuple[str, dict[str, float]]] = []
    for key, value in measured.items():
        if key.startswith("windows_"):
            rows.append((f"windows of {key.removeprefix('windows_')} tokens, no overlap", value))
        elif key == "streaming":
            rows.append(("whole pieces, state carried on", value))
        elif key.endswith("-gram"):
            rows.extend((f"{key}, {name}", values) for name, values in value.items())
    table = [
        f"| {name} | {figure(values, 'nats_per_token', 4)} | {figure(values, 'nats_per_note', 3)} |"
        for name, values in rows
    ]
    by_position = measured["by_position"]
    draws = measured["draws"]
    spread = f" Mean ± standard deviation over {draws} draws of the noise." if draws > 1 else ""
    return [
        f"## Measured on the {measured['split']} split",
        "",
        f"{measured['pieces']} pieces, {measured['tokens']:,} tokens, {measured['notes']:,} notes."
        + spread,
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
