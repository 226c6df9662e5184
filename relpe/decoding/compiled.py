"""Decoding compiled by Numba: one-token steps of many rows, each at its own position.

A prompt is read by the decoder itself, and its state is then copied into a slot. Weights are int8
with a scale per output. Keys and values of a window are int8 with a scale per position.
Activations are integers of about 14 bits, and sums of their products are exact. Everything else is
float32. The arithmetic is in `kernels.py`.

`python -m relpe.decoding.compiled` compiles the steps in advance.
"""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, get_args

import numpy as np
import torch
from llvmlite.binding import get_host_cpu_name
from numba import config as numba_config
from numba import typeof, types
from numba.core.event import Event, Listener, install_listener
from numpy.typing import NDArray

from relpe.attention.delta.operation import DeltaAttentionConfig, DeltaState
from relpe.attention.linear.operation import LinearAttentionConfig, LinearAttentionState
from relpe.attention.windowed.attention import WindowedAttentionConfig, WindowedAttentionState
from relpe.decoding.base import Precision, check_axes, check_slots
from relpe.decoding.kernels import (
    CODED,
    FEATURES,
    KIND,
    PLACE,
    SPAN,
    WINDOWED,
    Memory,
    arguments,
    step_float32,
    step_int8,
)
from relpe.decoding.packed_weights import (
    embedding_scale,
    packed_attention,
    packed_rings,
    packed_weights,
    put_in_ring,
)
from relpe.decoding.position_codes import PositionCodes, array_of
from relpe.encodings.base import AbsoluteEncoding
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from relpe.models.pointer import pointer

ROWS_OF_A_THREAD = 4
"""Minimum number of rows per thread: starting a thread costs about as much as one row."""
_LOADING = threading.Lock()
_KNOWN = LinearAttentionConfig | WindowedAttentionConfig | DeltaAttentionConfig


def refusal(decoder: Decoder) -> str | None:
    """Return why the steps of a decoder cannot be compiled; None if they can."""
    if numba_config.DISABLE_JIT:  # pyright: ignore[reportAttributeAccessIssue]
        return "the environment variable NUMBA_DISABLE_JIT turns compilation off"
    for block, layer in enumerate(decoder.config.layers_in_order):
        if not isinstance(layer.attention, _KNOWN):
            return f"there are no compiled steps of {layer.attention.kind} attention"
        if not decoder.encoding_of(block).codes_by_position:
            return f"encoding {layer.encoding.kind} does not act on queries and keys alone"
    if sum(isinstance(encoding, AbsoluteEncoding) for encoding in decoder.encodings) > 1:
        return "several encodings add vectors to the embeddings"
    return None


class CompiledDecoder:
    """Weights and codes of a decoder in the layout of the compiled steps."""

    def __init__(self, decoder: Decoder, precision: Precision = "int8") -> None:
        """Copy the weights of `decoder`, which is on the CPU.

        States that are admitted must have the noise of its config.

        Raises:
            ValueError: the decoder cannot be compiled; see `refusal`.
        """
        reason = refusal(decoder)
        if reason is not None:
            raise ValueError(f"steps cannot be compiled: {reason}; use PlainSteps")
        self.decoder: Decoder = decoder
        self.precision: Precision = precision
        state = decoder.init_state(1)
        self.weights = packed_weights(decoder, state, precision)
        self.noise = state.encodings
        self.scale = embedding_scale(decoder, state)
        self.num_axes = decoder.num_axes
        self.attention = packed_attention(decoder, state, PositionCodes(decoder, self.noise))

    @property
    def name(self) -> str:
        """See `TokenSteps.name`; includes the processor, since others may round differently."""
        return f"compiled {self.precision} for {get_host_cpu_name()}"

    def steps(self, threads: int = 1) -> CompiledSteps:
        """Return steps with new slots; `threads` share the rows and do not affect results."""
        return CompiledSteps(self, threads)

    def warm_up(self) -> None:
        """Compile the steps, and the pointer if the decoder has one.

        This takes about 20 seconds the first time on a machine, then half a second.

        Numba caches the machine code in the package's folder or in the user's cache.
        """
        steps = self.steps()
        slot = steps.admit(self.decoder.init_state(1), 0)
        steps.step([slot], [0], np.zeros((1, self.num_axes - 1), np.int64))
        if self.decoder.config.pointer is not None:
            pointer.warm_up()


class CompiledSteps:
    """`TokenSteps` of a `CompiledDecoder`."""

    def __init__(self, compiled: CompiledDecoder, threads: int = 1) -> None:
        self._compiled, self._threads = compiled, threads
        self._pool = ThreadPoolExecutor(threads) if threads > 1 else None
        self._codes = PositionCodes(compiled.decoder, compiled.noise)
        self._step = step_int8 if compiled.precision == "int8" else step_float32
        self._free: list[int] = []
        self._used: set[int] = set()
        self._positions = np.zeros(0, np.int64)
        self._memory = self._room(0)
        self._given = arguments(compiled.weights, compiled.attention, self._memory)

    @property
    def name(self) -> str:
        """See `TokenSteps.name`."""
        return self._compiled.name

    @property
    def state_bytes(self) -> int:
        """Bytes of the state of a slot."""
        return sum(array.nbytes for array in self._room(1))

    def admit(self, state: DecoderState, position: int) -> int:
        """See `TokenSteps.admit`."""
        slot = self._new_slot()
        self._positions[slot] = position
        memory = self._memory
        operations: list[Any] = [layer.operation for layer in state.layers]
        # rings of different spans share a count, which may be any that is at least their keys
        count = max((int(x.seen[0]) for x in operations if hasattr(x, "seen")), default=0)
        for layer, convolved in enumerate(state.layers):
            operation: Any = convolved.operation
            place = self._compiled.attention.layers[layer, PLACE]
            if isinstance(operation, LinearAttentionState):
                sums, features = operation.sums, operation.sums.kv.shape[2]
                memory.kv[slot, place, :, :features] = array_of(sums.kv)[0]
                memory.keys[slot, place, :, :features] = array_of(sums.k_sum)[0]
                memory.log_scale[slot, place] = array_of(sums.log_scale, torch.float64)[0]
            elif isinstance(operation, DeltaState):
                stored = array_of(operation.memory)[0]
                memory.kv[slot, place, :, : stored.shape[1]] = stored
            else:
                self._write_rings(slot, layer, operation, count)
        if state.events is not None:
            events = state.events
            self._positions[slot] = int(events.closed[0])
            memory.row[slot] = array_of(events.row)[0]
            memory.inputs[slot] = array_of(events.inputs * self._compiled.scale)[0]
            memory.local[slot] = array_of(events.local)[0]
            memory.size[slot] = int(events.size[0])
        memory.count[slot] = count
        for layer, convolved in enumerate(state.layers):
            recent = array_of(convolved.recent)[0]
            for back in range(1, len(recent) + 1):
                memory.recent[slot, layer, (count - back) % len(recent)] = recent[-back]
        return slot

    def _write_rings(
        self, slot: int, layer: int, state: WindowedAttentionState, count: int
    ) -> None:
        """Copy the keys and values of a window, which are the last of `count`."""
        seen, numbers = int(state.seen[0]), self._compiled.attention.layers[layer]
        span, place = int(numbers[SPAN]), numbers[PLACE]
        order = np.arange(count - seen, count) % span
        keys, values = (array_of(x)[0, x.shape[1] - seen :] for x in (state.keys, state.values))
        rings = packed_rings(
            put_in_ring(keys, order),
            put_in_ring(values, order),
            span + -span % 16,
            self._compiled.precision,
        )
        for array, ring in zip(self._memory[-3:], rings, strict=True):
            array[slot, place][..., : ring.shape[-1]] = ring

    def fork(self, slot: int) -> int:
        """See `TokenSteps.fork`."""
        check_slots([slot], self._used)
        copy = self._new_slot()
        self._positions[copy] = self._positions[slot]
        for array in self._memory:
            array[copy] = array[slot]
        return copy

    def release(self, slot: int) -> None:
        """See `TokenSteps.release`."""
        check_slots([slot], self._used)
        self._used.remove(slot)
        self._free.append(slot)

    def step(
        self,
        slots: Sequence[int],
        tokens: Sequence[int],
        coordinates: NDArray[np.int64] | None = None,
    ) -> NDArray[np.float32]:
        """See `TokenSteps.step`."""
        check_slots(slots, self._used)
        check_axes(self._compiled.num_axes, coordinates)
        size = self._compiled.decoder.config.vocabulary_size
        logits = np.empty((len(slots), size), np.float32)
        rows, given = np.asarray(slots, np.int64), np.asarray(tokens, np.int64)
        if len(given) and not 0 <= given.min() <= given.max() < size:
            raise ValueError(
                f"token ids are {given.min()} to {given.max()}, expected 0 to {size - 1}"
            )
        closes = self._compiled.weights.closes
        passing = closes[given] if len(closes) else np.ones(len(given), bool)
        positions = self._positions[rows][:, None]
        if coordinates is not None:
            positions = np.concatenate([positions, coordinates], 1)
        for part in self._codes.batches(positions):
            places = self._codes.places(positions[part], passing[part])
            given_of_part = rows[part], places, given[part]
            count = min(self._threads, len(part) // ROWS_OF_A_THREAD)
            if self._pool is None or count < 2:
                logits[part] = self._some(*given_of_part)
                continue
            shares = (np.array_split(array, count, axis=-1) for array in given_of_part)
            logits[part] = np.concatenate(list(self._pool.map(self._some, *shares)))
        self._positions[rows] += passing
        return logits

    def _some(
        self, slots: NDArray[np.int64], places: NDArray[np.int64], tokens: NDArray[np.int64]
    ) -> NDArray[np.float32]:
        logits = np.empty((len(slots), self._compiled.decoder.config.vocabulary_size), np.float32)
        places = np.ascontiguousarray(places)  # one of several shares may not be
        if not self._step.signatures:
            self._load()
        self._step(*self._given, self._codes.flat, slots, places, tokens, logits)
        return logits

    def compile(self) -> None:
        """Compile the step in this process, or load it if it is cached."""
        numbers = np.zeros(1, np.int64)
        per_row = numbers, numbers[:, None], numbers, np.zeros((1, 1), np.float32)
        given = tuple(map(typeof, (*self._given, self._codes.flat, *per_row)))
        self._step.compile((types.Tuple(given),))

    def _load(self) -> None:
        """Load the step; if it is not cached, another process compiles it first.

        In the process that compiles them, steps were seen to round differently than in all later
        processes, by up to 0.024 in logits, so that the same seed made other music there.
        """
        with _LOADING:
            try:
                with install_listener("numba:compile", _RefuseCompilation(self._step)):
                    self.compile()
            except _NotCachedError:
                code = (
                    f"import sys; sys.path[:] = {sys.path!r}; "
                    "from relpe.decoding.compiled import compile_steps; "
                    f"compile_steps({self._compiled.precision!r})"
                )
                subprocess.run([sys.executable, "-c", code], capture_output=True, check=False)
                self.compile()  # loads it, unless that process failed

    def _new_slot(self) -> int:
        if not self._free:
            held = len(self._positions)
            more = max(1, held)
            room = self._room(held + more)  # pages are allocated when they are written
            for old, new in zip(self._memory, room, strict=True):
                new[:held] = old
            self._memory = room
            self._given = arguments(self._compiled.weights, self._compiled.attention, self._memory)
            self._positions = np.concatenate([self._positions, np.zeros(more, np.int64)])
            self._free = list(range(held, held + more))[::-1]
        slot = self._free.pop()
        self._used.add(slot)
        return slot

    def _room(self, slots: int) -> Memory:
        """Return the memory of empty slots."""
        config, numbers = self._compiled.decoder.config, self._compiled.attention.layers
        heads = config.num_heads
        size = config.width // heads
        rings = numbers[numbers[:, KIND] == WINDOWED]
        sums = slots, len(numbers) - len(rings), heads
        features = numbers[:, FEATURES].max()
        places = (rings[:, SPAN] + -rings[:, SPAN] % 16).max(initial=0)
        coded = (rings[:, CODED] + rings[:, CODED] % 2).max(initial=0)
        whole = np.int8 if self._compiled.precision == "int8" else np.float32
        taps = max(config.convolution_taps - 1, 0)
        of_events = slots, config.width if config.events is not None else 0
        return Memory(
            recent=np.zeros((slots, len(numbers), taps, config.width), np.float32),
            kv=np.zeros((*sums, features, size), np.float32),
            keys=np.zeros((*sums, features), np.float32),
            log_scale=np.full(sums, -np.inf),
            count=np.zeros(slots, np.int64),
            row=np.zeros(of_events, np.float32),
            inputs=np.zeros(of_events, np.float32),
            local=np.zeros(of_events, np.float32),
            size=np.zeros(slots, np.int64),
            ring_keys=np.zeros((slots, len(rings), heads, coded * places), whole),
            ring_values=np.zeros((slots, len(rings), heads, (size + -size % 16) * places), whole),
            ring_steps=np.zeros((slots, len(rings), heads, 2, places), np.float32),
        )


class _NotCachedError(Exception):
    """Numba began to compile a function instead of loading it."""


class _RefuseCompilation(Listener):
    """Raises _NotCachedError when the compilation of a function begins."""

    def __init__(self, function: object) -> None:
        self._function = function

    def on_start(self, event: Event) -> None:
        if event.data is not None and event.data["dispatcher"] is self._function:
            raise _NotCachedError

    def on_end(self, event: Event) -> None:
        """Do nothing: the listener is uninstalled by then."""


def compile_steps(precision: Precision) -> None:
    """Compile the steps of a precision in this process, for the cache."""
    decoder = DecoderConfig(vocabulary_size=8, width=16, num_layers=1, num_heads=2, hidden=16)
    CompiledDecoder(decoder.build(), precision).steps().compile()


def compile_all() -> None:
    """Compile the steps of both precisions and the pointer, so that no piece need wait for it."""
    for precision in get_args(Precision):
        compile_steps(precision)
    pointer.warm_up()


if __name__ == "__main__":
    compile_all()
