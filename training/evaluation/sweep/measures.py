"""What was measured of a run, as numbers with names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from training.evaluation.results import music_by_key, reading_label, readings


class Measure(NamedTuple):
    """A number and its unit."""

    value: float
    unit: str


def measures(results: Mapping[str, Any]) -> dict[str, Measure]:
    """All measures in a results.json by name, for any task; the first is the main one."""
    found: dict[str, Measure] = {}
    if "accuracy" in results:
        found["accuracy"] = Measure(100 * results["accuracy"], "%")
    sizes = results.get("answers", {})
    # the largest size in training first
    for size in sorted(sizes, key=lambda size: (size != str(results["size"]), int(size))):
        found[f"token accuracy, {size}"] = Measure(100 * sizes[size]["tokens"], "%")
    for size in sorted(sizes, key=int):
        found[f"exact match, {size}"] = Measure(100 * sizes[size]["examples"], "%")
    sizes = results.get("transduced", {})
    for size in sorted(sizes, key=lambda size: (size != str(results["size"]), int(size))):
        found[f"perplexity, {size}"] = Measure(sizes[size]["perplexity"], "")
        found[f"exact match, {size}"] = Measure(100 * sizes[size]["exact"], "%")
    for search, quality in results.get("translated", {}).items():
        if search != "source":  # which no run changes
            found[f"BLEU, {search}"] = Measure(quality["bleu"], "")
            found[f"chrF, {search}"] = Measure(quality["chrf"], "")
            found[f"exact match, {search}"] = Measure(quality["exact"], "%")
    if "translated" in results:
        found["perplexity"] = Measure(results["perplexity"], "")
    for key, values in readings(results).items():
        found[f"nats per token, {reading_label(key)}"] = Measure(values["nats_per_token"], "nats")
    # those of a class or forecast
    for key, value in {**results, **results.get("figures", {})}.items():
        unit, per, of = key.partition("_per_")
        if per and isinstance(value, float):
            found[f"{unit} per {of.replace('_', ' ')}"] = Measure(value, unit)
    for key, music in music_by_key(results).items():
        for profile, groups in music["style"]["exact"].items():
            for quarter, value in enumerate(groups["generated"]["mean"], 1):
                name = f"{key} style {profile}, quarter {quarter}".replace("_", " ")
                found[name] = Measure(value, "cosine")
    return found
