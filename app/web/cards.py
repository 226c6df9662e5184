"""HTML of a tab's upload, and of the results of a session."""

from __future__ import annotations

import html
import re
import time

from app.compose.prompt_report import OFF_GRID, TrackFacts
from app.server.uploads import Upload
from app.text import plural
from app.web.assets import SCRIPTS
from app.web.session import Session

CARD_SCRIPT = SCRIPTS.script("card.js", ("forget", "too_large"))
RESULTS_SCRIPT = SCRIPTS.script("results.js", ("back", "opened"))
OFF_GRID_HERE = (
    "It was played freely: its notes do not lie on the file's beats, and its bars mean nothing to "
    "the model. Let the beats be estimated below."
)
RESTS = "does not play on"
_MOST_ROWS = 40


def card(upload: Upload, why: str) -> str:
    """The content of an upload; `why` says why this model continues it."""
    facts = upload.prompt.facts
    seconds = int(upload.whole.facts.seconds)
    cells = {
        "Length": f"{seconds // 60}:{seconds % 60:02d}",
        "Bars": f"{upload.whole.bars:,}",
        "Metre": facts.metre,
        "Tempo": f"{facts.bpm:.0f} bpm",
        "Notes": f"{upload.whole.facts.notes:,}",
        "Tracks": f"{facts.tracks}",
    }
    numbers = "".join(
        f"<div><dt>{name}</dt><dd>{html.escape(text)}</dd></div>" for name, text in cells.items()
    )
    told = (OFF_GRID_HERE if notice == OFF_GRID else notice for notice in facts.notices)
    notices = "".join(f"<li>{html.escape(_sentence(notice))}</li>" for notice in told)
    return (
        f"<article class='card'><header><h2>{html.escape(upload.title)}</h2>"
        "<button type='button' data-forget aria-label='Take the file away' title='Take the file "
        "away'>×</button></header>"
        f"<dl>{numbers}</dl>{_tracks(upload)}"
        f"<p class='used'>{html.escape(_used(upload))} {html.escape(why)}</p>"
        + (f"<ul class='notices'>{notices}</ul>" if notices else "")
        + "</article>"
    )


def refused(sentence: str) -> str:
    """A refusal of a file."""
    return f"<p class='refused' role='alert'>{html.escape(_sentence(sentence))}</p>"


def said(sentence: str) -> str:
    """A message on an upload."""
    return f"<p class='said' role='status'>{html.escape(sentence)}</p>"


def _used(upload: Upload) -> str:
    """The bars that the model reads, and the bar in which new music begins."""
    first, last = upload.first_bar, upload.bars
    which = f"bar {last}" if first == last else f"bars {first:,} to {last:,}"
    return f"The model hears {which}; new music begins in bar {last + 1:,}."


def _sentence(text: str) -> str:
    """A text with a capital and a full stop; the name of a file at its start stays as it is."""
    text = text.strip()
    is_named = re.match(r"[^:]+\.\w+:", text)
    begins = text if is_named else text[:1].upper() + text[1:]
    return begins if begins.endswith((".", "!", "?")) else f"{begins}."


def _tracks(upload: Upload) -> str:
    """A row for each track: name, instrument, notes, why the model does not read it."""
    rows, parts = upload.prompt.facts.rows, upload.prompt.parts
    if not rows:
        return ""
    played = [parts.may_play(track) for track in upload.whole.score.tracks]
    used, going_on = sum(row.heard for row in rows), sum(played)
    summary = f"{plural(len(rows), 'track')}, " + (
        "heard" if used == len(rows) == 1 else f"{'all' if used == len(rows) else used} heard"
    )
    summary += f", {going_on} {'plays' if going_on == 1 else 'play'} on" * (going_on < len(rows))
    items = "".join(map(_track, rows[:_MOST_ROWS], played))
    more = len(rows) - _MOST_ROWS
    items += f"<li class='more'>and {more} more</li>" if more > 0 else ""
    opened = " open" if len(rows) <= 4 else ""
    return f"<details class='tracks'{opened}><summary>{summary}</summary><ul>{items}</ul></details>"


def _track(row: TrackFacts, plays_on: bool) -> str:
    instrument = "drums" if row.drums else row.instrument
    plays = "" if instrument.lower() in row.name.lower() else f" <em>{html.escape(instrument)}</em>"
    told = "; ".join(part for part in (row.why, "" if plays_on else RESTS) if part)
    why = f"<small>{html.escape(told)}</small>" if told else ""
    return (
        f"<li class='{'heard' if row.heard else 'unheard'}'><b>{html.escape(row.name)}</b>{plays}"
        f"<span>{row.notes:,}</span>{why}</li>"
    )


def results_list(session: Session, *, moved: bool = False) -> str:
    """The results of a session as buttons, the newest first; empty if there are none.

    If the session has `moved`, its tab opens by a mark in the list: tabs as outputs of callbacks
    would make Gradio compare all widgets in them at every frame of the player.
    """
    opens = f"<i data-open='{session.tab}' hidden></i>" if moved else ""
    if not session.results:
        return opens
    shown = session.current.frame.get("job", "")
    items = []
    for index, result in reversed(list(enumerate(session.results))):
        frame = result.step.frame
        when = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(result.made))
        count = len(frame.get("variations", []))
        several = f" · {count} variations" if count > 1 else ""
        here = " aria-current='true'" if frame.get("job", "") == shown else ""
        items.append(
            f"<li><button type='button' data-index='{index}'{here}>"
            f"<b>{html.escape(frame.get('title', ''))}</b>"
            f"<span>{html.escape(frame.get('subtitle', ''))}{several}</span>"
            f"<time datetime='{when}'></time></button></li>"  # the browser fills it in
        )
    return f"{opens}<h2>Made in this session</h2><ul>{''.join(items)}</ul>"
