"""Jobs that share a model: admitted in order, each with the same music as if it ran alone."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import Any

import pytest

from app.compose import continuation
from app.compose.continuation import Progress, Result, Variations
from app.compose.options import MusicOptions, with_seed
from app.compose.piece import Opening
from app.compose.prompt.prompt import read_prompt
from app.errors import BusyError
from app.server.scheduler import Scheduler
from relpe.decoding.base import StepsMaker
from relpe.decoding.generate import Generation
from tests.support import fakes
from tests.support.scores import two_hands
from tests.support.waiting import until
from tokenization.midi import write_midi


def options(seed, **others: Any) -> MusicOptions:
    return replace(MusicOptions(seed=seed, bars=2, takes=1), **others)


def generate(scheduler, model, asked, stop=None, prompt=None):
    """A job: music after the prompt, or from nothing."""
    asked = with_seed(asked)
    if prompt is None:
        opening = Opening.of_nothing(model, asked)
    else:
        opening = Opening.after(model, prompt, asked)
    return scheduler.generate(opening, stop or threading.Event())


def last(steps):
    *_, result = steps
    assert isinstance(result, Result)
    return result


def files(result):
    return [piece.midi for piece in result.pieces]


class HeldSteps(fakes.QuickSteps):
    """Steps that wait for a gate, and record their numbers of rows."""

    def __init__(self, size, gate, widths):
        super().__init__(size)
        self.gate, self.widths = gate, widths

    def step(self, slots, tokens, coordinates=None):
        """See `Steps.step`."""
        assert self.gate.wait(30)
        self.widths.append(len(slots))
        return super().step(slots, tokens, coordinates)


@pytest.fixture
def held(small_model):
    """A model that generates while its gate is set, the gate, and the rows of each step."""
    gate, widths = threading.Event(), []
    size = small_model.decoder.config.vocabulary_size
    steps = StepsMaker("held", lambda: HeldSteps(size, gate, widths))
    yield replace(small_model, steps=steps), gate, widths
    gate.set()


def until_counts(scheduler, counts):
    until(lambda: scheduler.counts == counts)


def test_a_piece_has_the_same_bytes_alone_and_beside_other_jobs(small_model, prompt_bytes):
    prompt = read_prompt(prompt_bytes, "song.mid", tokenizer=small_model.tokenizer)
    jobs = [(prompt, options(0, bars=1)), (prompt, options(1, bars=1, variations=2))]
    jobs.append((None, options(2, bars=1)))  # pyright: ignore[reportArgumentType]
    alone = [
        files(last(continuation.continue_prompt(small_model, prompt, asked)))
        if prompt
        else files(last(continuation.generate_piece(small_model, asked)))
        for prompt, asked in jobs
    ]
    scheduler = Scheduler()

    def beside(job):
        prompt, asked = job
        return files(last(generate(scheduler, small_model, asked, prompt=prompt)))

    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(beside, jobs)) == alone
    assert len({data for of_job in alone for data in of_job}) == 4


def test_rows_are_bounded_and_jobs_admitted_in_order(held):
    model, gate, widths = held
    scheduler, began = Scheduler(max_rows=4), []

    def job(seed, variations):
        for step in generate(scheduler, model, options(seed, variations=variations)):
            if isinstance(step, Progress) and not step.place and seed not in began:
                began.append(seed)

    with ThreadPoolExecutor(5) as threads:
        works = []
        # the second needs more rows than are left, and the third has to wait for it
        for seed, variations in ((1, 3), (2, 3), (3, 1), (4, 4)):
            works.append(threads.submit(job, seed, variations))
            until_counts(scheduler, (1, seed - 1))
        gate.set()
        for work in works:
            work.result(60)
    assert (began[0], began[-1]) == (1, 4)
    assert max(widths) == 4
    assert scheduler.counts == (0, 0)


def test_a_job_knows_its_place_and_when_its_turn_comes(held):
    model, gate, _ = held
    scheduler = Scheduler(max_rows=1)
    stop = threading.Event()
    gate.set()
    last(generate(scheduler, model, options(9)))  # its speed is measured
    gate.clear()
    jobs = [generate(scheduler, model, options(seed), stop) for seed in (0, 1)]
    jobs.append(generate(scheduler, model, options(2, seconds=60)))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(last, generate(scheduler, model, options(3)))
        until_counts(scheduler, (1, 0))
        steps: list[Any] = [next(job) for job in jobs]
        assert [step.place for step in steps] == [1, 2, 3]
        seconds = [step.seconds_left for step in steps]
        assert 0 < seconds[0] < seconds[1] < seconds[2]
        stop.set()
        assert [last(job).tokens for job in jobs[:2]] == [0, 0]
        step: Any = next(jobs[2])
        assert step.place == 1
        gate.set()
        assert first.result(30).bars == 2
    assert last(jobs[2]).bars > 2


def test_too_many_waiting_jobs_are_refused(held):
    model, gate, _ = held
    scheduler, prompt = Scheduler(max_rows=1, max_waiting=1), read_prompt(write_midi(two_hands(8)))
    with ThreadPoolExecutor(1) as threads:
        first = threads.submit(last, generate(scheduler, model, options(1)))
        until_counts(scheduler, (1, 0))
        second = generate(scheduler, model, options(2))
        next(second)
        for study in ({}, {"study_steps": 1}):  # before the study, not after it
            with pytest.raises(BusyError, match="1 running and 1 waiting jobs, expected at most 1"):
                next(generate(scheduler, model, options(3, **study), prompt=prompt))
        second.close()  # a job that ends frees its rows
        third = next(generate(scheduler, model, options(3)))
        assert isinstance(third, Progress)
        assert third.place == 1
        gate.set()
        first.result(30)


def test_two_copies_study_at_once_and_each_ends_with_its_job(held, monkeypatch):
    model, gate, _ = held
    copies = []

    def with_decoder(self, decoder):
        copies.append(weakref.ref(decoder))
        return replace(self, decoder=decoder)

    monkeypatch.setattr(type(model), "with_decoder", with_decoder)
    prompt = read_prompt(write_midi(two_hands(8)))
    scheduler = Scheduler()
    with ThreadPoolExecutor(3) as threads:
        works: list[Any] = []
        for seed in range(2):
            studying = generate(scheduler, model, options(seed, study_steps=1), prompt=prompt)
            works.append(threads.submit(last, studying))
            del studying
            until_counts(scheduler, (1 + seed, 0))
        waiting = generate(scheduler, model, options(2, study_steps=1, study=9.0), prompt=prompt)
        step: Any = next(waiting)
        assert (step.place, step.studying) == (1, None)
        assert scheduler.counts == (2, 1)
        plain = generate(scheduler, model, options(3), prompt=prompt)
        works.append(threads.submit(last, plain))  # need not wait for studies
        until_counts(scheduler, (3, 1))
        gate.set()
        assert [work.result(30).pieces[0].studied is None for work in works] == [False, False, True]
    piece: Any = last(waiting).pieces[0]
    assert piece.studied.steps == 1
    del works, waiting, plain, step
    gc.collect()
    assert [found() for found in copies] == [None] * 3
    assert scheduler.counts == (0, 0)


def test_an_error_of_one_prompt_does_not_affect_the_others(held, monkeypatch):
    model, gate, _ = held
    together, is_read = threading.Event(), Generation._is_read

    def broken(self, reading):
        if reading.waiting[0].seed == 2:
            assert together.wait(30)
            raise ZeroDivisionError
        return is_read(self, reading)

    monkeypatch.setattr(Generation, "_is_read", broken)
    scheduler = Scheduler()
    with ThreadPoolExecutor(2) as threads:
        works = [threads.submit(last, generate(scheduler, model, options(seed))) for seed in (1, 2)]
        until_counts(scheduler, (2, 0))
        together.set()
        gate.set()
        assert works[0].result(30).bars == 2
        with pytest.raises(ZeroDivisionError):
            works[1].result(30)


@pytest.mark.parametrize("moment", ["before", "waiting", "preparing", "reading", "writing", "done"])
def test_a_job_can_end_at_any_moment_and_leaves_nothing(held, monkeypatch, moment):
    """The job is stopped, closed, or abandoned."""
    model, gate, _ = held
    gate.set()
    if moment == "preparing":
        monkeypatch.setattr(type(model), "preparing", lambda _: iter([None] * 3))
    if moment == "reading":
        monkeypatch.setattr(Generation, "_is_read", lambda *_: False)
    schedulers = {how: Scheduler(max_rows=1) for how in ("stop", "close", "drop")}
    for how, scheduler in schedulers.items():
        stop = threading.Event()
        bars = 1 if moment == "done" else 400
        job = generate(scheduler, model, options(1, bars=bars), stop)
        with ExitStack() as others:
            if moment == "waiting":
                first = generate(scheduler, model, options(2, bars=4000))
                next(others.enter_context(closing(first)))
            if moment == "done":
                last(job)
            elif moment == "writing":
                next(step for step in job if isinstance(step, Progress) and step.tokens)
            elif moment != "before":
                next(job)
            if how == "stop":
                stop.set()
                assert all(isinstance(step, Progress | Result) for step in job)
            elif how == "close":
                job.close()
            del job
    monkeypatch.undo()
    for scheduler in schedulers.values():
        assert scheduler.counts == (0, 0)
        assert last(generate(scheduler, model, options(3))).bars == 2


def test_when_the_model_fails_all_its_jobs_raise_and_the_next_one_succeeds(held, monkeypatch):
    """The thread ends with the work."""
    model, gate, widths = held
    scheduler, step = Scheduler(), HeldSteps.step

    def fail_later(self, slots, tokens):
        if len(widths) > 20:
            raise ValueError("logits are not finite")
        return step(self, slots, tokens)

    with monkeypatch.context() as patch, ThreadPoolExecutor(3) as threads:
        patch.setattr(HeldSteps, "step", fail_later)
        asked = [generate(scheduler, model, options(seed, bars=8)) for seed in range(3)]
        jobs = [threads.submit(last, job) for job in asked]
        until_counts(scheduler, (3, 0))
        gate.set()
        for job in jobs:
            with pytest.raises(ValueError, match="not finite"):
                job.result(30)
    assert scheduler.counts == (0, 0)
    assert last(generate(scheduler, model, options(1))).bars == 2
    for thread in threading.enumerate():
        if thread.name.startswith("worker of"):
            thread.join(30)
            assert not thread.is_alive()


def test_the_time_is_estimated_from_tokens_after_the_first_job(quick_model):
    """Also the duration of a bar from nothing, whose tempo the model chooses."""
    scheduler = Scheduler()
    assert scheduler.seconds_needed("small", None, 2, 1) is None
    assert scheduler.bar_seconds("small", None) == 2
    result = last(generate(scheduler, quick_model, options(1, bars=4)))
    seconds = scheduler.seconds_needed("small", None, result.bars, 1)
    assert seconds == pytest.approx(result.seconds - result.reading_seconds)
    twice = scheduler.seconds_needed("small", None, 2 * result.bars, 1)
    assert twice == pytest.approx(2 * seconds)  # pyright: ignore[reportOperatorIssue]
    four = scheduler.seconds_needed("small", None, result.bars, 4)
    assert four == pytest.approx(4**0.7 * seconds)  # rows share their steps  # pyright: ignore[reportOperatorIssue]
    assert scheduler.seconds_needed("other", None, 2, 1) is None
    (piece,) = result.pieces
    assert scheduler.bar_seconds("small", None) == pytest.approx(piece.seconds / piece.bars)
    prompt = read_prompt(write_midi(two_hands()))  # at 96 bpm
    assert scheduler.bar_seconds("small", prompt) == scheduler.bar_seconds("other", prompt) == 2.5
    # a stopped job does not change it
    half = replace(result, tokens=result.tokens // 2, seconds=result.seconds / 2, bars=0)
    scheduler._shared(quick_model).speed.learn(half)
    later = scheduler.seconds_needed("small", None, result.bars, 1)
    assert later == pytest.approx(seconds, rel=0.3)


def test_the_time_to_read_a_prompt_is_estimated_apart_from_that_to_generate(quick_model):
    scheduler = Scheduler()
    prompt = read_prompt(write_midi(two_hands()))
    opening = Opening.after(quick_model, prompt, options(1))
    last(generate(scheduler, quick_model, options(1)))
    speed = scheduler._shared(quick_model).speed
    assert speed.reading(100) == 0  # no prompt so far
    result = last(scheduler.generate(opening, threading.Event()))
    assert result.prompt_tokens == len(opening.context)
    assert 0 < result.reading_seconds < result.seconds
    seconds = 100 * result.reading_seconds / result.prompt_tokens
    assert speed.reading(100) == pytest.approx(seconds)
    waiting = Variations(opening)
    for bars, tokens, estimate in (
        (2, prompt.tokens_heard(), scheduler.seconds_needed("small", prompt, 2, 1)),
        (
            waiting.bars_left,
            len(opening.context),
            scheduler._shared(quick_model).seconds_left([waiting]),
        ),
    ):
        generating = speed.generating(prompt, bars, 1)
        assert generating
        assert estimate == pytest.approx(generating + speed.reading(tokens))
