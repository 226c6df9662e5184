"""HTML of an upload, and of the results of a session."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from app.compose.prompt.report import TrackFacts
from app.player.frames import Frame, TrackFrame, VariationFrame
from app.server.uploads import Upload
from app.text import plural
from app.web.assets import SCRIPTS
from app.web.session import Session

CARD_SCRIPT = SCRIPTS.script("card.js", ("forget", "too_large", "drums"))
RESULTS_SCRIPT = SCRIPTS.script("results/cards.js", ("back", "clear", "opened"))
RESTS = "does not play in the new music"
_DRUMS = "Whether this track is drums; so are all tracks that share its channel."
_MOST_ROWS = 40
_MOST_NOTES = 300
"""About as many notes are drawn on a card."""


def card(upload: Upload) -> str:
    """Return the HTML that describes an upload, most of it folded."""
    facts = upload.prompt.facts
    seconds = int(upload.whole.facts.seconds)
    brief = [
        plural(upload.whole.bars, "bar"),
        facts.metre,
        f"{facts.bpm:.0f} bpm",
        *([upload.sheet.key] if upload.sheet.key and any(upload.sheet.chords) else []),
    ]
    size = f"{seconds // 60}:{seconds % 60:02d}, {plural(upload.whole.facts.notes, 'note')}"
    shown = [notice for notice in facts.notices if notice != upload.whole.facts.beats_notice]
    notices = "".join(f"<li>{html.escape(sentence(notice))}</li>" for notice in shown)
    summary, tracks = _tracks(upload)
    return (
        f"<article class='card'><header><h2>{html.escape(upload.title)}</h2>"
        "<button type='button' data-forget aria-label='Remove the file' title='Remove the file'>"
        f"×</button></header><p>{html.escape(' · '.join(brief))}</p>"
        + (f"<ul class='notices'>{notices}</ul>" if notices else "")
        + f"<details><summary>{summary}</summary><p>{size}</p>{tracks}</details>"
        f"<p class='used'>{html.escape(_used(upload))}</p></article>"
    )


def refused(reason: str, before: Upload | None = None) -> str:
    """Return the HTML of why a file is refused, and of the upload `before`, which is kept."""
    kept = f" {before.title} is still loaded." if before else ""
    return f"<p class='refused' role='alert'>{html.escape(sentence(reason) + kept)}</p>"


def said(message: str) -> str:
    """Return the HTML of a message about an upload."""
    return f"<p class='said' role='status'>{html.escape(message)}</p>"


def _used(upload: Upload) -> str:
    """Return the bars that the model reads and writes."""
    if upload.passage is not None:
        if upload.problem:
            return upload.problem
        return f"The model writes {upload.written}; everything else stays as it is."
    first, last = upload.first_bar, upload.bars
    which = f"bar {last}" if first == last else f"bars {first:,} to {last:,}"
    return f"Reads {which}; new music begins in bar {last + 1:,}."


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop.

    The name of a file at its start stays as it is.
    """
    text = text.strip()
    if not text:
        return ""
    is_named = re.match(r"[^:]+\.\w+:", text)
    begins = text if is_named else text[:1].upper() + text[1:]
    return begins if begins.endswith((".", "!", "?")) else f"{begins}."


def _tracks(upload: Upload) -> tuple[str, str]:
    """Return how many tracks the model reads, and a row per track.

    A row has name, instrument, drums, notes, and why the model does not read the track.
    """
    rows, parts = upload.prompt.facts.rows, upload.prompt.parts
    if not rows:
        return "Details", ""
    played = [parts.may_play(track) for track in upload.whole.score.tracks]
    used, may_play = sum(row.heard for row in rows), sum(played)
    if len(rows) == 1:
        which = "it" if used else "none of it"
    else:
        which = "all" if used == len(rows) else str(used)
    summary = f"{plural(len(rows), 'track')}: the model reads {which}"
    if upload.passage is not None:
        played = [True] * len(rows)  # the table beside the roll shows which ones are written
    summary += f", {may_play} may play in the new music" * (sum(played) < len(rows))
    items = "".join(map(_track, rows[:_MOST_ROWS], played))
    more = len(rows) - _MOST_ROWS
    items += f"<li class='more'>and {more} more</li>" if more > 0 else ""
    return summary, f"<ul class='tracks'>{items}</ul>"


def _track(row: TrackFacts, plays_on: bool) -> str:
    is_named = row.drums or row.instrument.lower() in row.name.lower()
    plays = "" if is_named else f" <em>{html.escape(row.instrument)}</em>"
    switch = (
        f"<button type='button' data-drums='{row.id}' aria-pressed='{str(row.drums).lower()}' "
        f"aria-label='{html.escape(row.name)} is drums' title='{_DRUMS}'>drums</button>"
    )
    texts = "; ".join(part for part in (row.why, "" if plays_on else RESTS) if part)
    why = f"<small>{html.escape(texts)}</small>" if texts else ""
    return (
        f"<li class='{'heard' if row.heard else 'unheard'}'><b>{html.escape(row.name)}</b>{plays}"
        f"{switch}<span>{row.notes:,}</span>{why}</li>"
    )


def results_value(session: Session) -> dict[str, object]:
    """Return what the page's list of results shows: see results/cards.js.

    They are the result that is shown with a card for each variation, and the jobs that the server
    knows, some of which were discarded.
    """
    frame = session.work.frame
    job = frame.get("job", "") if session.request is not None else ""
    return {
        "job": job,
        "cards": _result_cards(frame) if job else [],
        "known": [one.step.frame.get("job", "") for one in session.results],
        "discarded": sorted(session.discarded),
    }


def _result_cards(frame: Frame) -> list[dict[str, object]]:
    """Return a card for each variation of a result."""
    rows = frame.get("variations", [])
    cards: list[dict[str, object]] = []
    for number, row in enumerate(rows):
        texts = [frame.get("subtitle", ""), sentence(row.get("accidents", "")).rstrip(".")]
        name = frame.get("title", "")
        cards.append(
            {
                "job": frame.get("job", ""),
                "variation": number,
                "name": f"{name} {number + 1}" if len(rows) > 1 else name,
                "text": " · ".join(filter(None, texts)),
                "best": row.get("best", False),
                "roll": small_roll(frame, row),
            }
        )
    return cards


def small_roll(frame: Frame, row: VariationFrame) -> str:
    """Return the notes of a variation as SVG, those of the prompt paler; at most `_MOST_NOTES`."""
    prompt = frame.get("prompt")
    layers = [_notes(prompt["tracks"]) if prompt else [], _notes(row.get("tracks", []))]
    every = [note for notes in layers for note in notes]
    end = max((on + size for on, size, _ in every), default=1)
    low, high = min((n[2] for n in every), default=0), max((n[2] for n in every), default=1)
    paths = []
    for kind, notes in zip(("old", "new"), layers, strict=True):
        bars = "".join(
            f"M{160 * on // end} {38 - 34 * (pitch - low) // max(high - low, 1)}"
            f"h{max(160 * size // end, 1)}"
            for on, size, pitch in notes[:: len(every) // _MOST_NOTES + 1]
        )
        paths.append(f"<path class='{kind}' d='{bars}'/>")
    shape = "viewBox='0 0 160 40' preserveAspectRatio='none'"
    return f"<svg {shape} aria-hidden='true'>{''.join(paths)}</svg>"


def _notes(tracks: Sequence[TrackFrame]) -> list[list[int]]:
    """Return onset, duration and pitch of packed notes, see `pack_tracks`."""
    texts = (text for track in tracks for text in track["notes"].split(";") if text)
    return [[int(number) for number in text.split(",")[:3]] for text in texts]
