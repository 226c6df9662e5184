"""HTML of the About tab: how the page works, its models, their licences and measured results."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from app.compose.plan.asked import styles_of
from app.text import listed, plural
from app.web.assets import SCRIPTS, static
from tokenization.remi.remi import Remi

if TYPE_CHECKING:
    from pathlib import Path

    from app.compose.models import Models, MusicModel

_ENCODINGS = {
    "sine_spe": ("random sine waves", "sine stochastic positional encoding"),
    "conv_spe": ("filtered noise", "convolutional stochastic positional encoding"),
    "siren_spe": (
        "noise filtered by a small network",
        "stochastic positional encoding with SIREN filters",
    ),
    "algebraic": ("rotations", "algebraic positional encoding"),
    "siren": ("a learned function of the distance", "SIREN offset encoding"),
    "rope": ("rotations at fixed speeds", "rotary positional encoding"),
}
"""Positional encodings in plain words, and by name."""
_MEANT_FOR = {
    "piano": "solo piano",
    "groove": "bands with drums",
    "piano-spe": "solo piano, a small model with random sine waves",
    "piano-algebraic": "solo piano, a small model with rotations",
    "piano-siren": "solo piano, a small model with a learned function of the distance",
}

_TEXTS = static("about.html")
ABOUT_SCRIPT = SCRIPTS.script("about.js")


class _Label(NamedTuple):
    """A text in plain words, and the exact term if that differs."""

    words: str
    exact: str = ""


_NOTHING = _Label("")
_POINTER = "whole pieces, with pointer"
_PLAIN = {_POINTER: _Label("whole pieces, with the memory of earlier bars", _POINTER)}
"""Cells of the tables of results in plain words."""


def about(models: Models, *, keep: bool = False) -> str:
    """Return the HTML of the About tab; `keep`: whether the page keeps the music."""
    cards = "".join(_card(models, name) for name in models.names)
    kept = "stay there until its owner removes them" if keep else "are removed within a day"
    texts = _TEXTS.replace("@kept@", kept)
    models_html = f"<div><h2>Models</h2>{cards}</div>"
    return f"<div class='about'><div class='texts'>{texts}</div>{models_html}</div>"


def model_line(models: Models, name: str) -> str:
    """Return a model in one line: its purpose and size."""
    parts = [
        _MEANT_FOR.get(name, ""),
        _weights(models.load(name).parameters),
        _described(models.folder(name)).get("size", _NOTHING).words,
    ]
    line = " · ".join(part for part in parts if part)
    return line[:1].upper() + line[1:]


def _abilities(tokenizer: Remi) -> str:
    """Return what a model can be asked for."""
    families, styles = tokenizer.families, styles_of(tokenizer)
    can = ["continue a piece", "write one from nothing", "write bars again", "follow a form"]
    can.append("end a piece")
    if families.only_track < 0:
        can.append("write single and new tracks")
    if styles:
        can.append(f"write in {plural(len(styles), 'style')}")
    return listed(can)


def _weights(number: int) -> str:
    """Return the number of weights, rounded."""
    return f"{number / 1e6:.1f} M weights" if number >= 1e5 else f"{number:,} weights"


def _card(models: Models, name: str) -> str:
    folder, model = models.folder(name), models.load(name)
    described = _described(folder)
    readme = _text(folder, "README.md")
    size = described.get("size", _NOTHING).words
    rows = {
        "For": _Label(_MEANT_FOR.get(name, "")),
        "Can": _Label(_abilities(model.tokenizer)),
        "Positional encoding": described.get("encoding", _NOTHING),
        "Memory": described.get("attention", _NOTHING),
        "Size": _Label(f"{model.parameters:,} weights, {size}".rstrip(", ")),
        "Runs on": _runs_on(model),
        "Trained on": _Label(_said(readme, "Data")),
        "Training": _Label(_training(folder)),
        "Licence of the data": _Label(_said(readme, "Licence of the data")),
    }
    cells = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{_shown(label)}</dd>"
        for key, label in rows.items()
        if label.words
    )
    return (
        f"<article><h3>{html.escape(name)}</h3><dl class='terms'>{cells}</dl>"
        f"{_results(readme)}</article>"
    )


def _shown(label: _Label) -> str:
    """Return the words, with the exact term as their tooltip."""
    if not label.exact:
        return html.escape(label.words)
    return f"<span title='{html.escape(label.exact)}'>{html.escape(label.words)}</span>"


def _runs_on(model: MusicModel) -> _Label:
    """Return the device, backend and precision of a model."""
    words = "graphics card" if model.device.type == "cuda" else "processor"
    words += ", compiled code" if "compiled" in model.backend else ""
    words += ", 8-bit weights" if "int8" in model.backend else ""
    return _Label(words, model.backend)


def _text(folder: Path | None, name: str) -> str:
    path = folder / name if folder else None
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _described(folder: Path | None) -> dict[str, _Label]:
    """Return the encoding, attention and size of a model on disk, in words.

    The dict is empty if it is not on disk.
    """
    text = _text(folder, "model.json")
    if not text or folder is None:
        return {}
    model: dict[str, Any] = json.loads(text)
    decoder = model["decoder"]
    layers: list[dict[str, Any]] = decoder.get("layers") or [decoder]
    unit = "events" if decoder.get("events") else "tokens"
    size = sum((folder / name).stat().st_size for name in model["weights"])
    return {
        "encoding": _joined([_encoding(layer["encoding"]) for layer in layers]),
        "attention": _joined([_attention(layer["attention"], unit) for layer in layers]),
        "size": _Label(f"{size / 1e6:.0f} MB" if size >= 1e6 else f"{size / 1e3:.0f} kB"),
    }


def _joined(labels: list[_Label]) -> _Label:
    """Return different labels as one, in their order."""
    words, exact = (listed([*dict.fromkeys(texts)]) for texts in zip(*labels, strict=True))
    return _Label(words, exact)


def _encoding(encoding: dict[str, Any]) -> _Label:
    kind: str = encoding["kind"]
    words, exact = _ENCODINGS.get(kind, (kind.replace("_", " "), kind))
    if encoding.get("initialization") == "rope":
        words, exact = f"{words} at learned speeds", f"{exact}, initialised as rotary"
    return _Label(words, exact)


def _attention(attention: dict[str, Any], unit: str) -> _Label:
    """Return what a layer remembers, in units of its positions, and the kind of its attention."""
    kind: str = attention["kind"]
    exact = f"{kind} attention"
    if kind == "windowed":
        exact += f" over {attention['span']:,} {unit}"
    features = attention.get("feature_map", {}).get("kind")
    summary = f"all earlier {unit}, in a summary of constant size"
    remembers = {
        "windowed": f"the last {attention.get('span', 0):,} {unit}, exactly",
        "linear": summary,
        "delta": summary,
        "softmax": f"all earlier {unit}, exactly",
    }.get(kind, kind)
    return _Label(remembers, exact + (f", {features} features" if features else ""))


def _training(folder: Path | None) -> str:
    text = _text(folder, "training.json")
    if not text:
        return ""
    runs: list[dict[str, Any]] = json.loads(text)["history"]
    tokens, steps = (sum(run.get(name) or 0 for run in runs) for name in ("tokens", "steps"))
    return f"{tokens / 1e6:.1f} M tokens in {steps:,} steps" if tokens else ""


def _said(readme: str, what: str) -> str:
    """Return the text of the line `- What: …` in a model's README, without backquotes."""
    match = re.search(rf"^- {re.escape(what)}: (.+)$", readme, re.MULTILINE)
    text = re.sub(r"; prepared corpus `\w+`", "", match[1]) if match else ""
    return text.replace("`", "")


def _results(readme: str) -> str:
    """Return the first table below the heading `Measured …` of a model's README."""
    _, _, measured = readme.partition("\n## Measured")
    table = re.search(r"(?:^\|.+\n)+", measured, re.MULTILINE)
    if table is None:
        return ""
    rows = [
        [_shown(_PLAIN.get(cell, _Label(cell))) for cell in line.strip("| ").split(" | ")]
        for line in table[0].splitlines()
    ]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[2:]
    )
    return (
        "<p class='measured'>Prediction error on pieces that were not used for training, in nats "
        "per token; lower is better.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
