"""What steering does, with models whose logits are written here, and on the released one."""

from __future__ import annotations

import time
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.compose.continuation import (
    MusicOptions,
    Result,
    continue_prompt,
    generate_piece,
    read_prompt,
)
from app.compose.new_bars import BarRule, in_bars
from app.compose.steering import (
    MOST_CROWD,
    MOST_DENSITY,
    OUTSIDE_KEY,
    MusicRule,
    Steered,
    Steering,
    steered,
)
from relpe.decoding.sampling import SamplingOptions, draw
from tests.app.conftest import two_hands
from tests.tokenization.constraints.test_repetition import A, B, bar
from tokenization.compat.spe_pop import SpePopConfig
from tokenization.errors import TokenizerError
from tokenization.midi import write_midi
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import PianoRemi
from tokenization.remi.vocabulary import (
    BAR,
    BOS,
    MULTITRACK_FAMILIES,
    PIANO_FAMILIES,
    POSITION,
    TEMPO,
    TIME_SIGNATURE,
    Families,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from app.compose.continuation import Steps
    from app.compose.models import MusicModel

FAMILIES = {"piano": PIANO_FAMILIES, "multitrack": MULTITRACK_FAMILIES}
TOKENIZERS = {"piano": PianoRemi(), "multitrack": MultitrackRemiConfig().build()}
STEERED = st.builds(
    MusicOptions,
    key=st.sampled_from([None, "C", "F# minor pentatonic"]),
    density=st.sampled_from([0.0, 3.0, 40.0]),
    repetition=st.sampled_from([0.0, 1.0]),
    ending=st.sampled_from(["bar", "cadence"]),
    seconds=st.sampled_from([None, 5.0]),
)


def rule_of(
    options: MusicOptions, bars: int, name: str = "piano", *, four_four: bool = False
) -> MusicRule:
    """The rule of a piece from nothing, or one behind `Bar TimeSignature Position_0 Tempo`."""
    tokenizer = TOKENIZERS[name]
    grammar = tokenizer.grammar(tempo="bar_line", time_signature=not four_four, end=False)
    rule = steered(BarRule(grammar.advance(BOS), 1, bars), options, tokenizer)
    if four_four:
        for token in (BAR, TIME_SIGNATURE + 7, POSITION, TEMPO + 90):
            rule = rule.advance(token)
    return rule


def flat(_: MusicRule, families: Families) -> np.ndarray:
    return np.zeros(families.size, np.float32)


def write(
    rule: MusicRule,
    seed: int = 0,
    logits: Callable[[MusicRule, Families], np.ndarray] = flat,
    name: str = "piano",
    most: int = 100_000,
) -> tuple[list[int], MusicRule]:
    """All tokens of a row, and the rule after them."""
    generator = np.random.Generator(np.random.PCG64(seed))
    options, tokens = SamplingOptions(top_p=1.0), []
    while rule.allowed.any() and len(tokens) < most:
        bias = getattr(rule, "bias", None)
        token = draw(logits(rule, FAMILIES[name]), rule.allowed, options, generator, bias)
        tokens.append(token)
        rule = rule.advance(token)
    return tokens, rule


def notes_of_bars(tokens: list[int], families: Families = PIANO_FAMILIES) -> np.ndarray:
    """Notes of each bar that a Bar ends."""
    array = np.array(tokens)
    is_note = (array >= families.pitch) & (array < families.velocity)
    bars = np.cumsum(array == BAR)
    return np.bincount(bars[is_note], minlength=bars[-1] + 1)[: bars[-1]]


def finish(steps: Steps) -> Result:
    *_, result = steps
    assert isinstance(result, Result)
    return result


# laws


@settings(deadline=None, max_examples=40)
@given(options=STEERED, name=st.sampled_from(sorted(FAMILIES)), seed=st.integers(0, 99))
def test_what_is_steered_keeps_to_the_grammar(options: MusicOptions, name: str, seed: int) -> None:
    """`advance` raises where a token is not allowed; biases may be as large as they like."""
    tokens, rule = write(rule_of(options, 3, name), seed, name=name, most=400)
    if rule.finished and options.seconds is None:
        assert tokens.count(BAR) == 3 + 1
    if isinstance(rule, Steered):
        assert np.isfinite(rule.bias).all()
        assert rule.bias.shape == rule.allowed.shape
        assert rule.allowed is rule.rule.allowed or rule.finished


@settings(deadline=None, max_examples=20)
@given(name=st.sampled_from(sorted(FAMILIES)), seed=st.integers(0, 99))
def test_where_nothing_is_asked_for_nothing_is_wrapped_or_changed(name: str, seed: int) -> None:
    plain = rule_of(MusicOptions(), 3, name)
    assert type(plain) is BarRule
    wrapped = Steered(plain, Steering.of(MusicOptions(), FAMILIES[name]), None)
    assert not wrapped.bias.any()
    assert (
        write(plain, seed, name=name, most=300)[0] == write(wrapped, seed, name=name, most=300)[0]
    )


def test_the_options_alone_decide_and_defaults_are_no_steering(small_model: MusicModel) -> None:
    plain = MusicOptions(bars=3, seed=2)
    same = MusicOptions(bars=3, seed=2, key=None, density=0, repetition=0, top_k=0, min_p=0)
    other = MusicOptions(bars=3, seed=2, key="C minor pentatonic")
    plain, same, other = (
        finish(generate_piece(small_model, options)).pieces[0].midi
        for options in (plain, same, other)
    )
    assert plain == same != other


def test_other_tokens_than_the_released_ones_cannot_be_steered() -> None:
    tokenizer = SpePopConfig().build()
    rule = BarRule(tokenizer.grammar(), 1, 4)
    assert steered(rule, MusicOptions(), tokenizer) is rule
    with pytest.raises(TokenizerError, match="spe_pop, expected piano_remi"):
        steered(rule, MusicOptions(density=3), tokenizer)


# key


@pytest.mark.parametrize("name", sorted(FAMILIES))
def test_pitches_outside_the_key_are_less_likely_and_drums_as_they_were(name: str) -> None:
    families = FAMILIES[name]
    bias = Steering.of(MusicOptions(key="G"), families).outside
    pitches = np.arange(families.num_pitches) + families.lowest_pitch
    outside = np.isin(pitches % 12, [1, 3, 5, 8, 10])
    assert np.array_equal(bias[families.pitch : families.drum] == -OUTSIDE_KEY, outside)
    assert np.count_nonzero(bias) == np.count_nonzero(outside)


def test_a_key_lowers_the_share_of_notes_outside() -> None:
    shares = []
    for key in (None, "D dorian"):
        rule = rule_of(MusicOptions(key=key), 20, four_four=True)
        notes = np.array(write(rule)[0])
        notes = notes[(notes >= PIANO_FAMILIES.pitch) & (notes < PIANO_FAMILIES.drum)]
        pitches = notes - PIANO_FAMILIES.pitch + PIANO_FAMILIES.lowest_pitch
        shares.append(np.isin(pitches % 12, [1, 3, 6, 8, 10]).mean())
    assert shares[0] > 0.3
    assert 0 < shares[1] < 0.05


# density


def test_density_moves_the_notes_of_a_bar_both_ways() -> None:
    free, sparse, dense = (
        notes_of_bars(write(rule_of(MusicOptions(density=density), 40, four_four=True))[0]).mean()
        for density in (0, 5, 25)
    )
    assert 8 < free < 12
    assert 3 < sparse < 7
    assert 21 < dense < 29


@settings(deadline=None, max_examples=20)
@given(seed=st.integers(0, 99), density=st.floats(0.1, 200))
def test_the_bias_of_density_is_bounded_and_for_times_and_notes(seed: int, density: float) -> None:
    rule = rule_of(MusicOptions(density=density), 40, four_four=True)
    _, rule = write(rule, seed, most=seed)
    assert isinstance(rule, Steered)
    bias = rule.bias
    assert np.abs(bias).max() <= MOST_DENSITY + 1e-9
    notes = bias[PIANO_FAMILIES.pitch : PIANO_FAMILIES.velocity]
    assert not bias[TEMPO : PIANO_FAMILIES.pitch].any()
    assert not bias[PIANO_FAMILIES.velocity :].any()
    assert np.ptp(notes) == 0
    assert abs(notes[0]) <= MOST_CROWD
    if rule.allowed[BAR]:
        times = bias[POSITION + rule.position + 1 : POSITION + 48]
        steps = np.diff([0, *times, bias[BAR]])
        np.testing.assert_allclose(steps, steps[0], atol=1e-9)


# repetition


def copying(rule: MusicRule, families: Families) -> np.ndarray:
    """A model that plays two bars in turn for ever, going back to them where it can."""
    bars = ([*bar(*A)[1:], BAR], [*bar(*B)[1:], BAR])
    logits = np.zeros(families.size, np.float32)
    allowed = rule.allowed
    logits[next(token for token in bars[rule.written_bar % 2] if allowed[token])] = 12
    return logits


def contents(tokens: list[int]) -> list[tuple[int, ...]]:
    """Positions and pitches of each bar."""
    bars: list[list[int]] = [[]]
    for token in tokens:
        if token == BAR:
            bars.append([])
        elif POSITION <= token < TEMPO or PIANO_FAMILIES.pitch <= token < PIANO_FAMILIES.velocity:
            bars[-1].append(token)
    return [tuple(content) for content in bars[:-1]]


def pairs_heard(strength: float) -> int:
    """How often the commonest pair of bars is heard in eighty bars of a model that copies."""
    rule = rule_of(MusicOptions(repetition=strength), 80, four_four=True)
    bars = contents(write(rule, seed=3, logits=copying)[0])
    assert len(bars) == 80
    pairs = list(pairwise(bars))
    return max(pairs.count(pair) for pair in set(pairs))


def test_a_model_that_copies_for_ever_is_led_away() -> None:
    free, half, full = (pairs_heard(strength) for strength in (0.0, 0.5, 1.0))
    assert free > 30
    assert full <= half < 15
    assert full < 10


def test_the_more_often_it_was_heard_the_less_likely_is_a_copy() -> None:
    least = []
    for times in range(1, 9):
        rule = rule_of(MusicOptions(repetition=0.5), 80, four_four=True)
        for token in [*bar(*A)[2:], *(bar(*B) + bar(*A)) * times, BAR, POSITION]:
            rule = rule.advance(token)
        assert isinstance(rule, Steered)
        (liked,) = np.flatnonzero(rule.bias)
        assert PianoRemi().vocabulary.names[liked] == "Pitch_62"
        least.append(rule.bias[liked])
    assert least[:3] == [-0.25, -1.0, -2.25]
    assert min(least) == least[-1] == -8.0


def test_the_prompt_was_heard_as_well(small_model: MusicModel) -> None:
    tokens = [BOS, BAR, TIME_SIGNATURE + 7, POSITION, TEMPO + 90, *bar(*A)[2:], *bar(*B), *bar(*A)]
    tokens += [*bar(*B), BAR]
    grammar = small_model.tokenizer.grammar(end=False).resume(tokens)
    rule = steered(
        BarRule(grammar, grammar.bar, grammar.bar + 4),
        MusicOptions(repetition=1),
        small_model.tokenizer,
        np.array(tokens),
    )
    assert isinstance(rule, Steered)
    assert rule.repetition is not None
    assert rule.repetition.copies == [(POSITION, 1)]


# length and ending


@pytest.mark.parametrize("seed", range(8))
def test_a_piece_of_some_seconds_ends_with_the_bar_in_which_they_are_over(seed: int) -> None:
    _, rule = write(rule_of(MusicOptions(seconds=20), 1), seed)
    assert isinstance(rule, Steered)
    assert rule.finished
    assert rule.seconds_before < 20 <= rule.seconds


@pytest.mark.parametrize("seconds", [1, 7.5, 7.6, 15])
def test_pieces_and_continuations_last_as_long_as_asked_for(
    small_model: MusicModel, seconds: float
) -> None:
    options = MusicOptions(seconds=seconds, seed=1)
    (piece,) = finish(generate_piece(small_model, options)).pieces
    lasts = piece.score.seconds_at(piece.score.end_ticks)
    longest_bar = max(96 / 12 * 60 / bpm for _, bpm in piece.score.tempos)
    assert seconds - 1e-3 <= lasts < seconds + longest_bar
    assert piece.seconds == pytest.approx(lasts, abs=0.01)

    prompt = read_prompt(write_midi(two_hands()))  # bars of two and a half seconds
    result = finish(continue_prompt(small_model, prompt, options))
    assert result.bars == -(-seconds // 2.5)
    assert result.pieces[0].seconds == pytest.approx(2.5 * result.bars, abs=0.01)
    assert in_bars(options, prompt).bars == result.bars
    assert in_bars(MusicOptions(bars=5), prompt) == MusicOptions(bars=5)


def test_seconds_are_those_of_the_metre_and_tempos_of_the_file(small_model: MusicModel) -> None:
    prompt = read_prompt(write_midi(two_hands(metre=(3, 4))))
    assert finish(continue_prompt(small_model, prompt, MusicOptions(seconds=5, seed=1))).bars == 3
    assert in_bars(MusicOptions(seconds=3600), prompt).bars == 1920


def test_a_cadence_comes_to_rest_and_rings_over_the_bar_line() -> None:
    lengths: dict[Any, list[float]] = {}
    late: dict[Any, list[int]] = {}
    for ending in ("bar", "cadence"):
        for seed in range(12):
            rule = rule_of(MusicOptions(ending=ending, density=8), 2, four_four=True)
            score = PianoRemi().decode(
                [BOS, BAR, TIME_SIGNATURE + 7, POSITION, TEMPO + 90, *write(rule, seed)[0]]
            )
            notes = score.tracks[0].notes
            last = notes[notes[:, 0] >= 48] - [48, 0, 0, 0]
            lengths.setdefault(ending, []).extend(np.minimum(last[:, 0] + last[:, 1], 48) / 48)
            late.setdefault(ending, []).append(int(np.count_nonzero(last[:, 0] >= 36)))
    assert np.mean(lengths["cadence"]) > np.mean(lengths["bar"]) + 0.03
    assert np.sum(late["cadence"]) == 0 < np.sum(late["bar"])


def test_notes_of_the_last_bar_are_cut_or_ring(small_model: MusicModel) -> None:
    for ending in ("bar", "cadence"):
        options = MusicOptions(bars=2, seed=1, ending=ending)
        (piece,) = finish(generate_piece(small_model, options)).pieces
        prompt = read_prompt(write_midi(two_hands()))
        (more,) = finish(continue_prompt(small_model, prompt, options)).pieces
        onsets = np.concatenate([track.notes[:, 0] for track in more.new.tracks])
        assert onsets.max() < 6 * 1920
        assert (more.new.end_ticks > 6 * 1920) == (ending == "cadence")
        assert more.score.end_ticks == more.new.end_ticks
        assert piece.bars == more.bars == 2


# speed


def test_the_work_for_a_token_does_not_grow_with_the_piece() -> None:
    options = MusicOptions(key="C", density=5, repetition=1, ending="cadence")
    rule = rule_of(options, 500, four_four=True)
    for token in bar(*A)[2:]:
        rule = rule.advance(token)
    loop, seconds = [*bar(*B), *bar(*A)], {}
    for number in range(2, 410, 2):
        started = time.perf_counter()
        for token in loop:
            assert rule.allowed[token]
            assert isinstance(rule, Steered)
            assert rule.bias is not None
            rule = rule.advance(token)
        seconds[number] = time.perf_counter() - started
    early = min(spent for number, spent in seconds.items() if 6 <= number < 30)
    late = min(spent for number, spent in seconds.items() if number >= 386)
    assert late < 2 * early


# the released model


@pytest.mark.slow
def test_the_released_model_follows_density_and_key() -> None:
    from app.compose.models import load_music_model

    model = load_music_model("piano")

    def made(**wanted: Any) -> tuple[float, float]:
        """Notes per bar, and the share of them outside C major."""
        options = MusicOptions(bars=16, seed=0, variations=4, **wanted)
        pieces = finish(generate_piece(model, options)).pieces
        pitches = np.concatenate([t.notes[:, 2] for piece in pieces for t in piece.new.tracks])
        outside = np.isin(pitches % 12, [1, 3, 6, 8, 10]).mean()
        return len(pitches) / 16 / len(pieces), float(outside)

    free, sparse, dense = made(), made(density=8), made(density=30)
    assert abs(sparse[0] - 8) < 3
    assert abs(dense[0] - 30) < 6
    assert sparse[0] < free[0] < dense[0]
    assert made(key="C")[1] < free[1] / 5
