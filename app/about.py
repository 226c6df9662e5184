"""What the page says about itself: how it works, its models with licences and measured results."""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from app.models import Models

_ENCODINGS = {
    "sine_spe": "sine stochastic positional encoding",
    "conv_spe": "convolutional stochastic positional encoding",
    "siren_spe": "stochastic positional encoding with SIREN filters",
    "algebraic": "algebraic positional encoding",
    "siren": "SIREN offset encoding",
    "rope": "rotary positional encoding",
}
_MEANT_FOR = {
    "piano": "solo piano",
    "piano-spe": "solo piano, with a state of constant size",
    "groove": "bands with drums",
}

_HOW = """
<section><h2>How it works</h2>
<p>A piece becomes a row of tokens: bar, position, pitch, length, loudness. A network that was
trained on many pieces reads the last bars of yours and then writes one token after the other,
each drawn from what it thinks likely; a grammar keeps every token legal. The tokens become notes
again, and these are appended to your file, which stays as it is, event for event.</p>
<p>The models here are small, and their attention never holds a table of all pairs of tokens. That
is why they run on a laptop without a graphics card, for pieces of any length. What such attention
lacks is a sense of <em>how far apart</em> two notes are; the positional encodings of this project
give it back.</p>
<p>Everything runs on the machine that serves this page. Nothing is sent anywhere else; your files
@kept@.</p></section>
<section><h2>Using it</h2>
<dl class="terms">
<dt>Region</dt><dd>The model hears the last 8 bars before the new music. Drag the two handles in the
roll's ruler for others; what follows the region is cut off, what is before it stays.</dd>
<dt>Tracks</dt><dd>Of a band you can choose which tracks the model hears, which of them play on, and
which you want to listen to.</dd>
<dt>Seed</dt><dd>The same seed with the same settings makes the same music. Every download says its
seed in the name. Its file <em>Settings</em> holds all of them: drop that where MIDI files go to
make the piece again.</dd>
<dt>Creativity</dt><dd>Safe takes likely notes, Wild dares more. Key, density and repetition lead
the music and do not force it.</dd>
<dt>Beats</dt><dd>A recording of someone who plays often knows nothing of beats. Then they can be
estimated from the notes, or taken from a clock.</dd>
<dt>Stop, Discard, Undo</dt><dd>Stop keeps what is written, Discard drops it, Undo goes one step
back. Results of this session stay in the list below the player.</dd>
</dl></section>
<section><h2>Keys</h2>
<dl class="terms keys">
<dt><kbd>Space</kbd></dt><dd>play and pause</dd>
<dt><kbd>1</kbd> – <kbd>4</kbd></dt><dd>choose a variation</dd>
<dt><kbd>←</kbd> <kbd>→</kbd></dt><dd>bar by bar, when the roll is selected</dd>
<dt><kbd>+</kbd> <kbd>−</kbd></dt><dd>zoom, when the roll is selected</dd>
</dl></section>
<section><h2>From scripts</h2>
<p>The page can be called from Python, with the defaults of the commands; <code>view_api()</code>
lists all calls and their arguments.</p>
<pre><code>from gradio_client import Client, handle_file

client = Client("http://127.0.0.1:7860")
files, facts = client.predict(
    handle_file("song.mid"), bars=16, seed=1,
    api_name="/continue",
)</code></pre>
<p>Without a page: <code>relpe continue song.mid --output more.mid</code>, and
<code>relpe generate</code>, <code>relpe batch</code>.</p></section>
"""


def about(models: Models, *, keep: bool = False) -> str:
    """The tab About, as HTML; `keep` says that the music is kept."""
    cards = "".join(_card(models, name) for name in models.names)
    kept = "stay there until its owner removes them" if keep else "are removed within a day"
    texts = _HOW.replace("@kept@", kept)
    models_told = f"<div><h2>Models</h2>{cards}</div>"
    return f"<div class='about'>{models_told}<div class='texts'>{texts}</div></div>"


def model_line(models: Models, name: str) -> str:
    """What a model is, in one line: what for, encoding, size."""
    described = _described(models.folder(name))
    parts = [
        _MEANT_FOR.get(name, ""),
        described.get("encoding", ""),
        f"{models.load(name).parameters / 1e6:.1f} M weights",
        described.get("size", ""),
    ]
    line = " · ".join(part for part in parts if part)
    return line[:1].upper() + line[1:]


def _card(models: Models, name: str) -> str:
    folder, model = models.folder(name), models.load(name)
    described = _described(folder)
    readme = _text(folder, "README.md")
    device = "graphics card" if model.device.type == "cuda" else "processor"
    rows = {
        "For": _MEANT_FOR.get(name, ""),
        "Encoding": described.get("encoding", ""),
        "Attention": described.get("attention", ""),
        "Size": f"{model.parameters:,} weights, {described.get('size', '')}".rstrip(", "),
        "Runs on": f"{device}, {model.backend}",
        "Trained on": _said(readme, "Data"),
        "Training": _training(folder),
        "Licence of the data": _said(readme, "Licence of the data"),
    }
    cells = "".join(
        f"<dt>{html.escape(key)}</dt><dd>{html.escape(text)}</dd>"
        for key, text in rows.items()
        if text
    )
    return (
        f"<article><h3>{html.escape(name)}</h3><dl class='terms'>{cells}</dl>"
        f"{_results(readme)}</article>"
    )


def _text(folder: Path | None, name: str) -> str:
    path = folder / name if folder else None
    return path.read_text(encoding="utf-8") if path and path.is_file() else ""


def _described(folder: Path | None) -> dict[str, str]:
    """Encoding, attention and size of a model on disk, in words; nothing where it is not there."""
    text = _text(folder, "model.json")
    if not text or folder is None:
        return {}
    model: dict[str, Any] = json.loads(text)
    decoder = model["decoder"]
    encoding, attention = decoder["encoding"], decoder["attention"]
    kind: str = encoding["kind"]
    words = _ENCODINGS.get(kind, kind.replace("_", " "))
    if encoding.get("initialization") == "rope":
        words += ", learned from rotary"
    size = sum((folder / name).stat().st_size for name in model["weights"])
    kind = attention["kind"]
    exact = f"exact within {attention['span']:,} tokens" if kind == "windowed" else f"{kind}"
    features = attention.get("feature_map", {}).get("kind")
    return {
        "encoding": words,
        "attention": f"{exact}, {features} features" if features else exact,
        "size": f"{size / 1e6:.0f} MB",
    }


def _training(folder: Path | None) -> str:
    text = _text(folder, "training.json")
    if not text:
        return ""
    runs: list[dict[str, Any]] = json.loads(text)["history"]
    tokens, steps = (sum(run.get(name) or 0 for run in runs) for name in ("tokens", "steps"))
    return f"{tokens / 1e6:.1f} M tokens in {steps:,} steps" if tokens else ""


def _said(readme: str, what: str) -> str:
    """A line `- What: …` of a model's README, without its marks."""
    match = re.search(rf"^- {re.escape(what)}: (.+)$", readme, re.MULTILINE)
    text = re.sub(r"; prepared corpus `\w+`", "", match[1]) if match else ""
    return text.replace("`", "")


def _results(readme: str) -> str:
    """The first table of a model's README: what was measured on its test split."""
    table = re.search(r"(?:^\|.+\n)+", readme, re.MULTILINE)
    if table is None:
        return ""
    rows = [
        [html.escape(cell.strip()) for cell in line.strip("|").split("|")]
        for line in table[0].splitlines()
    ]
    head = "".join(f"<th>{cell}</th>" for cell in rows[0])
    body = "".join(
        "<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows[2:]
    )
    return (
        "<p class='measured'>Measured on pieces it has never seen; fewer nats are better.</p>"
        f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )
