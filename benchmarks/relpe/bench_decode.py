"""Token-by-token decoding: speed compared with other engines, batches, memory, int8 loss.

Run from the top of the repository: `python -m benchmarks.relpe.bench_decode`, optionally with the
names of some parts. Prints CSV. In `speed`, `encodings`, `eager` and `patterns`, all methods take
turns in one process on one thread; results are medians of CPU time, which depend little on other
work on the machine. The other parts give wall time. A full run takes about ten minutes; `--tokens
1000000` adds ten more.
"""

from __future__ import annotations

import itertools
import math
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
import torch

from app.compose.continuation import Result, generate_piece
from app.compose.models import ComputeOptions, load_music_model
from app.compose.options import MusicOptions
from benchmarks.relpe.decode_peers import (
    SIZES,
    dynamic_cache,
    gpt2,
    onnx_products,
    static_cache,
    stream,
)
from benchmarks.timing import csv_output, in_new_process, medians, run, turns
from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.feature_maps import FavorConfig
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig
from relpe.decoding.compiled import CompiledDecoder
from relpe.decoding.eager import PlainSteps, prefill
from relpe.decoding.kernels import Matrices
from relpe.decoding.position_codes import PositionCodes
from relpe.encodings import (
    AlgebraicConfig,
    ConvSPEConfig,
    NoEncodingConfig,
    RopeConfig,
    SineSPEConfig,
    SirenSPEConfig,
)
from relpe.models.checkpoint import load_model
from relpe.models.events import EventsConfig
from relpe.models.layers import LayerConfig

if TYPE_CHECKING:
    from relpe.decoding.base import TokenSteps
    from relpe.models.decoder import Decoder

NameT = TypeVar("NameT", bound=Hashable)
BATCHES = (1, 4, 32, 256, 1024)
CONTEXTS = (2048, 8192)
FAR = 100_000


class Options(NamedTuple):
    """What the parts measure."""

    model: str
    tokens: int
    bars: int
    repeats: int


def main(
    parts: Sequence[str] = (),
    /,
    *,
    model: str = "piano",
    tokens: int = 50_000,
    bars: int = 32,
    repeats: int = 7,
) -> None:
    """Run the named parts, or all; `model` is for music, quality and memory."""
    benchmarks = (speed, encodings, eager, patterns, batches, music, quality, memory)
    of_name = {part.__name__: part for part in benchmarks}
    torch.set_num_threads(1)
    for name in parts or of_name:
        of_name[name](Options(model, tokens, bars, repeats))


def milliseconds(
    ways: Mapping[NameT, Callable[[], object]], repeats: int, calls: int
) -> dict[NameT, float]:
    """Return the median CPU time per call of methods that take turns, after one call of each."""
    turns(ways, 1)
    return medians(turns(ways, repeats, calls=calls))


def rows_of(
    steps: TokenSteps, model: Decoder, rows: int, start: int = 0, read: int = 0
) -> Callable[[], object]:
    """Return a function that takes one step of all `rows`; three tokens of ten are below 3.

    The rows have read `read` tokens, each of which closes an event, before position `start`.
    """
    tokens = torch.zeros(1, read, dtype=torch.int64)
    state = prefill(model, model.init_state(1), tokens, start - read)
    slots = [steps.admit(state, start) for _ in range(rows)]
    tokens = itertools.cycle((5, 7, 1, 6, 2, 9, 4, 0, 8, 3))
    return lambda: steps.step(slots, [next(tokens)] * rows)


def bytes_read(compiled: CompiledDecoder) -> int:
    """Return the bytes of weights, codes and state that a step of a row reads with full windows."""
    weights, attention = compiled.weights, compiled.attention
    codes = PositionCodes(compiled.decoder, compiled.noise)
    parts = (part if isinstance(part, Matrices) else (part,) for part in weights[1:])
    read = [*(array for part in parts for array in part), attention.through, attention.constant]
    of_state = compiled.steps().state_bytes + codes.position_bytes
    return sum(array.nbytes for array in read) + of_state


def speed(options: Options) -> None:
    """Time one row: our compiled and eager steps, other engines, softmax with caches, floors."""
    out = csv_output("size", "way", "context", "ms_per_token", "times_ours_int8")
    for size in SIZES:
        model = size.config().build().eval()
        compiled = {kind: CompiledDecoder(model, kind) for kind in ("int8", "float32")}
        ways: dict[tuple[str, object], Callable[[], object] | None] = {
            ("ours, int8", "any"): rows_of(compiled["int8"].steps(), model, 1),
            ("ours, float32", "any"): rows_of(compiled["float32"].steps(), model, 1),
            ("ours, int8", FAR): rows_of(compiled["int8"].steps(), model, 1, FAR),
            ("ours, eager", "any"): rows_of(PlainSteps(model), model, 1),
        }
        for context in CONTEXTS:
            ways["softmax, static cache", context] = static_cache(size, context)
            ways["softmax, Llama of transformers", context] = dynamic_cache(size, context)
        for kind, one in compiled.items():
            products = onnx_products(size, int8=kind == "int8")
            ways[f"ONNX Runtime, {kind}, matrix products alone", "any"] = products
            touched = bytes_read(one)
            ways[f"floor of {kind}: {touched / 1e6:.1f} MB read", "any"] = stream(touched)
        installed = {name: way for name, way in ways.items() if way is not None}
        with torch.inference_mode():
            times = milliseconds(installed, options.repeats, 20)
        for name, ms in times.items():
            out(size.name, *name, ms, ms / times["ours, int8", "any"])


def encodings(options: Options) -> None:
    """Return the times the compiled and the eager step of one row, with each encoding."""
    out = csv_output("size", "encoding", "compiled_ms", "eager_ms", "times_faster")
    favor = LinearAttentionConfig(feature_map=FavorConfig(num_features=128))
    kinds: dict[str, dict[str, Any]] = {
        "sine SPE": {"encoding": SineSPEConfig()},
        "convolutional SPE": {"encoding": ConvSPEConfig()},
        "SIREN-generated SPE": {"encoding": SirenSPEConfig()},
        "algebraic, FAVOR+": {"encoding": AlgebraicConfig(), "attention": favor},
        "algebraic, window of 1024": {
            "encoding": AlgebraicConfig(),
            "attention": WindowedAttentionConfig(span=1024),
        },
        "none": {"encoding": NoEncodingConfig()},
    }
    windowed = LayerConfig(attention=WindowedAttentionConfig(span=640), encoding=AlgebraicConfig())
    mixed: dict[str, Any] = {
        "encoding": SineSPEConfig(num_realizations=32),
        "layers": (LayerConfig(count=3), windowed),
    }
    events = EventsConfig(closing=((0, 3),))
    kinds["sine SPE, 32 draws"] = {"encoding": mixed["encoding"]}
    kinds["the same, and windows of 640, 3:1"] = mixed
    kinds["the same, events of 3.3 tokens"] = {**mixed, "events": events}
    for name, changes in kinds.items():
        model = replace(SIZES[0].config(), **changes).build().eval()
        ways = {
            "compiled": rows_of(CompiledDecoder(model).steps(), model, 1),
            "eager": rows_of(PlainSteps(model), model, 1),
        }
        ms = milliseconds(ways, options.repeats, 64)
        out(SIZES[0].name, name, ms["compiled"], ms["eager"], ms["eager"] / ms["compiled"])


def eager(options: Options) -> None:
    """Time a token by torch after 500, beside GPT-2 with its cache; four layers of four heads."""
    out = csv_output("attention and encoding", "ms", "times_gpt2")
    linear, delta = LinearAttentionConfig(), DeltaAttentionConfig()
    kinds: dict[str, tuple[Any, Any]] = {
        "linear, none": (linear, NoEncodingConfig()),
        "delta, none": (delta, NoEncodingConfig()),
        "delta, algebraic": (delta, AlgebraicConfig()),
        "softmax, RoPE": (SoftmaxAttentionConfig(), RopeConfig()),
        "linear, sine SPE": (linear, SineSPEConfig()),
    }
    size = SIZES[0]._replace(layers=4, heads=4)
    tokens, last, place = torch.ones(1, 500).long(), torch.tensor([[5]]), torch.tensor([[[500]]])
    ways: dict[str, Callable[[], object] | None] = {"GPT-2 of transformers": gpt2(size, 500)}
    for name, (attention, encoding) in kinds.items():
        model = replace(size.config(), attention=attention, encoding=encoding).build().eval()
        state = prefill(model, model.init_state(1), tokens)
        ways[name] = partial(model, last, place, state)
    installed = {name: way for name, way in ways.items() if way is not None}
    with torch.inference_mode():
        times = milliseconds(installed, options.repeats, 20)
    for name, ms in times.items():
        out(name, ms, ms / times.get("GPT-2 of transformers", math.nan))


def patterns(options: Options) -> None:
    """Time compiled steps of layers of different kinds, all in turns, with full windows.

    Ratios are to linear attention in all layers, to position 1,000 and to one row.
    """
    ratios = ("times_linear", "times_at_1e6", "times_32_rows")
    out = csv_output("layers", "ms_per_token", *ratios, "state_MB")
    window = LayerConfig(attention=WindowedAttentionConfig(span=512), encoding=AlgebraicConfig())
    linear, delta = LayerConfig(count=3), LayerConfig(attention=DeltaAttentionConfig(), count=3)
    heads: dict[str, Any] = {"num_heads": 4, "encoding": AlgebraicConfig()}
    events: dict[str, Any] = {"events": EventsConfig(closing=((0, 3),))}
    kinds: dict[str, dict[str, Any]] = {
        "linear": {},
        "linear and windowed 3:1": {"layers": (linear, window)},
        "delta": {**heads, "layers": (delta,)},
        "delta and windowed 3:1": {**heads, "layers": (delta, window)},
        "windowed": {**heads, "layers": (window,)},
        "linear, events": events,
        "delta and windowed 3:1, events": {**heads, "layers": (delta, window), **events},
    }
    base = replace(SIZES[0].config(), num_layers=4)
    ways: dict[str, Callable[[], object]] = {}
    megabytes: dict[str, float] = {}
    for name, changes in kinds.items():
        model = replace(base, **changes).build().eval()
        compiled = CompiledDecoder(model)
        megabytes[name] = compiled.steps().state_bytes / 2**20
        ways[name] = rows_of(compiled.steps(), model, 1, 1000, 600)
        ways[f"{name}, far"] = rows_of(compiled.steps(), model, 1, 10**6, 600)
        ways[f"{name}, 32 rows"] = rows_of(compiled.steps(), model, 32, 1000, 600)
    times = milliseconds(
        ways, options.repeats, 64
    )  # twice the positions whose codes are made together
    for name in kinds:
        one, far, rows = (times[f"{name}{case}"] for case in ("", ", far", ", 32 rows"))
        out(name, one, one / times["linear"], far / one, 32 * one / rows, megabytes[name])


def batches(options: Options) -> None:
    """Return the times steps of many rows, and prints the memory of their states."""
    rates = ("ms_per_step", "tokens_per_second", "times_one_row")
    out = csv_output("size", "threads", "rows", *rates, "state_MB")
    for size in SIZES:
        model = size.config().build().eval()
        compiled = CompiledDecoder(model)
        single = float("nan")
        for threads in (1, 2):
            for rows in BATCHES:
                if rows == BATCHES[-1] and size is not SIZES[0]:
                    continue
                steps = compiled.steps(threads)
                step = rows_of(steps, model, rows)
                step()
                calls = max(1, 64 // rows)
                times = turns({"step": step}, options.repeats, time.perf_counter, calls=calls)
                seconds = medians(times)["step"] / 1000
                rate = rows / seconds
                if rows == threads == 1:
                    single = rate
                state = steps.state_bytes * rows / 2**20
                out(size.name, threads, rows, 1000 * seconds, rate, rate / single, state)


def music(options: Options) -> None:
    """Return the times pieces of a released model, including sampling and grammar."""
    rates = ("tokens_per_second", "bars_per_second", "music_seconds_per_second")
    out = csv_output("model", "backend", "variations", *rates)
    for backend in ("compiled", "torch"):
        model = load_music_model(options.model, ComputeOptions(device="cpu", backend=backend))
        list(model.preparing())
        for variations in (1, 4):
            music_options = MusicOptions(bars=options.bars, seed=0, variations=variations)
            result = list(generate_piece(model, music_options))[-1]
            assert isinstance(result, Result)
            speeds = (result.tokens_per_second, result.bars_per_second, result.real_time_factor)
            out(options.model, model.backend, variations, *speeds)


def quality(options: Options) -> None:
    """Compare nats per token of int8 and float32, over 10,000 tokens drawn by the latter."""
    columns = ("nll_float32", "nll_int8", "difference", "standard_error")
    out = csv_output("model", "tokens", *columns)
    model = load_model(options.model)
    exact, rounded = (CompiledDecoder(model, kind) for kind in ("float32", "int8"))
    rng = np.random.default_rng(0)
    tokens = [1]
    step = rows_of_tokens(exact, model)
    for _ in range(10_000):
        tokens.append(drawn(step(tokens[-1]), rng))
    losses = [losses_of(one, model, tokens) for one in (exact, rounded)]
    difference = losses[1] - losses[0]
    error = difference.std() / len(difference) ** 0.5
    means = (losses[0].mean(), losses[1].mean(), difference.mean(), error)
    out(options.model, len(tokens) - 1, *means)


def drawn(logits: np.ndarray, rng: np.random.Generator) -> int:
    """Return a token drawn by its logits (v,)."""
    weights = np.exp(logits - logits.max()).cumsum()
    return int(weights.searchsorted(rng.random() * weights[-1]))


def rows_of_tokens(compiled: CompiledDecoder, model: Decoder) -> Callable[[int], np.ndarray]:
    """Return a function that returns the logits after one more token of one row."""
    steps = compiled.steps()
    slot = steps.admit(model.init_state(1), 0)
    return lambda token: steps.step([slot], [token])[0].astype(np.float64)


def losses_of(compiled: CompiledDecoder, model: Decoder, tokens: Sequence[int]) -> np.ndarray:
    """Return the nats of each token except the first."""
    step = rows_of_tokens(compiled, model)
    losses = []
    for token, following in itertools.pairwise(tokens):
        logits = step(token)
        top = logits.max()
        losses.append(np.log(np.exp(logits - top).sum()) + top - logits[following])
    return np.array(losses)


def memory(options: Options) -> None:
    """Measure time per token and memory of a growing sequence, in a separate process."""
    state = CompiledDecoder(load_model(options.model)).steps().state_bytes
    print(f"# state of a sequence: {state / 1e3:.0f} kB")
    out = csv_output("model", "token", "ms_per_token", "resident_MB")
    marks = [count for count in (1000, 10_000, 100_000) if count < options.tokens]
    for row in in_new_process(long_sequence, options.model, [*marks, options.tokens]):
        out(options.model, *row)


def long_sequence(model_name: str, marks: list[int]) -> list[tuple[int, float, float]]:
    """Generate one sequence; return a row at each of `marks`, ascending numbers of tokens.

    A row has the number of tokens, the median milliseconds of the last 1,000, and the resident
    megabytes of this process.
    """
    torch.set_num_threads(1)
    model = load_model(model_name)
    step = rows_of_tokens(CompiledDecoder(model), model)
    rng, token = np.random.default_rng(0), 1
    recent: deque[float] = deque(maxlen=1000)
    rows: list[tuple[int, float, float]] = []
    for count in range(1, marks[-1] + 1):
        started = time.perf_counter()
        logits = step(token)
        recent.append(1000 * (time.perf_counter() - started))
        token = drawn(logits, rng)
        if count in marks:
            rows.append((count, statistics.median(recent), resident_megabytes()))
    return rows


def resident_megabytes() -> float:
    """Return the resident memory of this process now; NaN on systems other than Linux."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        return float("nan")
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    run(main)
