"""Music without an end, written bar by bar under the chords that were played last."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from app.compose.fill.passage import find_instrument
from app.compose.options import MusicOptions
from app.compose.plan.asked import check_style, kinds, with_style
from app.compose.tracks import instrument_name
from relpe.decoding.generate import Generation, Request, Sample
from relpe.decoding.sampling import SamplingOptions
from tokenization.analysis.chords import QUALITIES
from tokenization.analysis.keys import key_at_end
from tokenization.constraints.bar_limit import BarLimit
from tokenization.constraints.cadence import NEVER, Cadence
from tokenization.constraints.density import Density
from tokenization.constraints.distance import Distance
from tokenization.constraints.harmony import Harmony
from tokenization.constraints.presence import Presence
from tokenization.constraints.register import BASSES, Register
from tokenization.constraints.rule import Bias, ConstrainedGrammar
from tokenization.grid import BAR_UNIT, MAX_BAR_STEPS, STEPS_PER_BEAT
from tokenization.plan import Chord, PlannedChord
from tokenization.plan_text import MAX_DISTANCE, parse_chart
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    DRUMS,
    DURATIONS,
    NUM_PARTS,
    TEMPO,
    TEMPO_GRID,
    TIME_SIGNATURE,
)
from tokenization.score import NO_NOTES, Score, Tempo, TimeSignature, Track
from tokenization.tokenizer import FixedBar

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from app.compose.models import MusicModel
    from tokenization.plan import Key
    from tokenization.remi.grammar import RemiGrammar

USUAL_BAND = (
    "Drums",
    "Electric Bass (finger)",
    "Acoustic Grand Piano",
    "Electric Guitar (clean)",
    "String Ensemble 1",
    "Tenor Sax",
)
RECENT_BARS = 16
"""Number of the last bars from which a fill differs, and whose key and ranges a cadence has."""
MOST_TOKENS = 640
"""Tokens after which a bar has to end, so that none comes late."""
LEAST_NOTES, MOST_NOTES = 2.0, 10.0
"""Notes of each instrument in a bar of 4/4, at energies of 0 and 1."""
USUAL_ENERGY = 0.5
FILL_NOTES = 1.3
"""Factor of the number of notes in a fill."""

Chords = tuple[PlannedChord, ...]


class _WithinBar(NamedTuple):
    """A bias against notes that sound beyond the bar line, since the next chords are not known."""

    def logits(self, grammar: RemiGrammar, limit: BarLimit) -> NDArray[np.float64] | None:
        """See `Bias.logits`."""
        del limit
        families = grammar.families
        if not grammar.allowed[families.duration]:
            return None
        bias, rest = np.zeros(families.size), grammar.bar_length - grammar.position
        first = families.duration + int(DURATIONS.searchsorted(rest, "right"))
        bias[first : families.drum_velocity] = -NEVER
        return bias

    def advance(self, token: int, grammar: RemiGrammar) -> _WithinBar:
        """See `Bias.advance`."""
        del token, grammar
        return self


class Bar(NamedTuple):
    """A bar of a jam."""

    score: Score
    """The notes, with a track for each instrument of the band; times are from the start of the bar,
    in ticks of a twelfth of a quarter. Notes end with the bar, except for those of the last one."""
    tempo: float
    """In beats per minute."""
    metre: tuple[int, int]
    chords: Chords
    """Those that were asked for, or that the model has chosen."""
    number: int
    """From 0."""


class Jam:
    """An endless accompaniment that follows the chords it is given.

    Each bar is generated on request. The model keeps its state between bars, so that no bar is read
    twice. What the jam holds does not grow. The same seed and requests give the same notes.
    """

    def __init__(
        self,
        model: MusicModel,
        style: str | None = None,
        tempo: float = 100.0,
        metre: tuple[int, int] = (4, 4),
        band: Sequence[str] | None = None,
        seed: int = 0,
    ) -> None:
        """Prepare the band.

        Args:
            model: what plays.
            style: one of the styles of the model; None: no matter.
            tempo: in quarters per minute.
            metre: numerator and denominator; a bar is of whole eighths, up to eight quarters.
            band: names of General MIDI, or `Drums`; None: six usual ones, or the piano if the model
                plays nothing else.
            seed: of the random numbers.

        Raises:
            ValueError: an argument is not understood, or out of range.
            TokenizerError: the model lacks the style.
        """
        self._options = MusicOptions(style=style, seed=seed)
        self._tokenizer = tokenizer = model.tokenizer
        check_style(self._options, model.name, tokenizer)
        self._length = _bar_length(metre)
        if not TEMPO_GRID[0] <= tempo <= TEMPO_GRID[-1]:
            raise ValueError(
                f"the tempo is {tempo:g}, expected {TEMPO_GRID[0]:g} to {TEMPO_GRID[-1]:.0f} "
                "quarters per minute"
            )
        self._tempo, self._metre = float(tempo), metre
        self.tracks = _band(model, band)
        """The instruments, without notes."""
        self._ranks = tokenizer.track_ranks(self.tracks)
        self._bars = 0
        self._recent: deque[list[int]] = deque(maxlen=RECENT_BARS)
        """Tokens of the last bars, without their Bar."""
        self._chords: deque[Chords] = deque(maxlen=MAX_DISTANCE)
        """The chords of the last bars."""
        self._sections: dict[str, tuple[int, int]] = {}
        """First bar and number of bars of the last section of each letter."""
        self._section, self._section_start = "", 0
        self._source: tuple[int, int] | None = None
        """The section that the present one brings back; None: it is new."""

        families = tokenizer.families
        self._head = [
            BAR,
            TIME_SIGNATURE + self._length // BAR_UNIT - 1,
            TEMPO + int(np.abs(np.log(TEMPO_GRID / tempo)).argmin()),
        ]
        context = with_style(np.array([BOS, *self._head]), self._options, tokenizer)
        # without a prompt, nothing else tells who plays: the model would settle for two or three
        longest = {
            rank: 0 if track.is_drum or track.program in BASSES else 1
            for rank, track in zip(self._ranks, self.tracks, strict=True)
        }
        is_band = families.only_track < 0
        presence = (Presence(longest, longest),) if is_band else ()
        grammar = tokenizer.grammar(
            tempo="never", time_signature=False, end=False, tracks=self.tracks, write=False
        )
        self._sample: Sample[ConstrainedGrammar]
        self._generation: Generation[ConstrainedGrammar] = Generation(
            model.decoder, model.steps.make()
        )
        rule = ConstrainedGrammar(grammar.resume(context), BarLimit(1, 1), presence)
        request = Request(
            context, rule, [seed], SamplingOptions(), Coordinates.before(context, families)
        )
        (self._sample,) = self._generation.add(request)
        self._generation.step()
        if self._sample.error is not None:
            raise self._sample.error

    @property
    def ended(self) -> bool:
        """Whether the music has come to its end."""
        return self._sample.done

    def next_bar(
        self,
        chords: str | None = None,
        *,
        fill: bool = False,
        energy: float | None = USUAL_ENERGY,
        section: str | None = None,
    ) -> Bar:
        """Write the next bar.

        Args:
            chords: one or two, such as `Am7 D7`; `%`: those of the bar before, `N`: none; None: the
                model chooses.
            fill: whether the bar differs from those before and is fuller, the drums above all.
            energy: how much is played, 0 to 1; None: the model chooses, and thins out in the long
                run.
            section: a letter with which a section begins here; one that has occurred brings its
                section back, bar by bar, as long as it is among the last 64 bars.

        Raises:
            ValueError: an argument is not understood, or the music has ended.
        """
        asked = self._read_chords(chords)
        if energy is not None and not 0 <= energy <= 1:
            raise ValueError(f"the energy is {energy:g}, expected 0 (few notes) to 1 (many)")
        self._begin_section(section)
        biases: list[Bias] = [_WithinBar()]
        if energy is not None or fill:
            biases.append(Density(self._num_notes(energy, fill=fill)))
        if fill:
            # A fill is more notes, and not the pattern again: a bias against the drums of the last
            # bars, so that they leave it where it began, since notes that agree for long weigh most
            biases.append(self._differ_from_recent())
        return self._write(self._fix_bar(asked, fill=fill), biases)

    def end(self, chords: str | None = None) -> Bar:
        """Write the last bar, in which all come to rest on a chord.

        It is the tonic of the last bars, unless another one is asked for. Raises ValueError if it
        is not understood, or if the music has ended.
        """
        asked = self._read_chords(chords)
        ids, key = self._recent_ids(), self._key()
        if not asked and key is not None:
            asked = (PlannedChord(0, Chord(key.tonic, QUALITIES.index("m" if key.minor else "M"))),)
        cadence = Cadence.after(ids, self._tokenizer.families, key, NEVER)
        return self._write(FixedBar((0,), asked or None), [cadence], is_last=True)

    def _read_chords(self, chords: str | None) -> Chords:
        """Return the chords that are asked for; empty: the model chooses. Raises ValueError."""
        if self.ended:
            raise ValueError("the jam has ended, expected no further bars; begin another one")
        if chords is None:
            return ()
        if chords.strip() == "%" and self._chords:
            return self._chords[-1]
        bars = parse_chart(chords)
        if len(bars) != 1:
            raise ValueError(
                f"the chords {chords[:40]!r} are of {len(bars)} bars, expected one bar, such as "
                "Am7 D7; ask for one bar after the other"
            )
        return bars[0]

    def _begin_section(self, letter: str | None) -> None:
        """Keep the number of bars of the section so far, and begin another one if it is asked."""
        if letter is None:
            return
        if not (len(letter) == 1 and letter.isascii() and letter.isupper()):
            raise ValueError(f"the section is {letter[:20]!r}, expected a letter from A to Z")
        if self._section:
            start = self._section_start
            self._sections[self._section] = start, self._bars - start
        self._source = self._sections.get(letter)
        self._section, self._section_start = letter, self._bars

    def _fix_bar(self, asked: Chords, *, fill: bool) -> FixedBar:
        """Return the chords and sources of the next bar.

        It resembles the bar of the section that it brings back, or else one of its own section with
        the same chords, and a fill none.
        """
        place = self._bars - self._section_start
        back = 0
        if self._source is not None:
            start, length = self._source
            back = self._bars - (start + place % max(length, 1))
        if fill or back > len(self._chords):
            return FixedBar((0,), asked or None)
        if back:
            chords = self._chords[-back]
            exact = not asked or kinds(asked) == kinds(chords)
            return FixedBar((back,), asked or chords or None, exact=exact)
        of_section = list(self._chords)[::-1][:place]
        sources = (
            distance
            for distance, chords in enumerate(of_section, 1)
            if not asked or kinds(chords) == kinds(asked)
        )
        return FixedBar((0, *sources), asked or None)

    def _num_notes(self, energy: float | None, *, fill: bool) -> float:
        """Return the number of notes of the next bar."""
        if energy is None:
            notes = self._tokenizer.decode(self._recent_ids()).num_notes / max(len(self._recent), 1)
        else:
            by_instrument = LEAST_NOTES + energy * (MOST_NOTES - LEAST_NOTES)
            notes = by_instrument * len(self.tracks) * self._length / (4 * STEPS_PER_BEAT)
        return max(notes * FILL_NOTES if fill else notes, 1.0)

    def _differ_from_recent(self) -> Distance:
        """Return a bias against the bars played last, or against their drums if there are any."""
        ids, grammar = self._recent_ids(), self._sample.rule.grammar
        return Distance.after(ids, grammar, 1.0, {0} if 0 in self._ranks else None)

    def _recent_ids(self) -> list[int]:
        """Return the ids of the last bars."""
        bars = [[*(self._head if n == 0 else [BAR]), *bar] for n, bar in enumerate(self._recent)]
        return [token for bar in bars for token in bar]

    def _key(self) -> Key | None:
        """Return the key of the last bars."""
        return key_at_end(self._tokenizer.decode(self._recent_ids()))

    def _ranges(self) -> dict[int, tuple[int, int]]:
        """Return the lowest and highest pitch of each rank in the last bars."""
        score = self._tokenizer.decode(self._recent_ids())
        ranks = self._tokenizer.track_ranks(score.tracks)
        return {
            rank: (int(track.notes[:, 2].min()), int(track.notes[:, 2].max()))
            for rank, track in zip(ranks, score.tracks, strict=True)
            if len(track)
        }

    def _write(self, fixed: FixedBar, biases: list[Bias], *, is_last: bool = False) -> Bar:
        """Go on to the next bar line."""
        sample, bar = self._sample, self._bars + 1
        grammar = sample.rule.grammar
        grammar = grammar._replace(rules=grammar.rules._replace(bars={bar: fixed}))
        if fixed.chords:
            biases.append(Harmony.of([fixed.chords]))
        presence = [bias for bias in sample.rule.biases if isinstance(bias, Presence)]
        if presence:
            biases += [*presence, Register.of(self._ranks, self._ranges())]
        limit = BarLimit(bar, bar if is_last else bar + 1, max_tokens=MOST_TOKENS)
        rule = ConstrainedGrammar(grammar, limit, tuple(biases))
        self._generation.follow(sample, rule)
        sample.tokens.clear()
        while not (sample.done or sample.tokens[-1:] == [BAR]):
            self._generation.step()
        tokens = [token for token in sample.tokens if token != BAR]
        document = self._tokenizer.decode_document([*self._head, *tokens])
        chords = document.plan.bars[0].chords if document.plan else ()
        self._recent.append(tokens)
        self._chords.append(chords)
        self._bars = bar
        return Bar(self._on_tracks(document.score), self._tempo, self._metre, chords, bar - 1)

    def _on_tracks(self, score: Score) -> Score:
        """Return the notes of a bar on the tracks of the band."""
        ranks = self._tokenizer.track_ranks(score.tracks)
        notes = {rank: track.notes for rank, track in zip(ranks, score.tracks, strict=True)}
        tracks = (
            replace(track, notes=notes.get(rank, NO_NOTES))
            for rank, track in zip(self._ranks, self.tracks, strict=True)
        )
        return Score(
            STEPS_PER_BEAT,
            tuple(tracks),
            (Tempo(0, self._tempo),),
            (TimeSignature(0, *self._metre),),
            self._length,
        )


def joined(bars: Sequence[Bar]) -> Score:
    """Return the bars of a jam, at least one, as one score."""
    first = bars[0].score
    starts = np.arange(len(bars) + 1) * _bar_length(bars[0].metre)
    tracks: list[Track] = []
    for at, track in enumerate(first.tracks):
        tables = [bar.score.tracks[at].notes.copy() for bar in bars]
        for table, start in zip(tables, starts, strict=False):
            table[:, 0] += start
        tracks.append(replace(track, notes=np.concatenate(tables)))
    return replace(first, tracks=tuple(tracks), end_ticks=int(starts[-1]))


def _bar_length(metre: tuple[int, int]) -> int:
    """Return the grid steps of a bar. Raises ValueError if the vocabulary has none of it."""
    numerator, denominator = metre
    quarters = 4 * numerator / denominator if denominator > 0 else 0
    length = round(quarters * STEPS_PER_BEAT)
    if length % BAR_UNIT or not 0 < length <= MAX_BAR_STEPS:
        raise ValueError(
            f"the metre is {numerator}/{denominator}, expected bars of whole eighths and at most "
            "eight quarters, such as 4/4, 3/4 or 6/8"
        )
    return length


def _band(model: MusicModel, names: Sequence[str] | None) -> tuple[Track, ...]:
    """Return the empty tracks of a band. Raises ValueError."""
    if model.tokenizer.families.only_track >= 0:
        if names is not None:
            raise ValueError(
                f"the {model.name} model plays the piano alone; leave the band out, or choose a "
                "model for several instruments, such as groove"
            )
        return (Track(NO_NOTES, name="Piano"),)
    programs = [find_instrument(name) for name in (USUAL_BAND if names is None else names)]
    if not programs:
        raise ValueError("the band has no instruments, expected at least one, such as Drums")
    for program in programs:
        most = 1 if program == DRUMS else NUM_PARTS
        if programs.count(program) > most:
            raise ValueError(
                f"the band has {_name(program)} {programs.count(program)} times, expected at most "
                f"{most}"
            )
    # in the order of their tokens, as in all music of the model
    tracks = (
        Track(NO_NOTES, 0 if program == DRUMS else program, program == DRUMS, _name(program))
        for program in programs
    )
    return tuple(tracks)


def _name(program: int) -> str:
    is_drum = program == DRUMS
    return instrument_name(Track(NO_NOTES, 0 if is_drum else program, is_drum))
