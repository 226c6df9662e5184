"""Piano music as MusicXML, written by music21."""

# pyright: basic
# music21 lacks complete type hints.
from __future__ import annotations

import re
from bisect import bisect_left
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final

from tokenization.analysis.keys import estimate_key
from tokenization.analysis.spelling import name_at, place_of
from tokenization.grid import STEPS_PER_BEAT, nearest_step
from tokenization.notation.staves import Notation, Staff, Strike

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tokenization.notation.values import Bar
    from tokenization.plan import Key
    from tokenization.score import Score

_LEAST_CHANGE: Final = 0.05
"""Smaller changes of tempo are not written."""
_OF_MUSIC21: Final = {
    rb'(?<=id=")P[0-9a-f]{32}(?=")': b"P1",
    rb"\s*<encoding-date>[^<]*</encoding-date>": b"",
    rb'\s*<creator type="composer">Music21</creator>': b"",
    rb"\s*<work>\s*<work-title />\s*</work>|\s*<movement-title />": b"",
}
"""What music21 adds: random ids, the date, itself as the composer, and empty titles."""


def as_musicxml(score: Score, title: str) -> bytes:
    """Write a score for the piano as MusicXML, in two staves; see `Notation.of`.

    The same score gives the same bytes. Dynamics and pedals are left out.
    """
    from music21 import bar, clef, key, layout, metadata, meter, stream, tempo
    from music21.musicxml.m21ToXml import GeneralObjectExporter

    notation = Notation.of(score)
    music_key = estimate_key(score)
    signature = _sharps(music_key)
    whole: Any = stream.Score()
    whole.metadata = metadata.Metadata(title=title)
    parts = []
    for name, staff, sign in (
        ("P1-right", notation.right, clef.TrebleClef()),
        ("P1-left", notation.left, clef.BassClef()),
    ):
        part: Any = stream.PartStaff(id=name)
        part.partName = "Piano"
        metre = None
        for number, one in enumerate(notation.bars, 1):
            measure: Any = stream.Measure(number=number)
            if number == 1:
                measure.insert(0, sign)
                measure.insert(0, key.KeySignature(signature))
            if metre != (one.numerator, one.denominator):
                metre = (one.numerator, one.denominator)
                measure.insert(0, meter.TimeSignature(f"{metre[0]}/{metre[1]}"))
            _fill(measure, one, staff, signature)
            part.append(measure)
        part.getElementsByClass("Measure").last().rightBarline = bar.Barline("final")
        parts.append(part)
        whole.insert(0, part)
    for number, bpm in _tempos(score, notation.bars):
        measure = parts[0].getElementsByClass("Measure")[number]
        measure.insert(0, tempo.MetronomeMark(number=round(bpm)))
    whole.insert(0, layout.StaffGroup(parts, name="Piano", symbol="brace"))
    written = GeneralObjectExporter().parse(whole)
    for pattern, instead in _OF_MUSIC21.items():
        written = re.sub(pattern, instead, written)
    return written


def _sharps(key: Key | None) -> int:
    """Return the sharps of the key signature; negative for flats."""
    if key is None:
        return 0
    tonic = key.tonic + (3 if key.minor else 0)
    return (7 * tonic + 5) % 12 - 5  # from 5 flats to 6 sharps


def _spelled(pitch: int, sharps: int) -> str:
    """Return the name of a pitch for music21, such as B-3, as it is usually spelled in a key.

    Octaves of MusicXML begin at 0, so the twelve lowest pitches are written an octave higher.
    """
    # in C major, Eb to G#
    name = name_at(place_of(pitch % 12, sharps - 2), flat="-")
    octave = (max(pitch, 12 + pitch % 12) - name.count("#") + name.count("-")) // 12 - 1
    return f"{name}{octave}" if octave >= 0 else "C0"  # its B# has no octave


def _tempos(score: Score, bars: Sequence[Bar]) -> Iterator[tuple[int, float]]:
    """Yield the index of a bar and the tempo from it on."""
    starts = [one.start for one in bars]
    by_bar: dict[int, float] = {0: 120.0}
    for tick, bpm in score.tempos:
        by_bar[bisect_left(starts, nearest_step(tick, score.ticks_per_beat))] = bpm
    last = 0.0
    for index, bpm in sorted(by_bar.items()):
        if index < len(bars) and abs(bpm - last) > _LEAST_CHANGE * last:
            yield index, bpm
            last = bpm


def _fill(measure: Any, one: Bar, staff: Staff, sharps: int) -> None:  # noqa: ANN401
    """Put the notes and rests of a bar into a measure."""
    from music21 import note, stream

    voices = [
        [s for s in voice if s.onset < one.end and s.end > one.start] for voice in staff.voices
    ]
    used = [voice for voice in voices if voice]
    if not used:
        rest = note.Rest(quarterLength=_quarters(one.end - one.start))
        rest.fullMeasure = True
        measure.insert(0, rest)
        return
    if len(used) == 1:
        _fill_voice(measure, one, used[0], [], sharps, shows_rests=True)
        return
    for number, (voice, others) in enumerate(zip(used, reversed(used), strict=True)):
        line: Any = stream.Voice(id=str(number + 1))
        _fill_voice(line, one, voice, others, sharps, shows_rests=number == 0)
        for element in line.notes:
            element.stemDirection = "down" if number else "up"
        measure.insert(0, line)


def _quarters(steps: int) -> Fraction:
    return Fraction(steps, STEPS_PER_BEAT)


def _fill_voice(
    line: Any,  # noqa: ANN401
    one: Bar,
    voice: Sequence[Strike],
    others: Sequence[Strike],
    sharps: int,
    *,
    shows_rests: bool,
) -> None:
    """Put the notes of a voice in a bar, and rests between them, into a stream."""
    from music21 import chord, note, tie

    def rest(start: int, end: int) -> None:
        for begin, stop in one.rests(start, end):
            element = note.Rest(quarterLength=_quarters(stop - begin))
            sounds = any(other.onset < stop and other.end > begin for other in others)
            element.style.hideObjectOnPrint = sounds or not shows_rests
            line.insert(_quarters(begin - one.start), element)

    at = one.start
    for onset, end, pitches in voice:
        start, stop = max(onset, one.start), min(end, one.end)
        rest(at, start)
        for begin, until in one.values(start, stop):
            names = list(dict.fromkeys(_spelled(pitch, sharps) for pitch in pitches))
            length = _quarters(until - begin)
            element: Any = (
                note.Note(names[0], quarterLength=length)
                if len(names) == 1
                else chord.Chord(names, quarterLength=length)
            )
            ties = (begin > onset, until < end)
            if any(ties):
                kind = {(False, True): "start", (True, True): "continue", (True, False): "stop"}
                element.tie = tie.Tie(kind[ties])
            line.insert(_quarters(begin - one.start), element)
        at = stop
    rest(at, one.end)
