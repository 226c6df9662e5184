"""What was measured of a run, as numbers with names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from training.evaluation.results import music_by_key, reading_label, readings


class MeasuredValue(NamedTuple):
    """A number and its unit."""

    value: float
    unit: str


def measures(results: Mapping[str, Any]) -> dict[str, MeasuredValue]:
    """Return all measures in a results.json by name, for any task; the first is the main one."""
    by_name: dict[str, MeasuredValue] = {}
    if "accuracy" in results:
        by_name["accuracy"] = MeasuredValue(100 * results["accuracy"], "%")
    sizes = results.get("answers", {})
    # the largest size in training first
    for size in sorted(sizes, key=lambda size: (size != str(results["size"]), int(size))):
        by_name[f"token accuracy, {size}"] = MeasuredValue(100 * sizes[size]["tokens"], "%")
    for size in sorted(sizes, key=int):
        by_name[f"exact match, {size}"] = MeasuredValue(100 * sizes[size]["examples"], "%")
    sizes = results.get("transduced", {})
    for size in sorted(sizes, key=lambda size: (size != str(results["size"]), int(size))):
        by_name[f"perplexity, {size}"] = MeasuredValue(sizes[size]["perplexity"], "")
        by_name[f"exact match, {size}"] = MeasuredValue(100 * sizes[size]["exact"], "%")
    for search, quality in results.get("translated", {}).items():
        if search != "source":  # which no run changes
            by_name[f"BLEU, {search}"] = MeasuredValue(quality["bleu"], "")
            by_name[f"chrF, {search}"] = MeasuredValue(quality["chrf"], "")
            by_name[f"exact match, {search}"] = MeasuredValue(quality["exact"], "%")
    if "translated" in results:
        by_name["perplexity"] = MeasuredValue(results["perplexity"], "")
    for key, values in readings(results).items():
        by_name[f"nats per token, {reading_label(key)}"] = MeasuredValue(
            values["nats_per_token"], "nats"
        )
    # those of a class or forecast
    for key, value in {**results, **results.get("figures", {})}.items():
        unit, per, of = key.partition("_per_")
        if per and isinstance(value, float):
            by_name[f"{unit} per {of.replace('_', ' ')}"] = MeasuredValue(value, unit)
    for key, music in music_by_key(results).items():
        for profile, groups in music["style"]["exact"].items():
            for quarter, value in enumerate(groups["generated"]["mean"], 1):
                name = f"{key} style {profile}, quarter {quarter}".replace("_", " ")
                by_name[name] = MeasuredValue(value, "cosine")
    return by_name
