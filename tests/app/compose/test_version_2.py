"""Models with the vocabulary of version 2 continue and generate music like those of version 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from app.compose.continuation import continue_prompt, generate_piece
from app.compose.models import MusicModel
from app.compose.new_bars import NewBars
from app.compose.options import MusicOptions
from app.compose.piece import Opening, Piece
from app.compose.prompt import read_prompt
from app.compose.timing import Timing
from relpe.models.pointer.config import NUM_LENGTHS, GateConfig, PointerConfig
from tests.support.bands import band, model_of
from tests.support.scores import two_hands
from tokenization.analysis.plan import analyse
from tokenization.errors import TokenizerError
from tokenization.midi import read_midi, write_midi
from tokenization.plan import Key
from tokenization.remi.multitrack import MultitrackRemi
from tokenization.remi.remi import PianoRemi, Remi
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    EOS,
    MULTITRACK_FAMILIES,
    POSITION,
    TIME_SIGNATURE,
)
from tokenization.score import Score, Tempo, Track

F = MULTITRACK_FAMILIES
STEERED = {"key": "C", "density": 5.0, "repetition": 1.0, "ending": "cadence"}


@pytest.fixture(scope="module", params=[PianoRemi, MultitrackRemi])
def model(request: pytest.FixtureRequest) -> MusicModel:
    if request.param is PianoRemi:
        return model_of(PianoRemi())
    return model_of(MultitrackRemi())


@pytest.fixture(scope="module")
def band_model() -> MusicModel:
    return model_of(MultitrackRemi())


def opening_of(model: MusicModel, score: Score, **options: Any) -> Opening:
    prompt = read_prompt(write_midi(score), tokenizer=model.tokenizer)
    return Opening.after(model, prompt, MusicOptions(**options))


def pieces_after(model: MusicModel, score: Score, **options: Any) -> tuple[Piece, ...]:
    prompt = read_prompt(write_midi(score), tokenizer=model.tokenizer)
    *_, result = continue_prompt(model, prompt, MusicOptions(**options))
    return result.pieces  # type: ignore[union-attr]


def sampled(opening: Opening, seed: int = 1, choose: Any = None) -> list[int]:
    """Ids that follow an opening, each drawn evenly from what the rule allows."""
    rng, rule, ids = np.random.default_rng(seed), opening.rule, []
    while not rule.finished:
        allowed = np.flatnonzero(rule.allowed)
        bars = [token for token in (F.last, BAR, EOS) if token in allowed]
        token = bars[0] if bars and rng.random() < 0.3 else int(rng.choice(allowed))
        ids.append(token)
        rule = rule.advance(token)
    return ids


# ---- continuations


@pytest.mark.parametrize("metre", [(4, 4), (6, 8), (7, 16), (13, 4)])
def test_the_upload_stays_and_new_music_begins_at_the_splice(
    model: MusicModel, metre: tuple[int, int]
) -> None:
    upload = read_midi(write_midi(band(metre)))
    first = pieces_after(model, upload, bars=2, seed=3, variations=2)
    (again,) = pieces_after(model, upload, bars=2, seed=4)
    assert first[0].midi != first[1].midi == again.midi
    splice = 3 * 480 * 4 * metre[0] // metre[1]
    for piece in first:
        whole = read_midi(piece.midi)
        assert whole.tempos == upload.tempos
        assert whole.time_signatures == upload.time_signatures
        for before, after in zip(upload.tracks, whole.tracks, strict=True):
            np.testing.assert_array_equal(after.notes[after.notes[:, 0] < splice], before.notes)
        assert piece.bars == 2
        onsets = np.concatenate([track.notes[:, 0] for track in piece.new.tracks])
        assert len(onsets)
        assert splice <= onsets.min() <= onsets.max() < splice * 5 // 3


def test_the_prompt_has_its_plan_and_no_end(model: MusicModel) -> None:
    opening = opening_of(model, two_hands(), bars=2)
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, Remi)
    document = tokenizer.decode_document(opening.context[:-1])
    plan = analyse(two_hands())
    assert document.plan == plan
    assert document.header == (None, ())
    assert (document.begins, document.ends, document.num_bars) == (True, False, 4)
    assert opening.context[-1] == BAR


def test_each_new_bar_has_a_plan_of_its_own(model: MusicModel) -> None:
    tokenizer = model.tokenizer
    opening = opening_of(model, band(), bars=3, prompt_bars=2)
    for seed in range(3):
        ids = sampled(opening, seed)
        tokenizer.grammar().resume(np.append(opening.context, ids[:-1]))
        made = np.array(ids)
        assert np.count_nonzero((made >= F.return_) & (made < F.chord)) == 3
        assert np.count_nonzero(made == BAR) == 3  # the last one ends the music
        assert not np.isin(made, [F.later, F.write, F.last, EOS]).any()
        assert not (made >= F.style).any()


def test_a_new_tempo_is_in_the_head_of_the_first_new_bar(band_model: MusicModel) -> None:
    score = band()
    score = replace(score, tempos=(Tempo(0, 100.0), Tempo(3 * 1920, 140.0)), end_ticks=3 * 1920)
    ids = opening_of(band_model, score, bars=1).context.tolist()
    names = [band_model.tokenizer.vocabulary.names[token] for token in ids[-2:]]
    assert names == ["Bar", "Tempo_140.0"]


@pytest.mark.parametrize("bpm", [20.0, 400.0])
def test_tempos_in_range_are_not_scaled(model: MusicModel, bpm: float) -> None:
    prompt = read_prompt(write_midi(band(bpm=bpm)), tokenizer=model.tokenizer)
    assert prompt.timing.counted is prompt.timing.file
    assert not any("halved or doubled" in notice for notice in prompt.facts.notices)
    assert Timing.of(prompt.score, None).counted is not prompt.score  # version 1
    (piece,) = pieces_after(model, band(bpm=bpm), bars=1, seed=1)
    assert piece.seconds == pytest.approx(4 * 60 / bpm, rel=1e-3)


def test_a_key_that_still_sounds_is_not_struck_again(model: MusicModel) -> None:
    rows = [(bar * 1920, 480, 60, 80) for bar in range(3)] + [(2 * 1920 + 960, 960 + 240, 64, 80)]
    upload = Score(480, (Track.of(rows),), (Tempo(0, 100.0),))
    opening = opening_of(model, upload, bars=1)
    assert isinstance(opening.bars, NewBars)
    held = {pitch for _, pitch, _ in opening.rule.grammar.sounding}  # type: ignore[attr-defined]
    assert F.pitch + 64 in held


@pytest.mark.parametrize("options", [{}, STEERED, {"recall": 0.0, "presence": 0.0}])
def test_the_options_work_together(model: MusicModel, options: dict[str, Any]) -> None:
    first, again = (pieces_after(model, band(), bars=2, seed=1, **options) for _ in range(2))
    assert first[0].midi == again[0].midi
    assert first[0].notes


def test_a_bias_towards_notes_does_not_shorten_the_plan(band_model: MusicModel) -> None:
    opening = opening_of(band_model, band(), bars=2)
    rule = opening.rule.advance(F.return_)
    for token in (F.chord, F.bass + 4):
        bias = rule.bias
        assert bias is not None
        of_plan = np.flatnonzero(rule.allowed)
        notes = of_plan[of_plan < F.return_]
        assert len(notes)
        np.testing.assert_array_equal(bias[of_plan[of_plan >= F.return_]], bias[notes].max())
        rule = rule.advance(token)


def test_a_pointer_works_with_plans() -> None:
    gates = GateConfig(similar=(2.0,) * NUM_LENGTHS)
    tokenizer = MultitrackRemi()
    model = model_of(tokenizer, pointer=PointerConfig(unit=BAR, gates=gates))
    made = [pieces_after(model, band(), bars=2, seed=1, memory=memory) for memory in (0.0, 1.0)]
    assert made[0][0].midi != made[1][0].midi


# ---- endings


def test_a_natural_end_has_a_last_bar(model: MusicModel) -> None:
    opening = opening_of(model, band(), bars=3, ending="natural")
    for seed in range(2):
        ids = sampled(opening, seed)
        assert ids[-1] == EOS
        assert ids.count(F.last) == 1
        assert ids.count(BAR) == 2
        assert BAR not in ids[ids.index(F.last) :]
        model.tokenizer.grammar().resume(np.append(opening.context, ids))
    (piece,) = pieces_after(model, band(), bars=2, seed=1, ending="natural")
    assert (piece.bars, piece.stopped) == (2, False)
    assert piece.new.end_ticks == 5 * 1920


def test_version_1_cannot_end_by_itself(small_model: MusicModel) -> None:
    with pytest.raises(TokenizerError, match="the small model cannot end a piece; choose a model"):
        opening_of(small_model, two_hands(), bars=1, ending="natural")
    with pytest.raises(TokenizerError, match="the small model cannot end a piece; choose a model"):
        Opening.of_nothing(small_model, MusicOptions(bars=1, ending="natural"))


# ---- from nothing


@pytest.mark.parametrize("options", [{}, {"seconds": 5.0}, STEERED, {"ending": "natural"}])
def test_a_piece_from_nothing(model: MusicModel, options: dict[str, Any]) -> None:
    asked = MusicOptions(bars=3, seed=2, **options)
    made = [list(generate_piece(model, asked))[-1].pieces[0] for _ in range(2)]  # type: ignore[union-attr]
    assert made[0].midi == made[1].midi
    assert made[0].notes
    if "seconds" not in options:
        assert made[0].bars == 3


def test_a_piece_with_a_form_keeps_its_metre(model: MusicModel) -> None:
    formed = Opening.of_nothing(model, MusicOptions(bars=4, form="A2 B2"))
    plain, planned = Opening.of_nothing(model, MusicOptions(bars=4)).rule, formed.rule
    metres = slice(TIME_SIGNATURE, POSITION)
    ids = sampled(formed)
    first = next(place for place, token in enumerate(ids) if TIME_SIGNATURE <= token < POSITION)
    for token in ids[: ids.index(BAR, first) + 1]:
        planned = planned.advance(token)
    assert not planned.allowed[metres].any()
    assert not any(TIME_SIGNATURE <= token < POSITION for token in ids[first + 1 :])
    plain = plain.advance(BAR).advance(ids[first])
    while not plain.allowed[BAR]:
        plain = plain.advance(int(np.flatnonzero(plain.allowed)[0]))
    assert plain.advance(BAR).allowed[metres].any()


def test_the_key_of_a_piece_from_nothing_is_in_its_header(model: MusicModel) -> None:
    tokenizer = model.tokenizer
    assert isinstance(tokenizer, Remi)
    opening = Opening.of_nothing(model, MusicOptions(bars=2, key="F#m"))
    ids = sampled(opening)
    document = tokenizer.decode_document([*opening.context.tolist(), *ids[:-1]])
    assert document.plan is not None
    assert document.plan.key == Key(6, minor=True)
    assert document.selection is None
    # a scale that is neither major nor minor is a bias alone
    assert Opening.of_nothing(model, MusicOptions(key="D dorian")).context.tolist() == [BOS]
