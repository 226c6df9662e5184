"""Training examples: pieces as documents of five kinds."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from tokenization.analysis.keys import estimate_key
from tokenization.analysis.plan import analyse_document
from tokenization.document import Document, Header, Selection
from tokenization.grid import notated_lines
from tokenization.plan import Plan
from tokenization.remi.quantize import part_of
from tokenization.remi.remi import Remi
from tokenization.remi.vocabulary import EOS, PAD, POSITION, TEMPO, TEMPO_GRID
from tokenization.score import Score, Track, all_notes
from training.data.augmentation import NOTHING, Augmentation
from training.data.corpus import Corpus
from training.data.masks import masked_ids
from training.data.shards import MASKED_VELOCITIES
from training.errors import TrainingError, check_range
from training.learning.seeding import generator

Kind = Literal["from_nothing", "continuation", "infilling", "accompaniment", "infilling_with_given"]
KINDS: tuple[Kind, ...] = get_args(Kind)
_NEEDS_TRACKS: tuple[Kind, ...] = ("accompaniment", "infilling_with_given")
_LONGEST_GAP = 16
_AT_EDGE = 0.125
"""Probability that no bars stand before a gap; the same for after it."""
_PIANO_KEYS = 21, 108
"""Lowest and highest pitch of a piano."""
_LEAST_ROOM = 256
"""Tokens that have to be left in an example for another document."""
_HEADER_ROOM = 12
"""Tokens that a document with a gap may have besides those of its bars."""


@dataclass(frozen=True, kw_only=True)
class DocumentShares:
    """Relative shares of the kinds of documents, and probabilities of what documents state."""

    from_nothing: float = 0.1
    """Share of beginnings of pieces."""
    continuation: float = 0.5
    """Share of parts of pieces from a later bar on."""
    infilling: float = 0.2
    """Share of parts of pieces in which some bars are to be written."""
    accompaniment: float = 0.1
    """Share of parts of pieces in which some tracks are to be written."""
    infilling_with_given: float = 0.1
    """Share of parts of pieces in which some tracks of some bars are to be written."""
    plan: float = 0.75
    """Probability that a document has a plan."""
    style: float = 0.5
    """Probability that a document states its style, if the corpus has one."""
    key: float = 0.5
    """Probability that a document states its key."""
    players: float = 0.5
    """Probability that a document states the tracks that are to be written."""

    def __post_init__(self) -> None:
        for one in fields(self):
            check_range(one.name, getattr(self, one.name), 0, 1)
        if not self.from_nothing + self.continuation + self.infilling:
            raise TrainingError(
                "from_nothing, continuation and infilling are all 0, expected one above 0, since "
                "the other kinds of documents need several tracks"
            )


class DrawnDocument(NamedTuple):
    """A document before it is cut to the length of its example."""

    kind: Kind
    piece: int
    """Index of the piece in the corpus."""
    first_bar: int
    """Bar of the piece at which the document begins."""
    document: Document
    ids: NDArray[np.int32]
    masked: int
    """As `PieceFacts.masked`."""


class _Part(NamedTuple):
    """Some bars of a piece."""

    score: Score
    first_bar: int
    """Bar of the piece at which the part begins."""
    ends: bool
    """Whether the last bar is the end of the piece."""

    @property
    def lines(self) -> NDArray[np.int64]:
        """Bar lines in ticks (bars + 1,)."""
        return notated_lines(self.score, max(self.score.end_ticks, 1))

    def without(self, at_start: int, at_end: int) -> _Part:
        """Return the part without some of its bars."""
        lines = self.lines
        stop = len(lines) - 1 - at_end
        score = part_of(self.score, int(lines[at_start]), int(lines[stop]))
        return _Part(score, self.first_bar + at_start, self.ends and not at_end)


@dataclass(frozen=True)
class Documents:
    """Batches of training examples by step: parts of pieces as documents, drawn for each row.

    A corpus is drawn by its weight, a piece of it in proportion to its tokens, and a part of the
    piece. The part is decoded, transposed and changed, analysed as if it were an upload, and
    encoded. If it ends before the example does, another document follows.

    Row r of the batch of step s depends only on (seed, s, r), and not on the shards. A process that
    draws some rows of a batch reads only those.
    """

    corpus: Corpus
    tokenizer: Remi
    length: int
    """Tokens that the model reads; an example has one more token, the last target."""
    batch_size: int
    seed: int
    beginnings: float = 0.1
    """Share of accompaniments that are the beginning of a piece."""
    transposition: tuple[int, int] = (-5, 6)
    """Smallest and largest transposition in semitones."""
    augmentation: Augmentation = NOTHING
    """Further random changes."""
    first_row: int = 0
    """Index of the first row of the batch that this process draws."""
    shares: DocumentShares = DocumentShares()

    def __post_init__(self) -> None:
        if not len(self.corpus):
            raise TrainingError("the train split is empty; prepare a corpus with training files")

    def __getitem__(self, step: int) -> NDArray[np.int64]:
        """Return the batch of one step: (batch_size, length + 1).

        PAD follows an example that is too short; ~t stands for a token t that is not predicted.
        """
        rows = range(self.first_row, self.first_row + self.batch_size)
        return np.stack([self.example(step, row) for row in rows])

    def example(self, step: int, row: int) -> NDArray[np.int64]:
        """Return one row of the batch of a step: (length + 1,)."""
        vocabulary = self.tokenizer.vocabulary
        drawn = self.draw(generator(self.seed, step, "data", row))
        ids = np.concatenate([masked_ids(one.ids, one.masked, vocabulary) for one in drawn])
        padded = np.full(self.length + 1, PAD, np.int64)
        padded[: len(ids)] = ids[: self.length + 1]
        return padded

    def _read(self, piece: int) -> NDArray[np.int32]:
        """Read the tokens of a piece; raise TrainingError if they are damaged."""
        ids = self.corpus.piece(piece)
        bars = np.flatnonzero(ids == self.tokenizer.vocabulary.ids["Bar"])
        if not np.array_equal(bars, self.corpus.piece_bars(piece)):
            name = [*self.corpus.names, *map(str, range(piece + 1))][piece]
            raise TrainingError(
                f"the stored tokens of {name} are damaged; prepare the corpus again"
            )
        return ids

    def draw(self, draw: np.random.Generator) -> list[DrawnDocument]:
        """Return the documents of an example; only the last one may be too long."""
        drawn, room = list[DrawnDocument](), self.length + 1
        while not drawn or (room >= _LEAST_ROOM and drawn[-1].ids[-1] == EOS):
            drawn.append(self.draw_document(draw, room))
            room -= len(drawn[-1].ids)
        return drawn

    def draw_document(self, draw: np.random.Generator, room: int) -> DrawnDocument:
        """Draw a document of a piece; it fills `room` tokens if the piece is long enough."""
        shares = self.shares
        piece = self._draw_piece(draw)
        kind = self._draw_kind(draw)
        has_plan, has_style, has_key, has_players = draw.random(4) < (
            *(shares.plan, shares.style, shares.key, shares.players),
        )
        gap = 0
        if kind.startswith("infilling"):
            gap = int((_LONGEST_GAP + 1) ** draw.random())  # each doubling is equally frequent
        part, masked = self._changed(
            self._draw_part(piece, kind, gap, room, draw, has_plan=bool(has_plan)),
            piece,
            room,
            draw,
        )
        selection, kind = self._draw_selection(part, kind, gap, draw)
        style = self.corpus.facts(piece).style
        header = Header(style if has_style and style >= 0 else None)
        while True:
            document = self._document(
                part, selection, header, has_plan=bool(has_plan), has_key=bool(has_key)
            )
            if has_players:
                document = self._with_players(document)
            ids = self.tokenizer.encode(*document).ids
            excess = len(ids) - room
            if excess <= 0 or selection is None or selection.stop is None:
                break
            bars = len(part.lines) - 1
            before, after = selection.first, bars - selection.stop
            if not before + after:
                break
            # bars are left out where more of them are
            out = min(max(excess * bars // len(ids), 1), before + after)
            at_start = min(max((out + before - after + 1) // 2, out - after, 0), out, before)
            part = part.without(at_start, out - at_start)
            selection = selection._replace(
                first=selection.first - at_start, stop=selection.stop - at_start
            )
        return DrawnDocument(kind, piece, part.first_bar, document, ids, masked)

    @property
    def _has_tracks(self) -> bool:
        """Whether the tokenizer distinguishes tracks."""
        return self.tokenizer.families.only_track < 0

    def _draw_kind(self, draw: np.random.Generator) -> Kind:
        kinds: list[Kind] = [
            kind for kind in KINDS if self._has_tracks or kind not in _NEEDS_TRACKS
        ]
        shares = np.cumsum([getattr(self.shares, kind) for kind in kinds])
        return kinds[int(np.searchsorted(shares, draw.random() * shares[-1], side="right"))]

    @cached_property
    def _corpora(self) -> tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]:
        """Of each corpus, its pieces and the number of tokens up to the end of each (pieces,)."""
        of_corpus = np.concatenate([shard.pieces["corpus"] for shard in self.corpus.shards])
        lengths = self.corpus.lengths
        pieces = [np.flatnonzero(of_corpus == at) for at in range(len(self.corpus.corpora))]
        return tuple((of_one, np.cumsum(lengths[of_one])) for of_one in pieces)

    @cached_property
    def _weights(self) -> NDArray[np.float64]:
        """Sums of the weights of the corpora, in their order; a corpus without pieces has none."""
        pairs = zip(self.corpus.corpora, self._corpora, strict=True)
        return np.cumsum([corpus["weight"] * (len(pieces) > 0) for corpus, (pieces, _) in pairs])

    def _draw_piece(self, draw: np.random.Generator, corpus: int | None = None) -> int:
        """Draw a piece by its number of tokens, of a corpus drawn by weight if none is given."""
        if corpus is None:
            place = draw.random() * self._weights[-1]
            corpus = int(np.searchsorted(self._weights, place, side="right"))
        pieces, ends = self._corpora[corpus]
        return int(pieces[np.searchsorted(ends, draw.integers(ends[-1]), side="right")])

    def _draw_part(
        self,
        piece: int,
        kind: Kind,
        gap: int,
        room: int,
        draw: np.random.Generator,
        *,
        has_plan: bool,
    ) -> _Part:
        """Return the bars of a piece that fill some room; for infilling, as many as fit into it."""
        ids, bars, families = (
            self._read(piece),
            self.corpus.piece_bars(piece),
            self.tokenizer.families,
        )
        is_kept = np.ones(len(ids), bool)
        if not has_plan:
            is_kept = (ids < families.return_) | (ids >= families.later)
        ends = np.append(0, np.cumsum(is_kept))
        starts, length = ends[bars], int(ends[-1])
        if gap:
            room -= _HEADER_ROOM + gap
            if kind == "infilling_with_given":  # positions of the gap may occur twice
                positions = int(np.count_nonzero((ids >= POSITION) & (ids < TEMPO)))
                room -= gap * positions // len(bars)
            # every bar may have a Later
            stops = np.append(starts, length) + np.arange(len(bars) + 1)
            first = int(draw.integers(len(bars)))
            stop = int(np.searchsorted(stops, stops[first] + room, side="right")) - 1
            if stop == len(bars):
                first = min(first, int(np.searchsorted(stops, stops[-1] - room)))
            stop = max(stop, first + 1)
        else:
            if kind == "from_nothing":
                first = 0
            else:
                # if less than half of the room followed, most of the example would be padding
                last = int(np.searchsorted(starts, length - (room - 1) // 2, side="right"))
                share = self.beginnings if kind == "accompaniment" else 0
                begins = draw.random() < share
                first = 0 if begins or last < 2 else int(draw.integers(1, last))
            stop = int(np.searchsorted(starts, starts[first] + room))
        has_more = stop < len(bars)
        crop = self.tokenizer.crop(ids[: bars[stop] if has_more else None], first)
        score = self.tokenizer.decode(crop)
        # what sounds beyond the last bar ends there
        end = notated_lines(score, max(score.end_ticks, 1))[stop - first]
        return _Part(part_of(score, 0, int(end)), first, not has_more)

    def _changed(
        self, part: _Part, piece: int, room: int, draw: np.random.Generator
    ) -> tuple[_Part, int]:
        """Transpose and change the part; return it with the flags of what is not predicted."""
        facts = self.corpus.facts(piece)
        masked = facts.masked
        score = part.score
        end = int(part.lines[-1])
        low, high = (0, 127) if self._has_tracks else _PIANO_KEYS
        pitches = all_notes(track for track in score.tracks if not track.is_drum)[:, 2]
        if len(pitches):
            low, high = min(low, int(pitches.min())), max(high, int(pitches.max()))
            for _ in range(100):
                by = int(draw.integers(self.transposition[0], self.transposition[1] + 1))
                if low <= pitches.min() + by and pitches.max() + by <= high:
                    tracks = (
                        track if track.is_drum else _moved(track, by) for track in score.tracks
                    )
                    score = score.with_tracks(tracks)
                    break

        def other() -> Score:
            """Return a part of another piece of the same corpus."""
            nonlocal masked
            other_piece = self._draw_piece(draw, facts.corpus)
            masked |= self.corpus.facts(other_piece).masked & MASKED_VELOCITIES
            return self._draw_part(other_piece, "continuation", 0, room, draw, has_plan=True).score

        score = self.augmentation(score, other, draw)
        slowest, fastest = TEMPO_GRID[[0, -1]].tolist()
        tempos = tuple(
            tempo._replace(bpm=min(max(tempo.bpm, slowest), fastest)) for tempo in score.tempos
        )
        # loops may be longer; other notes that sound beyond the last bar line end there
        last = int(all_notes(score.tracks)[:, 0].max(initial=0)) + 1
        end = int(notated_lines(score, max(end, last))[-1])
        score = part_of(replace(score, tempos=tempos), 0, end)
        return part._replace(score=score), masked

    def _draw_selection(
        self, part: _Part, kind: Kind, gap: int, draw: np.random.Generator
    ) -> tuple[Selection | None, Kind]:
        """Return what is to be written, and the kind of document that this gives.

        A part of one bar has no gap, and tracks are given only where at least two play.
        """
        bars = len(part.lines) - 1
        selection = None
        if gap and bars > 1:
            # no longer than what is around it
            size = min(gap, bars // 2)
            most = bars - size
            first = int(draw.integers(1, most) if most > 1 else draw.integers(2))
            edge = draw.random()
            if edge < 2 * _AT_EDGE:
                first = 0 if edge < _AT_EDGE else most
            selection = Selection(first, first + size)
        elif kind == "accompaniment":
            selection = Selection(0, None)
        if kind in _NEEDS_TRACKS and selection is not None:
            players = sorted(self._players(part.score, selection))
            if len(players) > 1:
                given = draw.permutation(players)[: int(draw.integers(1, len(players)))].tolist()
                ranks = self.tokenizer.track_ranks(part.score.tracks)
                at = tuple(index for index, rank in enumerate(ranks) if rank in given)
                return selection._replace(given=at), kind
        if selection is not None and kind != "accompaniment":
            return selection, "infilling"
        return None, "continuation" if part.first_bar else "from_nothing"

    def _players(self, score: Score, selection: Selection | None) -> set[int]:
        """Return the ranks of the tracks that play in the bars that are to be written."""
        start, end = 0, score.end_ticks
        if selection is not None and selection.stop is not None:
            lines = notated_lines(score, max(end, 1))
            start, end = lines[[selection.first, selection.stop]].tolist()
        ranks = self.tokenizer.track_ranks(score.tracks)
        return {
            rank
            for track, rank in zip(score.tracks, ranks, strict=True)
            if rank >= 0 and ((track.notes[:, 0] >= start) & (track.notes[:, 0] < end)).any()
        }

    def _document(
        self,
        part: _Part,
        selection: Selection | None,
        header: Header,
        *,
        has_plan: bool,
        has_key: bool,
    ) -> Document:
        plan = None
        if has_plan:
            plan = analyse_document(part.score, selection)
            plan = plan if has_key else replace(plan, key=None)
        elif has_key and (key := estimate_key(part.score)):
            plan = Plan((), key)
        begins = part.first_bar == 0
        return Document(part.score, plan, header, selection, begins, part.ends)

    def _with_players(self, document: Document) -> Document:
        """Return the document with the tracks that are to be written in its header."""
        if not self._has_tracks:
            return document
        score, selection = document.score, document.selection
        players = self._players(score, selection)
        ranks = self.tokenizer.track_ranks(score.tracks)
        players -= {ranks[index] for index in (selection.given if selection else ())}
        return document._replace(header=document.header._replace(players=tuple(sorted(players))))


def _moved(track: Track, semitones: int) -> Track:
    """Return a transposed track."""
    return replace(track, notes=np.add(track.notes, [0, 0, semitones, 0]))
