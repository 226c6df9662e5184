"""Jams: a band that follows the chords played on the page.

The browser keeps the time: it asks for a bar shortly before it sounds, and plays another one in its
place if it is late. A jam is a stream of server-sent events, which carries the bars; what the
browser asks comes in small POSTs. Both pass the guard and proxies as all other requests do, which a
WebSocket would not, and the end of the stream, such as a closed tab, ends the jam.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import gradio as gr
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse

from app.compose.follow import BarRequest, Course, chord_of, moved, varied
from app.compose.jam import USUAL_BAND, USUAL_ENERGY, Bar, Jam, joined
from app.compose.options import LARGEST_SEED, METRES, MusicOptions, limits
from app.compose.piece import Piece
from app.errors import input_errors
from app.player.frames import pack_notes
from app.server.job import Job
from app.text import plural
from app.web.callbacks.alerts import BROKEN, BUSY, AlertError, alerting
from app.web.callbacks.events import values_of, whole_number
from app.web.cards import sentence
from app.web.guard.answers import error
from app.web.guard.hosts import LOCAL
from app.web.guard.limits import address_of
from app.web.refusals import short
from app.web.session import Asked, Step
from app.web.view import View, session_of
from tokenization.analysis.chord_symbols import chord_symbol
from tokenization.grid import STEPS_PER_BEAT
from tokenization.midi import write_midi
from tokenization.plan_text import parse_chart

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.compose.models import Models, MusicModel

MOST_JAMS = 2
"""Jams at once; the bars of one take about a tenth of a core."""
IDLE_SECONDS = 120.0
"""A jam ends after this time without a request for a bar."""
MOST_BARS = 1500
"""After them, an hour at the tempo 100, comes a cadence: they are kept until the end."""
MOST_ENDED = 5
"""Jams that can still become a result."""
MOST_AHEAD = 4
"""Bars at the end of a jam that a chord can still change; the browser asks for two ahead."""
BEAT_SECONDS = 10.0
"""Interval of comments in a stream without bars, by which proxies keep it open."""
_log = logging.getLogger(__name__)


def _number(asked: dict[str, Any], name: str, least: float, most: float, usual: float) -> float:
    """Return a number of a request. Raises ValueError."""
    value = asked.get(name, usual)
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        raise ValueError(f"{name} is {short(value)}, expected {least:g} to {most:g}")
    return value


def _text(asked: dict[str, Any], name: str) -> str | None:
    """Return a text of a request; None if it is empty. Raises ValueError."""
    value = asked.get(name) or ""
    if not isinstance(value, str):
        raise ValueError(f"{name} is {short(value)}, expected text")
    return value.strip() or None


def _check_late(late: object) -> None:
    """Raise ValueError unless late bars are pairs of a number and chords, or None."""
    for pair in late if isinstance(late, list) else [late]:
        match pair:
            case [int(), str() | None]:
                pass
            case _:
                raise ValueError(f"late is {short(late)}, expected pairs of a bar and its chords")


def packed(bar: Bar) -> list[str]:
    """Return the notes of each track of a bar, in the units of the player from its bar line."""
    return [pack_notes(track, STEPS_PER_BEAT) for track in bar.score.tracks]


def chords_text(bar: Bar) -> str:
    """Return the chords of a bar, separated by a space."""
    return " ".join("N" if of.chord is None else chord_symbol(of.chord) for of in bar.chords)


@dataclass
class LiveJam:
    """A jam: what the browser asks and hears."""

    model: MusicModel
    jam: Jam
    course: Course
    settings: dict[str, Any]
    asked: asyncio.Queue[dict[str, Any]] = field(default_factory=lambda: asyncio.Queue(4))
    chords: str | None = None
    """Those played last."""
    played: list[Bar] = field(default_factory=list)
    """The bars as they sound, or will."""
    source: Bar | None = None
    """The last bar that was in time."""
    requests: list[BarRequest] = field(default_factory=list)
    late: int = 0

    @classmethod
    def of(cls, models: Models, asked: dict[str, Any]) -> LiveJam:
        """Return a jam as it is asked for. Raises ValueError, or the errors of models."""
        style, band, chart = (_text(asked, name) for name in ("style", "band", "chart"))
        metre = _text(asked, "metre") or "4/4"
        if not re.fullmatch("[0-9]{1,2}/[0-9]{1,2}", metre):
            raise ValueError(f"metre is {short(metre)}, expected one such as 3/4")
        numerator, denominator = map(int, metre.split("/"))
        seed = int(_number(asked, "seed", 0, LARGEST_SEED, 0))
        names = [name.strip() for name in band.split(",") if name.strip()] if band else None
        options = MusicOptions(style=style, band=", ".join(names or USUAL_BAND))
        tempo = _number(asked, "tempo", 20, 400, 100)
        model = models.to_generate(options)
        for _ in model.preparing():
            pass
        jam = Jam(model, style, tempo, (numerator, denominator), names, seed)
        fill_every = int(_number(asked, "fill", 0, 8, 8))
        trade = asked.get("trade") is True
        course = Course(chart, fill_every=fill_every, trade=trade)
        settings = {"style": style, "tempo": tempo, "metre": metre, "band": names, "seed": seed}
        settings |= {"fill": fill_every, "chart": chart, "trade": trade}
        return cls(model, jam, course, settings)

    def write(self, asked: dict[str, Any]) -> dict[str, object]:
        """Write the next bar; return it for the browser.

        `asked` has its number (`next`), the bars that were late since the last one with the chords
        to which others were moved in their place, and how much is played. Raises ValueError.
        """
        number = int(_number(asked, "next", 0, 2 * MOST_BARS, 0))
        late: dict[int, str | None] = dict(asked.get("late", []))
        if self.played and len(self.played) - 1 not in late:
            self.source = self.played[-1]
        for missing, chords in late.items():
            if self.source is not None and 0 < missing <= len(self.played) < 2 * MOST_BARS:
                self.played[missing:] = [varied(self.source, chords)]
                self.late += 1
        energy = _number(asked, "energy", 0, 1, USUAL_ENERGY)
        is_last = asked.get("last") is True or len(self.requests) >= MOST_BARS - 1
        request = self.course.request(number, self.chords, energy, is_last=is_last)
        bar = self.course.played(request.write(self.jam), number, is_last=is_last)
        self.requests.append(request)
        self.played[number:] = [bar]
        following = self.course.charted(number + 1)
        return {
            "bar": number,
            "asked": request.chords,
            "chords": chords_text(bar),
            "tracks": packed(bar),
            "following": following,
            "spare": packed(varied(bar, following)),
            "last": is_last,
        }

    def hear(self, asked: dict[str, Any]) -> dict[str, object]:
        """Take in a chord, as `keys` or as its symbol (`chords`); return what follows it.

        If the band follows what is played, these are the bars from the grid step `step` of bar
        `bar` on, moved to it, at most `MOST_AHEAD`. Raises ValueError.
        """
        keys, chords = asked.get("keys"), _text(asked, "chords")
        if keys is not None:
            if not (isinstance(keys, list) and all(key in range(128) for key in keys)):
                raise ValueError(f"keys are {short(keys)}, expected numbers from 0 to 127")
            chords = chord_of(map(int, keys))
        if chords is None:
            return {"chords": None}
        first = int(_number(asked, "bar", 0, 2 * MOST_BARS, 0))
        step = int(_number(asked, "step", 0, 96, 0))
        if len(parse_chart(chords)) != 1:
            raise ValueError(f"the chords are {short(chords)}, expected one bar, such as Am7 D7")
        bars: dict[int, object] = {}
        self.chords = chords
        for number in range(max(first, len(self.played) - MOST_AHEAD), len(self.played)):
            if self.course.follows(number) and not self.jam.ended:
                start = step if number == first else 0
                self.played[number] = bar = moved(self.played[number], chords, start)
                bars[number] = {"tracks": packed(bar), "chords": chords_text(bar)}
        spare = packed(varied(self.played[-1], chords)) if self.played else None
        return {"chords": chords, "bars": bars, "spare": spare}

    def hello(self, name: str) -> dict[str, object]:
        """Return what the browser has to know before the first bar."""
        tracks = [
            {"name": track.name, "drums": track.is_drum, "program": track.program}
            for track in self.jam.tracks
        ]
        return {"jam": name, "tracks": tracks, "seed": self.settings["seed"]}


class JamCallbacks:
    """All jams of a page, and the callback with which one becomes a result."""

    def __init__(self, view: View) -> None:
        self._view, self._models = view, view.studio.models
        self._live: dict[str, LiveJam] = {}
        self._ended: dict[str, LiveJam] = {}
        self._users: list[str] = []
        """The address of each jam; empty on this machine."""

    async def post(self, name: str, request: Request) -> Response:
        """Begin a jam (`name` is `begin`), or take in what its browser says."""
        try:
            asked = json.loads(await request.body())
            if not isinstance(asked, dict):
                raise ValueError("found no JSON object, expected one")
            if name == "begin":
                stream = self._stream(asked, request)
                how = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
                return StreamingResponse(stream, media_type="text/event-stream", headers=how)
            live = self._live.get(name)
            if live is None:
                return JSONResponse(error("The jam has ended."), 404)
            if "next" in asked:
                _check_late(asked.get("late", []))
                live.asked.put_nowait(asked)
                return JSONResponse({})
            return JSONResponse(live.hear(asked))
        except asyncio.QueueFull:
            return JSONResponse(error("Found several requests of bars, expected one."), 429)
        except (ValueError, RecursionError) as problem:
            return JSONResponse(error(sentence(str(problem))), 400)

    async def _stream(self, asked: dict[str, Any], request: Request) -> AsyncIterator[str]:
        """Yield the events of a jam, the last of which may be an error."""
        async for event in self.play(asked, request):
            yield f"data: {json.dumps(event)}\n\n" if event else ":\n\n"

    async def play(
        self, asked: dict[str, Any], request: Request
    ) -> AsyncIterator[dict[str, object]]:
        """Yield what the browser has to know: the jam, bars, an error; empty while it waits."""
        address = address_of((request.client.host, 0) if request.client else None)
        user = "" if address in LOCAL else address
        if len(self._users) >= MOST_JAMS or (user and user in self._users):
            yield {
                "error": f"Found {plural(len(self._users), 'jam')} being played, expected fewer "
                f"than {MOST_JAMS}, and none of your address: try again in a few minutes."
            }
            return
        name, live = secrets.token_hex(16), None
        self._users.append(user)
        try:
            yield {"said": "The band gets ready: half a minute the first time …"}
            # is waited for also if the browser leaves: until then, its jam counts
            live = await to_thread.run_sync(LiveJam.of, self._models, asked)
            self._live[name] = live
            yield live.hello(name)
            async for event in self._bars(live):
                yield event
        except (ValueError, *input_errors()) as problem:
            yield {"error": sentence(str(problem))}
        except Exception:  # noqa: BLE001 - told to the browser
            _log.exception("a jam failed")
            yield {"error": BROKEN}
        finally:
            self._users.remove(user)
            self._live.pop(name, None)
            if live is not None and live.played:
                self._ended[name] = live
                if len(self._ended) > MOST_ENDED:
                    del self._ended[next(iter(self._ended))]

    async def _bars(self, live: LiveJam) -> AsyncIterator[dict[str, object]]:
        """Yield each requested bar, until the last one or until requests stop."""
        idle = 0.0
        while not live.jam.ended:
            try:
                asked = await asyncio.wait_for(live.asked.get(), BEAT_SECONDS)
            except TimeoutError:
                idle += BEAT_SECONDS
                if idle >= IDLE_SECONDS:
                    yield {
                        "error": f"The jam has ended: no bar was requested for {IDLE_SECONDS:g} s."
                    }
                    return
                yield {}
            else:
                idle = 0.0
                yield await to_thread.run_sync(live.write, asked)

    def keep(self, event: gr.EventData, request: gr.Request) -> tuple[object, ...]:
        """Make a result of a jam that has ended; return `View.show`."""
        values, studio = values_of(event), self._view.studio
        jam = str(values.get("jam"))
        live = self._ended.get(jam)
        with self._view.locked(request) as session:
            if live is None or session.asked is not None:
                return self._view.show(session, alert=BUSY if session.asked else "")
            name = session_of(request)
            bars = min(whole_number(event, "bars", MOST_BARS) or 1, len(live.played))
            try:
                with alerting():
                    job = JamJob(live, bars)
                    job.write((job.piece,), studio.folders.new(name))
            except AlertError as alert:
                return self._view.show(session, alert=str(alert))
            studio.kept.add(name, job)
            self._ended.pop(jam, None)
            work = session.work
            asked = Asked(None, job.options, live.model.name, work.step)
            frame = job.frame("done", status="Ready to play.")
            work.go(Step(None, frame, model=work.model))
            session.finish(asked, taken=True)
            return self._view.show(session)


class JamJob(Job):
    """The result of a jam: its first `bars` bars."""

    def __init__(self, live: LiveJam, bars: int) -> None:
        settings = live.settings
        metre = settings["metre"] if settings["metre"] in METRES else None
        band = ", ".join(track.name or "" for track in live.jam.tracks)
        options = MusicOptions(
            bars=int(min(bars, limits("bars").most[1] or bars)),
            seed=settings["seed"],
            style=settings["style"],
            tempo=settings["tempo"],
            metre=metre,
            band=band if live.model.tokenizer.families.only_track < 0 else None,
        )
        super().__init__(live.model, None, options)
        self.title, self.bars, self._jam = "Jam", bars, live
        score = joined(live.played[:bars])
        midi, seconds = write_midi(score), float(score.seconds_at(score.end_ticks))
        notes, seed = score.num_notes, settings["seed"]
        self.piece = Piece(midi, midi, score, score, seed, 0, notes, 0.0, bars, seconds=seconds)

    def _name(self, variation: int) -> str:
        del variation
        return f"jam_{self.model.name}_b{self.bars}_s{self.options.seed}"

    def _how_made(self, piece: Piece, facts: list[str]) -> str:
        del facts
        late = self._jam.late
        texts = [f"seed {piece.seed}", f"jam of {plural(self.bars, 'bar')}"]
        texts += [f"{plural(late, 'bar')} late, in place of which others were varied"] * (late > 0)
        return " · ".join([*texts, f"{self.model.name} on {self.model.device}"])

    def _replay(self, piece: Piece) -> bytes:
        del piece
        rows = [request._asdict() for request in self._jam.requests]
        recorded = {"model": self.model.name, "model_sha256": self.model.sha256}
        recorded |= {"jam": self._jam.settings, "bars": rows}
        return (json.dumps(recorded, indent=2) + "\n").encode()
