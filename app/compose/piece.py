"""A piece of music before, during and after generation: `Opening`, `Draft` and `Piece`."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np

from app.compose.fill.passage import find_band, music_like
from app.compose.new_bars import NewBars, in_bars
from app.compose.options import with_ending
from app.compose.plan.asked import (
    asked_bars,
    asked_chords,
    check_style,
    closing_key,
    heard_before,
    with_style,
)
from app.compose.plan.lead_sheet import plan_of
from app.compose.plan.steering import steer
from app.compose.prompt.prompt import HEARD_TOKENS
from app.compose.tracks import instrument_name, share_among_tracks
from relpe.decoding.generate import Request
from relpe.decoding.sampling import SamplingOptions
from tokenization.analysis.accidents import accidents
from tokenization.analysis.keys import named_key
from tokenization.constraints.bar_limit import BarLimit, PlannedBar
from tokenization.constraints.distance import Distance
from tokenization.constraints.head import Head
from tokenization.constraints.presence import LONGEST_REST, Presence
from tokenization.constraints.rule import ConstrainedGrammar, rule_after_prompt
from tokenization.errors import TokenizerError
from tokenization.grid import STEPS_PER_BEAT
from tokenization.measures.takes import Choice, Ranking, bars_before, rank_ids
from tokenization.remi.documents.coordinates import Coordinates
from tokenization.remi.vocabulary import BAR, BOS, TEMPO, TEMPO_EDGES
from tokenization.score import Score

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from app.compose.models import MusicModel
    from app.compose.options import MusicOptions
    from app.compose.prompt.prompt import Prompt
    from relpe.decoding.generate import Sample
    from tokenization.plan import Key
    from tokenization.tokenizer import FixedBar


@dataclass(frozen=True)
class StudyReport:
    """What came of a study."""

    steps: int
    """Steps of the copy that writes; 0: the piece is written by the model itself."""
    line: str
    """The same in one sentence, without a full stop."""

    def settled(self, options: MusicOptions) -> MusicOptions:
        """Return the options that give the same music again, however fast the machine is."""
        return replace(options, study=0.0, study_steps=self.steps)


@dataclass(frozen=True)
class Piece:
    """A finished piece."""

    midi: bytes
    """The whole piece: the upload, byte for byte except for notes that are replaced, and the new
    music."""
    new_midi: bytes
    """The new music alone, starting at its first bar."""
    score: Score
    """The score of the whole piece."""
    new: Score
    """The new notes; times count from the start of the whole piece."""
    seed: int
    tokens: int
    notes: int
    tokens_per_second: float
    bars: int = 0
    """Notated bars of the new music; the last one may be incomplete if it was stopped."""
    stopped: bool = False
    """Whether generation was stopped before its end."""
    seconds: float = 0.0
    """Duration of the new music."""
    choice: Choice | None = None
    """The take that was chosen; None if there was only one, or if generation was stopped."""
    accidents: str = ""
    """What listeners may take for mistakes, in one line; empty if nothing was found."""
    key: Key | None = None
    """The key in which a cadence closes; None: no cadence, or in any key."""
    studied: StudyReport | None = None
    """What came of the study of its prompt; None if it was not to be studied."""


@dataclass(frozen=True, eq=False)
class Opening:
    """The start of new music: the context that the model reads, and the rule for what follows."""

    model: MusicModel
    options: MusicOptions
    context: NDArray[np.integer]
    """Ids (l,) that the model reads."""
    first_ids: tuple[int, ...]
    """Ids that precede the generated ones when they are decoded."""
    rule: ConstrainedGrammar
    prompt: Prompt | None = None
    bars: NewBars | None = None
    key: Key | None = None
    """The key in which the music is to close; None: it need not."""
    studied: StudyReport | None = None
    """What came of the study of the prompt, if it was to be studied."""

    @classmethod
    def after(cls, model: MusicModel, prompt: Prompt, options: MusicOptions) -> Opening:
        """Return the opening after a prompt, or in its gap.

        Raises MidiError if the piece is too long for a file.
        """
        tokenizer, tracks = model.tokenizer, prompt.parts.of_score(prompt.score)
        families, gap = tokenizer.families, prompt.gap
        options = with_ending(in_bars(options, prompt), from_nothing=False)
        bars = NewBars.after(prompt, options.bars)
        ends = options.ending == "natural"
        check_style(options, model.name, tokenizer)
        fixed: tuple[FixedBar, ...] = ()
        if gap is None or gap.is_last:
            context = tokenizer.crop(prompt.ids, prompt.first_heard(options.prompt_bars))
            context = np.append(context, bars.opening(context))
            # tracks that may not play are generated too, since the others depend on them
            playing, silent = tracks, []
            joining = prompt.parts.joining(tracks, tokenizer)
        else:
            context, fixed = gap.document(
                tokenizer, prompt.bar_lengths, HEARD_TOKENS, options.prompt_bars
            )
            playing = gap.kept.tracks
            ranks = tokenizer.track_ranks(playing)
            silent = [at for at, rank in enumerate(ranks) if rank not in gap.ranks]
            joining = frozenset(ranks[len(prompt.score.tracks) :])
        first_bar = int(np.count_nonzero(context == BAR))
        is_asked = options.form is not None or options.chords is not None
        closes = options.ending == "cadence" and not fixed
        plan = plan_of(prompt.timing.counted) if is_asked or closes else None
        heard = heard_before(plan, prompt.bars_before, prompt.sections) if plan is not None else ()
        key = None if fixed else closing_key(options, prompt.timing.counted)
        asked = asked_bars(options, bars.planned, heard, fixed, key)
        context = with_style(context, options, tokenizer)
        grammar = tokenizer.grammar(
            tempo="never",
            end=ends,
            tracks=playing,
            silent=silent,
            write=False,
            bars=dict(enumerate(asked, first_bar)),
        )
        limit = BarLimit(
            0,
            len(bars.planned) - 1,
            bars.planned,
            last=families.last * ends,
            holds_notes=len(fixed) > 0,
        )
        ranks = None if gap is None or gap.is_last else gap.ranks
        strengths = {"presence": options.presence, "recall": options.recall}
        rule = rule_after_prompt(context, grammar, limit, joining, ranks=ranks, **strengths)
        grammar = rule.grammar.hold(bars.still_sounding(tokenizer, rule.grammar.bar_start))
        # new tracks fit the chords of those that play in the same bars
        chords = asked_chords(options, bars.planned, key) or [bar.chords or () for bar in fixed]
        biases = rule.biases + steer(options, grammar, context.tolist(), chords, key)
        if options.distance:
            biases += (Distance.after(context, grammar, options.distance, ranks),)
        rule = rule._replace(grammar=grammar, biases=biases)
        first_ids = (BAR, bars.planned[0].time_signature)
        return cls(model, options, context, first_ids, rule, prompt, bars, key)

    @classmethod
    def of_nothing(cls, model: MusicModel, options: MusicOptions) -> Opening:
        """Return the opening of a piece from nothing."""
        tokenizer, families = model.tokenizer, model.tokenizer.families
        options = with_ending(options, from_nothing=True)
        ends = options.ending == "natural"
        context = [BOS]
        key = named_key(options.key) if options.key else None
        if key is not None:
            context.append(families.key + key.tonic + 12 * key.minor)
        check_style(options, model.name, tokenizer)
        tracks = None if options.band is None else find_band(options.band)
        if families.only_track >= 0 and music_like(options.band) is not None:
            raise TokenizerError(
                f"the {model.name} model writes for one piano; choose a model of several "
                "instruments, such as groove, or leave the band out"
            )
        # for seconds, an estimate that is long enough
        count = options.bars if options.seconds is None else int(options.seconds) + 1
        key = closing_key(options)
        asked = asked_bars(options, count, key=key)
        context = with_style(np.array(context), options, tokenizer)
        grammar = tokenizer.grammar(
            tempo="bar_line" if options.tempo is None else "never",
            # a bar in another metre brings nothing back
            time_signature=options.form is None and options.metre is None,
            end=ends,
            tracks=tracks,
            write=False,
            bars=dict(enumerate(asked, 1)),
        ).resume(context)
        limit = BarLimit(1, options.bars, seconds=options.seconds, last=families.last * ends)
        biases = steer(options, grammar, (), asked_chords(options, count, key), key)
        if head := _head(options):
            biases += (Head(head),)
        if tracks is not None and families.only_track < 0:
            rests = dict.fromkeys(tokenizer.track_ranks(tracks), LONGEST_REST)
            biases += (Presence(rests, rests),)  # each begins at once
        rule = ConstrainedGrammar(grammar, limit, biases)
        return cls(model, options, context, (BOS,), rule, key=key)

    @property
    def has_copy(self) -> bool:
        """Whether the model is a copy that has studied the prompt."""
        return self.studied is not None and self.studied.steps > 0

    @property
    def first_bar(self) -> int:
        """Number of bars before the new ones in what the model reads."""
        families, has_prompt = self.model.tokenizer.families, self.prompt is not None
        return bars_before(self.context, families, has_prompt=has_prompt)

    @property
    def returns(self) -> dict[int, int]:
        """The new bars that are to repeat an earlier one closely, and that one.

        They are counted from the first bar that the model reads.
        """
        bars = enumerate(self.rule.grammar.rules.bars.values(), self.first_bar)
        sources = ((bar, bar - one.sources[0]) for bar, one in bars if one.exact and one.sources)
        return {bar: source for bar, source in sources if source >= 0}

    @property
    def notes(self) -> int:
        """Number of notes that the model reads."""
        return self.model.tokenizer.decode(self.context).num_notes if self.prompt else 0

    def request(self, seeds: Sequence[int]) -> Request[ConstrainedGrammar]:
        """Return a request for one sequence per seed."""
        names = [field.name for field in fields(SamplingOptions)]
        sampling = SamplingOptions(**{name: getattr(self.options, name) for name in names})
        families, ids = self.model.tokenizer.families, self.context
        if self.prompt is not None and self.prompt.gap is not None:
            ids = np.append(ids, families.write)  # the last bar is to be written
        coordinates = Coordinates.before(ids, families)
        return Request(self.context, self.rule, seeds, sampling, coordinates)


def _head(options: MusicOptions) -> tuple[int, ...]:
    """Return the ids of the metre and of the tempo that are asked for."""
    head: list[int] = []
    if options.metre is not None:
        beats, unit = map(int, options.metre.split("/"))
        head.append(PlannedBar(4 * STEPS_PER_BEAT * beats // unit, 0, 0).time_signature)
    if options.tempo is not None:
        head.append(TEMPO + int(np.searchsorted(TEMPO_EDGES, options.tempo) - 1))
    return tuple(head)


def _bars_before(sample: Sample[ConstrainedGrammar]) -> int:
    """Return the number of notated bars before the one that is being generated."""
    return sample.rule.limit.notated_bar(sample.rule.grammar)


class Draft:
    """A piece while it is generated, in one take or several."""

    def __init__(self, opening: Opening, *samples: Sample[ConstrainedGrammar]) -> None:
        self.opening, self.samples = opening, samples
        self.ranking: Ranking | None = None
        self.choice: Choice | None = None
        self.decided: Sample[ConstrainedGrammar] | None = None
        """The bars that all takes share since they were last ranked, and an empty one; or None."""
        self._seed = samples[0].seed

    def rank(self) -> None:
        """Order several takes and choose the best, once all of them are finished."""
        if len(self.samples) == 1 or self.choice is not None:
            return
        if any(sample.error is not None for sample in self.samples):
            return
        self.ranking = self._ranked([sample.tokens for sample in self.samples])
        self.choice = self.ranking.choose()

    def _ranked(self, takes: Sequence[Sequence[int]]) -> Ranking:
        opening = self.opening
        has_prompt = opening.prompt is not None
        return rank_ids(
            opening.context,
            takes,
            opening.model.tokenizer,
            has_prompt=has_prompt,
            returns=opening.returns,
        )

    def waits(self, sample: Sample[ConstrainedGrammar]) -> bool:
        """Return whether an unfinished take has come to a bar before which the takes are ranked."""
        every = self.opening.options.rank_every
        return (
            len(self.samples) > 1
            and every > 0
            and _bars_before(sample) >= self._bars_decided + every
        )

    def decide(self) -> Sample[ConstrainedGrammar]:
        """Choose the take from which all others go on, once each of them waits or is done.

        Those that are done are dropped, unless the best is among them: then it is the piece.
        """
        # the bar that an unfinished take has begun is empty
        takes = [sample.tokens if sample.done else sample.tokens[:-1] for sample in self.samples]
        ranking = self._ranked(takes)
        best = self.samples[ranking.order[0]]
        if best.done:
            self.ranking, self.choice = ranking, ranking.choose()
        else:
            self.samples = tuple(sample for sample in self.samples if not sample.done)
            self.decided = replace(best, tokens=best.tokens[:], done=True)
        return best

    def stop(self) -> tuple[Sample[ConstrainedGrammar], ...]:
        """Keep the bars that were decided, if there are any. Returns the takes that end."""
        samples = self.samples
        if self.decided is not None and self.choice is None and not self.done:
            self.samples = (self.decided,)
        return samples

    @property
    def _bars_decided(self) -> int:
        return 0 if self.decided is None else _bars_before(self.decided)

    @property
    def sample(self) -> Sample[ConstrainedGrammar]:
        """The chosen take, or the first one until all are finished."""
        return self.samples[0 if self.choice is None else self.choice.best]

    @property
    def done(self) -> bool:
        """Whether all takes are finished."""
        return all(sample.done for sample in self.samples)

    @property
    def seed(self) -> int:
        """The seed that gives the piece again: alone, or with its takes if they were mixed."""
        return self._seed if self.opening.options.rank_every else self.sample.seed

    @property
    def rule(self) -> ConstrainedGrammar:
        """The rule for the next token."""
        return self.sample.rule

    @property
    def ids(self) -> list[int]:
        """All ids of the new music, ready to be decoded."""
        return [*self.opening.first_ids, *self.sample.tokens]

    @property
    def tokens(self) -> int:
        """Number of generated tokens."""
        return len(self.sample.tokens)

    @property
    def bars_done(self) -> int:
        """Notated bars that are finished in all takes."""
        rules = [sample.rule for sample in self.samples]
        return min(rule.limit.notated_bar(rule.grammar) + rule.finished for rule in rules)

    @property
    def bars_begun(self) -> int:
        """Notated bars, including the one that is being generated."""
        return self.rule.limit.notated_bar(self.rule.grammar) + 1

    @property
    def done_ticks(self) -> int:
        """Start of the first bar that is not finished; notes before it do not change any more.

        While there are several takes, any of them may become the piece.
        """
        bars, rule = self.opening.bars, self.rule
        is_open = len(self.samples) > 1 and self.choice is None
        if bars is not None:
            return min(bars.line(self._bars_decided if is_open else self.bars_done), bars.end_ticks)
        if is_open:
            return 0 if self.decided is None else self.decided.rule.grammar.bar_start
        return rule.grammar.bar_start

    @property
    def part_done(self) -> float:
        """Fraction of the requested bars or seconds that is done in all takes, 0 to 1."""
        options, rules = self.opening.options, [sample.rule for sample in self.samples]
        rules = [rule for rule in rules if not rule.finished]
        if not rules:
            return 1.0
        if options.seconds is None:
            return min(self.bars_done / options.bars, 1.0)
        return min(*(rule.limit.seconds_before / options.seconds for rule in rules), 1.0)

    @property
    def has_gap(self) -> bool:
        """Whether music follows the new bars."""
        prompt = self.opening.prompt
        return prompt is not None and prompt.gap is not None and not prompt.gap.is_last

    def with_context(self) -> tuple[Score, int, int]:
        """Return the finished bars after all that the model read, on the grid.

        Without a gap, which see. Then come the index of the first new bar, and that of the bar
        after the last one.
        """
        opening = self.opening
        ids = np.append(opening.context, self.sample.tokens)
        first = opening.first_bar
        stop = int(np.count_nonzero(ids == BAR)) - (not self.rule.finished)
        return opening.model.tokenizer.decode(ids), first, max(stop, first)

    def accidents(self) -> str:
        """Return the accidents of the finished bars in one line, with the numbers of their bars."""
        if self.has_gap:
            return ""
        score, first, stop = self.with_context()
        prompt, choice = self.opening.prompt, self.choice
        before = 0 if prompt is None else prompt.bars_before - first
        returns = self.opening.returns
        judged = choice.accidents[choice.best] if choice else accidents(score, first, stop, returns)
        return judged.line(before)

    def score(self, *, ended: bool = False) -> Score:
        """Return the new notes; times count from the start of the output.

        If the piece has `ended`, notes are cut at the end of its last bar, unless it is a cadence
        after a prompt.
        """
        opening, rule = self.opening, self.rule
        tokenizer, prompt = opening.model.tokenizer, opening.prompt
        if prompt is None or opening.bars is None:
            score = tokenizer.decode(self.ids)
            new = score.with_tracks(replace(t, name=instrument_name(t)) for t in score.tracks)
            end = rule.grammar.bar_start + rule.grammar.bar_length
        else:
            score = tokenizer.decode(self.ids, tracks=prompt.sequence.tracks)
            tracks = (replace(t, notes=opening.bars.notes(t.notes)) for t in score.tracks)
            new = Score(prompt.score.ticks_per_beat, tuple(tracks))
            gap = prompt.gap
            # in a gap, tracks are compared with all that they play in the file
            until = prompt.splice_ticks if gap is None else prompt.score.end_ticks + 1
            new = share_among_tracks(new, prompt.score, tokenizer, until, prompt.parts)
            end = opening.bars.line(rule.limit.notated_bar(rule.grammar) + 1)
        if not ended:
            return replace(new, end_ticks=0)
        if prompt is not None and opening.options.ending == "cadence":
            return replace(new, end_ticks=end)
        return replace(new, tracks=tuple(track.until(end) for track in new.tracks), end_ticks=end)
