"""Kernels of one-token steps, compiled by Numba for the host processor.

A row depends neither on the other rows nor on their number: every function works either on one row
at a time, or on integers, whose sums are exact in any order. Arrays are C-contiguous, and float32
unless noted.

All kernels are in one file because Numba recompiles a function when its own file changes, but not
when a function that it calls changes in another file.
"""

# Numba infers the types of arrays, so annotations would not be checked.
# ruff: noqa: ANN001, ANN002, ANN201, ANN202

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.core import cgutils
from numba.extending import intrinsic, overload

# Sums may be reordered (for vectorisation) and multiplications fused with additions; infinities and
# NaN keep their meaning.
MATH = {"reassoc", "contract", "nsz"}
compiled = njit(nogil=True, fastmath=MATH, error_model="numpy")
# Cached on disk with all callees. One signature only: with several, Numba's index is not safe when
# two processes compile at once.
kept = njit(nogil=True, fastmath=MATH, error_model="numpy", cache=True)
LARGEST_WEIGHT = 127
"""Largest absolute value of an int8 weight."""
RELU, ELU, FAVOR, WINDOWED, DELTA = range(5)
"""Kinds of attention."""
KIND, PLACE, FEATURES, CODED, SPAN, GATED, ENCODING, SET, PAIRED, DECAYING = range(10)
"""Columns of `AttentionInputs.layers`: the kind of attention; the number of the layer among those
with the same memory (sums or rings); features (f) of keys in sums; features (r) of encoded queries
and keys; span of a window; 1 with gates; number of the encoding, -1 without codes; number of the
set of codes within it; 1 if codes turn pairs of features; 1 if the decay
of linear attention depends on the input."""


class Matrices(NamedTuple):
    """Weights of one projection in all layers: int8 with a scale per output, or float32."""

    values: Any  # (layers, out, in); int8: (layers, groups, pairs, 32), see `dots`
    scales: Any  # (layers, out)


class DecoderWeights(NamedTuple):
    """All weights of a decoder."""

    embedding: Any  # (v, m)
    norms: Any  # (layers, 4, m): weight and bias before attention, weight and bias before the rest
    taps: Any  # (layers, n, m): of the short convolution, the present last; n = 0: none
    temperatures: Any  # (layers, 2, h); layers = 0: queries and keys are not normalized
    last_norm: Any  # (2, m)
    qkv: Matrices  # 3m outputs; if a layer has gates, 2h more: for strengths and decays, or decays
    attended: Matrices
    gate_value: Matrices
    down: Matrices
    logits: Matrices  # one layer
    # Events and their local decoder; v = 0: every token passes the blocks.
    closes: Any  # (v,) bool: whether a token closes an event
    local_embedding: Any  # (v, m): embeddings of the local decoder
    size_embedding: Any  # (n, m): embeddings of the number of tokens of the open event
    local_norm: Any  # (2, m)
    local_in: Matrices  # one layer
    local_out: Matrices  # one layer


class AttentionInputs(NamedTuple):
    """Inputs of the attention of all layers, besides queries, keys and values.

    Layers may differ in their sizes r and f; arrays have room for the largest.
    """

    layers: Any  # (layers, 10) int64: numbers of each layer; see `KIND`
    partners: Any  # (layers, d) int64: the other feature of each pair
    offsets: Any  # (layers,): of relu features
    strongest: Any  # (layers,): the largest strength in the delta rule
    projection: Any  # (layers, r, f / 2): FAVOR+
    rates: Any  # (layers, h) float64: decay of keys; in the delta rule of what is stored
    through: Any  # (layers, h, d): the part of queries and keys that is encoded, with gates
    constant: Any  # (layers, h, d, r): codes of the rest, the same at all positions
    added: int  # number of the encoding whose vectors are added to embeddings; -1: none


class Memory(NamedTuple):
    """States of all slots.

    Linear layers have sums and windowed layers have rings; both are counted separately, by PLACE in
    `AttentionInputs.layers`.
    """

    recent: Any  # (slots, layers, n - 1, m): inputs of the convolution, a ring
    kv: Any  # (slots, linear, h, f, e): sums of keys times values; what a delta rule has stored
    keys: Any  # (slots, linear, h, f): sums of keys
    log_scale: Any  # (slots, linear, h) float64
    count: Any  # (slots,) int64: positions written into the rings
    row: Any  # (slots, m): outputs of the blocks for the last event; without events m = 0
    inputs: Any  # (slots, m): sum of the embeddings of the open event
    local: Any  # (slots, m): the same of the local decoder
    size: Any  # (slots,) int64: number of tokens of the open event
    # Ring buffers of the keys and values of a window; s is the span of the layer rounded up to a
    # multiple of 16. Float32: (r, s) and (s, e) per head. Int8: in the layout of weights (see
    # `_dots`), where positions in the ring are the outputs for keys and the inputs for values, with
    # a scale per position.
    ring_keys: Any  # (slots, windowed, h, r * s), r a whole number of pairs
    ring_values: Any  # (slots, windowed, h, e * s), e in whole groups of 16
    ring_steps: Any  # (slots, windowed, h, 2, s)


@intrinsic
def _power_of_two(typing_context, exponent):
    """Return 2^n in float32 for int32 n from -126 to 127, by setting the bits of the exponent."""

    def build(context, builder, signature, arguments):
        integer, single = (context.get_value_type(kind) for kind in (types.int32, types.float32))
        bias, shift = (context.get_constant(types.int32, number) for number in (127, 23))
        bits = builder.shl(builder.add(arguments[0], bias), shift)
        assert bits.type == integer
        return builder.bitcast(bits, single)

    return types.float32(types.int32), build


@intrinsic
def _float_of(typing_context, bits):
    """Return the float32 with these bits (int32)."""

    def build(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], context.get_value_type(types.float32))

    return types.float32(types.int32), build


@compiled
def exp(x):
    """Return e^x, accurate to one or two units in the last place; 0 below -87.

    Calls no other function, so that loops can be vectorised. x - n ln 2 is computed in two steps
    that are exact in float32 (Cody and Waite, 1980).
    """
    n = np.rint(max(min(x, np.float32(88.0)), np.float32(-87.0)) * np.float32(1.44269504))
    r = max(min(x, np.float32(88.0)), np.float32(-87.0)) - n * np.float32(0.693359375)
    r += n * np.float32(2.12194440e-4)
    p = np.float32(1.9875691500e-4)
    p = p * r + np.float32(1.3981999507e-3)
    p = p * r + np.float32(8.3334519073e-3)
    p = p * r + np.float32(4.1665795894e-2)
    p = p * r + np.float32(1.6666665459e-1)
    p = p * r + np.float32(5.0000001201e-1)
    scale = _power_of_two(np.int32(n))  # pyright: ignore[reportCallIssue]
    value = (p * r * r + r + np.float32(1.0)) * scale
    return value if x > np.float32(-87.0) else np.float32(0.0)


@compiled
def layer_norm(x, weight, bias, out):
    """Write the LayerNorm of x (m,) to `out`."""
    total = np.float32(0.0)
    for i in range(len(x)):
        total += x[i]
    mean = total / np.float32(len(x))
    squares = np.float32(0.0)
    for i in range(len(x)):
        squares += (x[i] - mean) * (x[i] - mean)
    factor = np.float32(1.0) / np.float32(math.sqrt(squares / np.float32(len(x)) + 1e-5))
    for i in range(len(x)):
        out[i] = (x[i] - mean) * factor * weight[i] + bias[i]


@compiled
def largest_of(x):
    """Return the largest absolute value; NaN if x contains one.

    Compares the bits as integers, of which NaN is the largest, so that the loop can be vectorised.
    """
    bits = x.view(np.int32)
    largest = np.int32(0)
    for i in range(len(bits)):
        largest = max(largest, bits[i] & np.int32(0x7FFFFFFF))
    return _float_of(largest)  # pyright: ignore[reportCallIssue]


@compiled
def narrowed(x, out):
    """Quantise x (m,) to int16 integers in `out`, and return their scale.

    Uses as many bits as possible so that a sum of m products with int8 weights fits into 32 bits:
    14 bits for 1,024 inputs.
    """
    largest = largest_of(x)
    if not 0 < largest < np.inf:  # all zero; NaN and infinities give NaN
        out[: len(x)] = 0
        return largest * np.float32(0.0)
    steps = np.float32(min(32767, (2**31 - 1) // (LARGEST_WEIGHT * len(x)) - 1))
    factor = steps / largest
    for i in range(len(x)):
        out[i] = np.int16(np.rint(x[i] * factor))
    return largest / steps


@compiled
def convolve(x, taps, recent, count, out):
    """Write the convolution of x (m,) and `recent` inputs to out (m,); x replaces the oldest."""
    places = len(recent)
    now = taps[places]
    for i in range(len(x)):
        out[i] = x[i] * now[i]
    for back in range(1, places + 1):
        past, tap = recent[(count - back) % places], taps[places - back]
        for i in range(len(x)):
            out[i] += past[i] * tap[i]
    if places:
        recent[count % places] = x


@compiled
def gated(gates, values, out):
    """Write silu(gates) * values (Shazeer, 2020) to `out` (m,)."""
    for i in range(len(out)):
        out[i] = gates[i] / (np.float32(1.0) + exp(-gates[i])) * values[i]


@compiled
def unit(x, factor):
    """Scale x (d,) in place to a mean square of one, times `factor`."""
    squares = np.float32(0.0)
    for i in range(len(x)):
        squares += x[i] * x[i]
    scale = factor / np.float32(math.sqrt(squares / np.float32(len(x)) + 1e-6))
    for i in range(len(x)):
        x[i] *= scale


@compiled
def encode(x, codes, gated, through, constant, layer, head, out):
    """Write x (d,) times codes (d, r), mixed with `constant` by gates, to `out` (r,)."""
    out[:] = 0.0
    for i in range(len(x)):
        row = codes[i]
        if gated:
            seen, rest, fixed = x[i] * through[layer, head, i], x[i], constant[layer, head, i]
            for j in range(len(out)):
                out[j] += seen * row[j] + rest * fixed[j]
        else:
            for j in range(len(out)):
                out[j] += x[i] * row[j]


@compiled
def turn(x, codes, partners, out):
    """Turn pairs of the features x (d,); codes (2, d) are factors of each and of its partner."""
    for i in range(len(x)):
        out[i] = x[i] * codes[0, i] + x[partners[i]] * codes[1, i]


@compiled
def features(x, attention, layer, out):
    """Write features (f,) of x (r,) without a common factor; return the logarithm of it."""
    kind = attention.layers[layer, KIND]
    if kind == RELU:
        for i in range(len(x)):
            out[i] = max(x[i], np.float32(0.0)) + attention.offsets[layer]
        return np.float32(0.0)
    if kind == ELU:
        for i in range(len(x)):
            out[i] = x[i] + np.float32(1.0) if x[i] > 0 else exp(x[i])
        return np.float32(0.0)
    projection = attention.projection[layer]
    half = len(out) // 2
    scale = np.float32(len(x) ** -0.25)
    squares = np.float32(0.0)
    out[:] = 0.0
    for i in range(len(x)):
        value = x[i] * scale
        squares += value * value
        for j in range(half):
            out[j] += value * projection[i, j]
    largest = np.float32(0.0)
    for j in range(half):
        largest = max(largest, abs(out[j]))
    norm = np.float32((2 * half) ** -0.5)
    for j in range(half):
        u = out[j]
        out[j] = exp(u - largest) * norm
        out[half + j] = exp(-u - largest) * norm
    return largest - squares / np.float32(2.0)


@compiled
def attend_to_sums(q, k, v, log_key, rate, log_past, kv, key_sums, out):
    """Attend linearly in one head, with sums kv (f, e), key_sums (f,); return their log scale."""
    log_key += rate
    running = max(log_past, log_key)
    decay = np.float32(math.exp(log_past - running))
    weight = np.float32(math.exp(log_key - running))
    out[:] = 0.0
    total = np.float32(0.0)
    for i in range(len(q)):
        key, query, row = k[i] * weight, q[i], kv[i]
        key_sums[i] = key_sums[i] * decay + key
        total += query * key_sums[i]
        for j in range(len(out)):
            row[j] = row[j] * decay + key * v[j]
            out[j] += query * row[j]
    scale = np.float32(1.0) if total < np.float32(1e-30) else np.float32(1.0) / total
    for j in range(len(out)):
        out[j] *= scale
    return running - rate


@compiled
def normalize(x):
    """Scale x (d,) in place to unit norm."""
    squares = np.float32(0.0)
    for i in range(len(x)):
        squares += x[i] * x[i]
    scale = np.float32(1.0) / max(np.float32(math.sqrt(squares)), np.float32(1e-12))
    for i in range(len(x)):
        x[i] *= scale


@compiled
def softplus(x):
    """Return ln(1 + e^x) in float64, which is x itself where the exponential would overflow."""
    wide = np.float64(x)
    return wide if wide > 20 else math.log1p(math.exp(wide))


@compiled
def gates_of(raw, strongest, rates, out):
    """Write strengths (h,) and decays (h,) of the delta rule for raw gates (2h,) to out (2, h)."""
    heads = len(rates)
    for head in range(heads):
        out[0, head] = strongest / (np.float32(1.0) + exp(-raw[head]))
        out[1, head] = math.exp(-softplus(raw[heads + head]) * rates[head])


@compiled
def replace_by_delta(q, k, v, strength, decay, stored, error, out):
    """Apply the gated delta rule of one head, with q and k (d,) of unit norm and `stored` (d, e).

    `error` (e,) is workspace.
    """
    error[:] = 0.0
    for i in range(len(k)):
        key, row = k[i], stored[i]
        for j in range(len(out)):
            error[j] += key * row[j]
    for j in range(len(out)):
        error[j] = strength * (v[j] - decay * error[j])
    out[:] = 0.0
    for i in range(len(k)):
        key, query, row = k[i], q[i], stored[i]
        for j in range(len(out)):
            row[j] = row[j] * decay + key * error[j]
            out[j] += query * row[j]


def _dots(rows: int, chains: int):
    """Emit products of 16 outputs with `rows` rows as vector code, at least twice as fast as loops.

    Weights (pairs, 16, 2) int8 start at index `first`; each of x (rows, pairs) int32 holds two
    int16; the sums are written to out (rows, 16) int32. One instruction multiplies 16 pairs of
    numbers (AVX2), or 32 (AVX-512 with VNNI, whose instruction also adds to the sums), and adds
    adjacent products. As the next addition to the same sum has to wait for it, every row has as
    many sums as `chains`.
    """

    @intrinsic
    def dots(typing_context, weights, first, x, pairs, out):
        byte, short, integer, size = (ir.IntType(bits) for bits in (8, 16, 32, 64))

        def at(builder, start, index, kind, loaded):
            place = builder.gep(start, [index], source_etype=kind)
            place = builder.bitcast(place, loaded.as_pointer())
            return builder.load(place, align=kind.width // 8, typ=loaded)

        def build(context, builder, signature, arguments):
            w, q, o = (
                context.make_array(signature.args[i])(context, builder, arguments[i]).data
                for i in (0, 2, 4)
            )
            lanes = 16 if "+avx512vnni" in context.codegen().magic_tuple()[2] else 8
            bytes_of, shorts_of, sums_of = (
                ir.VectorType(kind, count)
                for kind, count in ((byte, 2 * lanes), (short, 2 * lanes), (integer, lanes))
            )
            parts = range(16 // lanes)
            multiply = _pairs_multiplied(context, builder, shorts_of, sums_of)
            nothing = ir.Constant(sums_of, [0] * lanes)
            every = ir.Constant(ir.VectorType(integer, lanes), [0] * lanes)
            sums = [
                [[cgutils.alloca_once_value(builder, nothing) for _ in parts] for _ in range(rows)]
                for _ in range(chains)
            ]

            def add(pair, sums_of_rows):
                """Add the products of one pair of inputs of each row to the sums."""
                here = builder.add(arguments[1], builder.mul(pair, ir.Constant(size, 32)))
                places = [builder.add(here, ir.Constant(size, 2 * lanes * i)) for i in parts]
                groups = [
                    builder.sext(at(builder, w, place, byte, bytes_of), shorts_of)
                    for place in places
                ]
                for row in range(rows):
                    index = builder.add(pair, builder.mul(arguments[3], ir.Constant(size, row)))
                    both = at(builder, q, index, integer, integer)
                    spread = ir.Constant(sums_of, ir.Undefined)
                    spread = builder.insert_element(spread, both, ir.Constant(integer, 0))
                    spread = builder.shuffle_vector(spread, spread, every)
                    for group, total in zip(groups, sums_of_rows[row], strict=True):
                        products = multiply(group, builder.bitcast(spread, shorts_of))
                        builder.store(builder.add(builder.load(total), products), total)

            whole = builder.udiv(arguments[3], ir.Constant(size, chains))
            with cgutils.for_range(builder, whole) as loop:
                first_pair = builder.mul(loop.index, ir.Constant(size, chains))
                for chain in range(chains):
                    add(builder.add(first_pair, ir.Constant(size, chain)), sums[chain])
            done = builder.mul(whole, ir.Constant(size, chains))
            with cgutils.for_range(builder, builder.sub(arguments[3], done)) as loop:
                add(builder.add(done, loop.index), sums[0])
            for row in range(rows):
                for i in parts:
                    place = ir.Constant(size, 16 * row + lanes * i)
                    target = builder.gep(o, [place], source_etype=integer)
                    target = builder.bitcast(target, sums_of.as_pointer())
                    total = builder.load(sums[0][row][i])
                    for chain in range(1, chains):
                        total = builder.add(total, builder.load(sums[chain][row][i]))
                    builder.store(total, target, align=4)
            return context.get_dummy_value()

        return types.void(weights, first, x, pairs, out), build

    return dots


def _pairs_multiplied(context, builder, shorts_of, sums_of):
    """Emit the products of two vectors of int16, added in adjacent pairs to int32."""
    names = {8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
    if "+avx2" in context.codegen().magic_tuple()[2]:
        kind = ir.FunctionType(sums_of, [shorts_of, shorts_of])
        function = cgutils.get_or_insert_function(builder.module, kind, names[sums_of.count])
        return lambda a, b: builder.call(function, [a, b])
    masks = [ir.Constant(sums_of, list(range(first, 16, 2))) for first in range(2)]

    def multiply(a, b):
        parts = [
            builder.mul(
                *(builder.sext(builder.shuffle_vector(x, x, mask), sums_of) for x in (a, b))
            )
            for mask in masks
        ]
        return builder.add(*parts)

    return multiply


_one_row, _four_rows, _eight_rows = _dots(1, 4), _dots(4, 2), _dots(8, 1)


def _attend_to_window(q, k, v, count, span, keys, values, steps, scores, room, out):
    """Attend by softmax from one head to its rings; q, k (r,), v (e,), scores (s,), room int16.

    Keys and values have 8 bits with a scale per position. A query, and the weights of 256 positions
    at a time, have 15 bits. Sums of their products are exact.
    """
    raise NotImplementedError


@overload(_attend_to_window, inline="never", jit_options={"nogil": True, "fastmath": MATH})
def _attend_by_type(q, k, v, count, span, keys, values, steps, scores, room, out):

    def whole(q, k, v, count, span, keys, values, steps, scores, room, out):
        here, seen = count % span, min(count + 1, span)
        pairs, half = (len(q) + 1) // 2, len(scores) // 2
        sums = np.empty(16, np.int32)
        words = room.view(np.int32)
        steps[0, here], steps[1, here] = held_step(k), held_step(v)
        for i in range(len(k)):
            place = ((here // 16) * pairs + i // 2) * 32 + here % 16 * 2 + i % 2
            keys[place] = held(k[i], steps[0, here])
        for i in range(len(v)):
            place = ((i // 16) * half + here // 2) * 32 + i % 16 * 2 + here % 2
            values[place] = held(v[i], steps[1, here])
        scale = narrowed(q, room) * np.float32(len(q) ** -0.5)
        room[len(q) : 2 * pairs] = 0
        for start in range(0, seen, 16):
            _one_row(keys, start * pairs * 2, words, pairs, sums)  # pyright: ignore[reportCallIssue]
            for i in range(16):
                scores[start + i] = np.float32(sums[i]) * scale * steps[0, start + i]
        total = to_weights(scores, seen)
        for j in range(seen):
            scores[j] *= steps[1, j]
        out[:] = 0.0
        for start in range(0, seen, 256):
            some = scores[start : min(start + 256, seen)]
            scale = narrowed(some, room) / total
            room[len(some) : len(some) + len(some) % 2] = 0
            for first in range(0, len(out), 16):
                place = (first // 16 * half + start // 2) * 32
                _one_row(values, place, words, (len(some) + 1) // 2, sums)  # pyright: ignore[reportCallIssue]
                for i in range(min(16, len(out) - first)):
                    out[first + i] += np.float32(sums[i]) * scale

    def real(q, k, v, count, span, keys, values, steps, scores, room, out):
        here, seen = count % span, min(count + 1, span)
        scale = np.float32(len(q) ** -0.5)
        by_place = values.reshape((len(scores), -1))
        for i in range(len(q)):
            keys[i * len(scores) + here] = k[i]
        by_place[here, : len(v)] = v
        scores[:seen] = 0.0
        for i in range(len(q)):
            query, row = q[i] * scale, keys[i * len(scores) : i * len(scores) + seen]
            for j in range(seen):
                scores[j] += query * row[j]
        total = to_weights(scores, seen)
        out[:] = 0.0
        for j in range(seen):
            weight, row = scores[j], by_place[j]
            for i in range(len(out)):
                out[i] += weight * row[i]
        for i in range(len(out)):
            out[i] /= total

    return whole if keys.dtype == types.int8 else real


@compiled
def held_step(x):
    """Return the scale of x (n,) when quantised to 8 bits."""
    return largest_of(x) / np.float32(LARGEST_WEIGHT)


@compiled
def held(number, step):
    """Return a number quantised to 8 bits with the scale `step`."""
    return np.int8(np.rint(number / step)) if 0 < step < np.inf else np.int8(0)


@compiled
def to_weights(scores, seen):
    """Replace the first `seen` scores by exponentials, scaled so that the largest is 1.

    Returns their sum.
    """
    bits = scores.view(np.int32)
    largest = np.int32(-(2**31))
    for j in range(seen):  # in the order of the numbers, as integers: see `largest_of`
        largest = max(largest, bits[j] ^ ((bits[j] >> np.int32(31)) & np.int32(0x7FFFFFFF)))
    largest = _float_of(largest ^ ((largest >> np.int32(31)) & np.int32(0x7FFFFFFF)))  # pyright: ignore[reportCallIssue]
    total = np.float32(0.0)
    for j in range(seen):
        scores[j] = exp(scores[j] - largest)
        total += scores[j]
    return total


def _project(matrices, layer, x, narrow, out):
    """Write x (b, m) times a layer's matrix to `out` (b, n); `narrow` (b, m) is workspace."""
    raise NotImplementedError


@overload(_project, inline="never", jit_options={"nogil": True, "fastmath": MATH})
def _project_by_type(matrices, layer, x, narrow, out):

    def whole(matrices, layer, x, narrow, out):
        values, scales = matrices.values[layer], matrices.scales[layer]
        rows, outputs = out.shape
        groups, pairs = values.shape[:2]
        weights, words = values.reshape(-1), narrow.reshape(-1).view(np.int32)
        steps, sums = np.empty(rows, np.float32), np.empty(128, np.int32)
        for b in range(rows):
            steps[b] = narrowed(x[b], narrow[b])
        for group in range(groups):
            first, start = group * pairs * 32, 16 * group
            count = min(16, outputs - start)
            b = 0
            while b < rows:
                together = 8 if b + 8 <= rows else 4 if b + 4 <= rows else 1
                some = words[b * pairs :]
                if together == 8:
                    _eight_rows(weights, first, some, pairs, sums)  # pyright: ignore[reportCallIssue]
                elif together == 4:
                    _four_rows(weights, first, some, pairs, sums)  # pyright: ignore[reportCallIssue]
                else:
                    _one_row(weights, first, some, pairs, sums)  # pyright: ignore[reportCallIssue]
                for row in range(together):
                    for i in range(count):
                        scale = scales[start + i] * steps[b + row]
                        out[b + row, start + i] = np.float32(sums[16 * row + i]) * scale
                b += together

    def real(matrices, layer, x, narrow, out):
        values = matrices.values[layer]
        for i in range(len(values)):
            weights = values[i]
            for b in range(len(x)):
                row, total = x[b], np.float32(0.0)
                for j in range(len(row)):
                    total += weights[j] * row[j]
                out[b, i] = total

    return whole if matrices.types[0].dtype == types.int8 else real


@compiled
def _through_blocks(weights, attention, memory, codes, slots, places, x):
    """Replace the inputs x (b, m) of the blocks by their outputs, and advance the states."""
    rows, width = x.shape
    layers, heads = attention.rates.shape
    size = width // heads
    most = 0  # features of encoded queries and keys
    for layer in range(layers):
        most = max(most, attention.layers[layer, CODED])
    hidden = weights.gate_value.scales.shape[1] // 2
    normed, into = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    qkv = np.empty((rows, weights.qkv.scales.shape[1]), np.float32)
    both = np.empty((rows, 2 * hidden), np.float32)
    active = np.empty((rows, hidden), np.float32)
    narrow = np.zeros((rows, width + width % 2), np.int16)  # whole pairs
    wide = np.zeros((rows, hidden + hidden % 2), np.int16)
    encoded = np.empty((2, most), np.float32)
    feature = np.empty((2, memory.keys.shape[3]), np.float32)
    gates, error = np.empty((2, heads), np.float32), np.empty(size, np.float32)
    scores = np.empty(memory.ring_steps.shape[4], np.float32)
    room = np.empty(max(256, most + most % 2), np.int16)
    if attention.added >= 0:
        for b in range(rows):
            first = places[attention.added, b]
            x[b] += codes[first : first + width]
    for layer in range(layers):
        norms = weights.norms[layer]
        numbers = attention.layers[layer]
        kind, place, coded, span = numbers[KIND], numbers[PLACE], numbers[CODED], numbers[SPAN]
        has_gates, encoding, ring = numbers[GATED], numbers[ENCODING], span + -span % 16
        lines = 2 if numbers[PAIRED] else size
        numel = 2 * heads * lines * coded  # of the codes of a position
        q, k = encoded[0, :coded], encoded[1, :coded]
        query, key = feature[0, : numbers[FEATURES]], feature[1, : numbers[FEATURES]]
        for b in range(rows):
            if weights.taps.shape[1]:
                slot = slots[b]
                layer_norm(x[b], norms[0], norms[1], into[b])
                recent, taps = memory.recent[slot, layer], weights.taps[layer]
                convolve(into[b], taps, recent, memory.count[slot], normed[b])
            else:
                layer_norm(x[b], norms[0], norms[1], normed[b])
        _project(weights.qkv, layer, normed, narrow, qkv)
        for b in range(rows):
            slot = slots[b]
            if kind == DELTA:
                raw, strongest = qkv[b, 3 * width :], attention.strongest[layer]
                gates_of(raw, strongest, attention.rates[layer], gates)
            for head in range(heads):
                start = head * size
                own_q = qkv[b, start : start + size]
                own_k = qkv[b, width + start : width + start + size]
                own_v = qkv[b, 2 * width + start : 2 * width + start + size]
                if len(weights.temperatures):
                    unit(own_q, weights.temperatures[layer, 0, head])
                    unit(own_k, weights.temperatures[layer, 1, head])
                if encoding < 0:
                    q[:], k[:] = own_q, own_k
                else:
                    first = places[encoding, b] + numbers[SET] * numel
                    sides = codes[first : first + numel].reshape((2, heads, lines, coded))
                    if numbers[PAIRED]:
                        turn(own_q, sides[0, head], attention.partners[layer], q)
                        turn(own_k, sides[1, head], attention.partners[layer], k)
                    else:
                        through, constant = attention.through, attention.constant
                        encode(own_q, sides[0, head], has_gates, through, constant, layer, head, q)
                        encode(own_k, sides[1, head], has_gates, through, constant, layer, head, k)
                out = normed[b, start : start + size]
                if kind == WINDOWED:
                    ring_keys = memory.ring_keys[slot, place, head]
                    ring_values = memory.ring_values[slot, place, head]
                    _attend_to_window(
                        q,
                        k,
                        own_v,
                        memory.count[slot],
                        span,
                        ring_keys[: (coded + coded % 2) * ring],
                        ring_values[: (size + -size % 16) * ring],
                        memory.ring_steps[slot, place, head],
                        scores[:ring],
                        room,
                        out,
                    )
                elif kind == DELTA:
                    normalize(q)
                    normalize(k)
                    stored = memory.kv[slot, place, head, :coded]
                    strength, decay = gates[0, head], gates[1, head]
                    replace_by_delta(q, k, own_v, strength, decay, stored, error, out)
                else:
                    features(q, attention, layer, query)
                    log_key = np.float64(features(k, attention, layer, key))
                    past, rate = memory.log_scale[slot, place, head], attention.rates[layer, head]
                    if numbers[DECAYING]:
                        rate *= softplus(qkv[b, 3 * width + head]) / math.log(2)
                    memory.log_scale[slot, place, head] = attend_to_sums(
                        query,
                        key,
                        own_v,
                        log_key,
                        rate,
                        past,
                        memory.kv[slot, place, head, : len(key)],
                        memory.keys[slot, place, head, : len(key)],
                        out,
                    )
        _project(weights.attended, layer, normed, narrow, into)
        for b in range(rows):
            x[b] += into[b]
            layer_norm(x[b], norms[2], norms[3], normed[b])
        _project(weights.gate_value, layer, normed, narrow, both)
        for b in range(rows):
            gated(both[b, :hidden], both[b, hidden:], active[b])
        _project(weights.down, layer, active, wide, into)
        for b in range(rows):
            x[b] += into[b]
    for b in range(rows):
        memory.count[slots[b]] += 1


@compiled
def _predict_event(weights, memory, slots, x):
    """Write the outputs (b, m) of the local decoder to x."""
    rows, width = x.shape
    hidden = weights.local_in.scales.shape[1] // 2
    normed, into = np.empty((rows, width), np.float32), np.empty((rows, width), np.float32)
    both = np.empty((rows, 2 * hidden), np.float32)
    active = np.empty((rows, hidden), np.float32)
    narrow = np.zeros((rows, width + width % 2), np.int16)
    wide = np.zeros((rows, hidden + hidden % 2), np.int16)
    for b in range(rows):
        slot = slots[b]
        place = min(memory.size[slot], len(weights.size_embedding) - 1)
        row, local, size_embedding = (
            memory.row[slot],
            memory.local[slot],
            weights.size_embedding[place],
        )
        for i in range(width):
            x[b, i] = row[i] + local[i] + size_embedding[i]
        layer_norm(x[b], weights.local_norm[0], weights.local_norm[1], normed[b])
    _project(weights.local_in, 0, normed, narrow, both)
    for b in range(rows):
        gated(both[b, :hidden], both[b, hidden:], active[b])
    _project(weights.local_out, 0, active, wide, into)
    for b in range(rows):
        x[b] += into[b]


@compiled
def _step(weights, attention, memory, codes, slots, places, tokens, logits):
    rows, width = len(tokens), weights.embedding.shape[1]
    x = np.empty((rows, width), np.float32)
    if len(weights.closes):
        closing = np.empty(rows, np.int64)
        count = 0
        for b in range(rows):
            slot, token = slots[b], tokens[b]
            memory.inputs[slot] += weights.embedding[token]
            if weights.closes[token]:
                closing[count] = b
                count += 1
                memory.local[slot] = 0.0
                memory.size[slot] = 0
            else:
                memory.local[slot] += weights.local_embedding[token]
                memory.size[slot] += 1
        if count:
            passing = np.empty((count, width), np.float32)
            own_slots = np.empty(count, np.int64)
            own_places = np.empty((len(places), count), np.int64)
            for i in range(count):
                own_slots[i] = slots[closing[i]]
                passing[i] = memory.inputs[own_slots[i]]
                memory.inputs[own_slots[i]] = 0.0
                own_places[:, i] = places[:, closing[i]]
            _through_blocks(weights, attention, memory, codes, own_slots, own_places, passing)
            for i in range(count):
                memory.row[own_slots[i]] = passing[i]
        _predict_event(weights, memory, slots, x)
    else:
        for b in range(rows):
            x[b] = weights.embedding[tokens[b]]
        _through_blocks(weights, attention, memory, codes, slots, places, x)
    normed = np.empty((rows, width), np.float32)
    narrow = np.zeros((rows, width + width % 2), np.int16)
    for b in range(rows):
        layer_norm(x[b], weights.last_norm[0], weights.last_norm[1], normed[b])
    _project(weights.logits, 0, normed, narrow, logits)


@compiled
def _unpacked_step(*given):
    weights = DecoderWeights(
        given[0],
        given[1],
        given[2],
        given[3],
        given[4],
        Matrices(*given[5:7]),
        Matrices(*given[7:9]),
        Matrices(*given[9:11]),
        Matrices(*given[11:13]),
        Matrices(*given[13:15]),
        given[15],
        given[16],
        given[17],
        given[18],
        Matrices(*given[19:21]),
        Matrices(*given[21:23]),
    )
    _step(weights, AttentionInputs(*given[23:32]), Memory(*given[32:44]), *given[44:])


@kept
def step_int8(*given: Any) -> None:  # noqa: ANN401 - arrays and numbers
    """Compute one token of each row, from the result of `arguments` and five arrays.

    The arrays are: the codes of all encodings, flat; and for each row its slot, the first index of
    its codes in each encoding (n, b), its token, and the logits (b, v), which are the output. The
    codes of a position are (sets, 2, h, d, r) for queries and keys, (sets, 2, h, 2, d) if they turn
    pairs, or a vector (m,) that is added to embeddings.
    """
    _unpacked_step(*given)


@kept
def step_float32(*given: Any) -> None:  # noqa: ANN401
    """Do as `step_int8`, for weights in float32."""
    _unpacked_step(*given)


@kept
def products_of_waves(waves, queries, keys, out):
    """Write the codes (c, n, 2, h, d, r): waves (c, n * h, d, k) times noise (n * h, d, k, r)."""
    for position in range(len(out)):
        for one in range(out.shape[1]):
            for side in range(2):
                noise = queries if side == 0 else keys
                for head in range(out.shape[3]):
                    place = one * out.shape[3] + head
                    for i in range(out.shape[4]):
                        wave, rows = waves[position, place, i], noise[place, i]
                        code = out[position, one, side, head, i]
                        code[:] = 0.0
                        for k in range(0, len(wave), 2):  # k is even: cosines and sines
                            first, second = wave[k], wave[k + 1]
                            one_row, next_row = rows[k], rows[k + 1]
                            for j in range(len(code)):
                                code[j] += first * one_row[j] + second * next_row[j]


def arguments(
    weights: DecoderWeights, attention: AttentionInputs, memory: Memory
) -> tuple[Any, ...]:
    """Return the first arguments of a step, flat because Numba is slow with nested tuples."""
    parts = (part if isinstance(part, Matrices) else (part,) for part in weights)
    return (*(array for part in parts for array in part), *attention, *memory)
