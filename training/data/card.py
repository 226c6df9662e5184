"""The data card of a prepared corpus, as Markdown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tokenization.remi.losses import Losses
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import TEMPO_GRID
from training.data.corpus_writer import COUNTS, LISTS


def card(data: dict[str, Any], tokenizer: Remi) -> str:
    """Return the data card of a corpus in Markdown; `data` is the contents of `data.json`."""
    counts = data["listed"]
    columns = ("files", "bars", "notes", "tokens", *COUNTS)
    rows = [
        f"| {split} | "
        + " | ".join(f"{facts[key]:,}" for key in columns)
        + f" | {facts['tokens'] / max(facts['notes'], 1):.2f} |"
        for split, facts in data["splits"].items()
    ]
    refused, damaged, copies, moved = (_listed(data, key) for key in LISTS)
    taken = f", files {data['include']}" if data["include"] else ""
    low, high = (_whole(bpm) for bpm in TEMPO_GRID[[0, -1]].tolist())
    return "\n".join(
        [
            f"# {data['source']} as tokens",
            "",
            f"Made by `relpe-train prepare` from {data['source']}{taken}, with the tokenizer "
            f"`{tokenizer.config.kind}` of {len(tokenizer.vocabulary)} ids. Hash of all tokens: "
            f"`{data['hash']}`.",
            "",
            *(f"- {warning}." for warning in data["warnings"]),
            *([""] if data["warnings"] else []),
            f"| split | {' | '.join(key.replace('_', ' ') for key in columns)} | tokens per note |",
            "|---|" + "---|" * (len(columns) + 1),
            *rows,
            "",
            "Clipped: notes shortened to the maximum "
            "duration. Merged: notes left out because another note has the same pitch and "
            f"position. Tempos scaled: tempos outside {low} to {high}, halved or doubled together "
            "with their beats, so that the music keeps its speed. Tempos clipped: tempos that this "
            "does not bring into the range.",
            "",
            *_corpora(data),
            "## Losses",
            "",
            "Tokens do not contain the following. The sustain pedal lengthens notes; its changes "
            "themselves are not in the tokens.",
            "",
            "| part | drum notes | sustain pedal changes | other controllers | pitch bends | "
            "tempos rounded | mean shift of a note | mean shift of a file's end |",
            "|---|---|---|---|---|---|---|---|",
            *(_losses(split, facts) for split, facts in data["splits"].items()),
            *_losses_of_corpora(data),
            "",
            f"{counts['refused']:,} files refused, {counts['unassigned']:,} in no split.",
            "",
            refused,
            f"{counts['damaged']:,} files read in part.",
            "",
            damaged,
            f"{counts['copies']:,} copies of other pieces left out.",
            "",
            copies,
            f"{counts['moved']:,} pieces moved to the split of a piece with the same melody.",
            "",
            moved,
        ]
    )


def _whole(bpm: float) -> str:
    return f"{bpm:.0f}"


def _corpora(data: dict[str, Any]) -> list[str]:
    """Return the section about the corpora, as Markdown."""
    rows: list[str] = []
    for one in data["corpora"]:
        numbers = {
            key: " / ".join(f"{facts[key]:,}" for facts in one["splits"].values())
            for key in ("files", "notes", "tokens")
        }
        of_train = one["splits"]["train"]
        notes = max(of_train["notes"], 1)
        rows.append(
            f"| {one['name']} | {one['weight']:.1%} | {' | '.join(numbers.values())} | "
            f"{of_train['one_velocity'] / notes:.0%} | {of_train['default_tempo'] / notes:.0%} | "
            f"{one['filtered']:,} | {one['refused']:,} | {one['copies']:,} | {one['moved']:,} |"
        )
    parts = " / ".join(data["splits"])
    return [
        "## Corpora",
        "",
        f"| corpus | weight | pieces, {parts} | notes | tokens | notes with one velocity | "
        "notes with a default tempo | not chosen | refused | copies | moved |",
        "|---|" + "---|" * 10,
        *rows,
        "",
        "Weight: share of training examples. One velocity, default tempo: share of the training "
        "notes that are in pieces with a single velocity, or with the default tempo of a notation "
        "program; these are read but not predicted. Not chosen: files that the mixture leaves out.",
        "",
        *(credit(one) for one in data["corpora"]),
        "",
        *_choices(data["corpora"]),
        *([f"Styles: {', '.join(data['styles'])}.", ""] if data["styles"] else []),
    ]


def credit(corpus: Mapping[str, Any]) -> str:
    """Return licence, attribution, changes and address of a corpus as a Markdown list's item."""
    changes = f" Changes: {corpus['changes']}." if corpus["changes"] else ""
    address = corpus["address"]
    parts = [corpus["attribution"], "" if address in corpus["attribution"] else address]
    whom = " ".join(f"{part.rstrip('.')}." for part in parts if part)
    return f"- {corpus['name']}: licence {corpus['licence']}. {whom}{changes}".rstrip()


def _choices(corpora: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return which files of the corpora are prepared, as Markdown; empty if all are."""
    rules = [text for text in map(_describe_rules, corpora) if text]
    return ["Chosen files:", "", *rules, ""] if rules else []


def _describe_rules(corpus: Mapping[str, Any]) -> str:
    """Return which files of a corpus are prepared, as a Markdown list item; empty if all are."""
    rules = [f"files `{corpus['include']}`"] if corpus["include"] else []
    rules += [f"`{key}` matches `{value}`" for key, value in (corpus["pieces"] or {}).items()]
    rules += ["all pieces are for training"] if corpus["train_only"] else []
    return f"- {corpus['name']}: {'; '.join(rules)}." if rules else ""


def _losses_of_corpora(data: dict[str, Any]) -> list[str]:
    """Return the rows of the corpora in the table of losses, if there are several."""
    if len(data["corpora"]) < 2:
        return []
    rows: list[str] = []
    for one in data["corpora"]:
        of_splits = [*one["splits"].values()]
        facts = {key: sum(some[key] for some in of_splits) for key in ("notes", "files")}
        lost = {key: sum(some["losses"][key] for some in of_splits) for key in Losses._fields}
        rows.append(_losses(one["name"], facts | {"losses": lost}))
    return rows


def _losses(name: str, facts: Mapping[str, Any]) -> str:
    """Return a row of the table of losses."""
    lost = Losses(**facts["losses"])
    numbers = " | ".join(f"{number:,}" for number in lost[:-2])
    shift = lost.onset_microseconds / 1e3 / max(facts["notes"], 1)
    drift = lost.drift_milliseconds / 1e3 / max(facts["files"], 1)
    return f"| {name} | {numbers} | {shift:.1f} ms | {drift:.2f} s |"


def _listed(data: dict[str, Any], key: str) -> str:
    """Return the first entries of a list, and the file that has the others."""
    first = "".join(f"- {name}: {reason}\n" for name, reason in data[key].items())
    more = data["listed"][key] - len(data[key])
    return first + (f"- and {more:,} more in `{key}.txt`\n" if more else "")
