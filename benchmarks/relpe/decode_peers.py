"""Decoders and engines that `bench_decode` compares with ours.

Packages that are not installed (`pip install -e ".[bench]"`) are skipped with a notice.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from relpe.encodings import SineSPEConfig
from relpe.models.decoder import DecoderConfig

if TYPE_CHECKING:
    from collections.abc import Callable

VOCABULARY = 512


class Size(NamedTuple):
    """Size of a decoder with random weights."""

    width: int
    hidden: int
    layers: int = 6
    heads: int = 8

    @property
    def name(self) -> str:
        """Width and layers."""
        return f"d{self.width} L{self.layers}"

    def config(self) -> DecoderConfig:
        """Return our decoder of this size: linear attention, relu features, SPE with 64 draws."""
        return DecoderConfig(
            vocabulary_size=VOCABULARY,
            width=self.width,
            hidden=self.hidden,
            num_layers=self.layers,
            num_heads=self.heads,
            encoding=SineSPEConfig(num_realizations=64),
        )


SIZES = (Size(256, 704), Size(512, 1408))


class StaticCache(nn.Module):
    """A softmax decoder with rotary positions and a preallocated cache; batch 1."""

    cache: Tensor  # (layers, 2, h, places, d)

    def __init__(self, size: Size, context: int) -> None:
        super().__init__()
        self.size = size
        linear = lambda i, o: nn.Linear(i, o, bias=False)  # noqa: E731
        m, f = size.width, size.hidden
        self.embedding = nn.Embedding(VOCABULARY, m)
        self.blocks = nn.ModuleList(
            nn.ModuleList(
                [nn.RMSNorm(m), linear(m, 3 * m), linear(m, m), nn.RMSNorm(m), linear(m, 2 * f),
                 linear(f, m)]
            )
            for _ in range(size.layers)
        )  # fmt: skip
        self.norm, self.head = nn.RMSNorm(m), linear(m, VOCABULARY)
        shape = (size.layers, 2, size.heads, context + 1024, m // size.heads)
        self.register_buffer("cache", torch.randn(shape))
        self.place = context

    def forward(self, token: Tensor) -> Tensor:
        """Return the logits (v,) after `token` (); its keys and values are added to the cache."""
        x, size, place = self.embedding(token)[None], self.size, self.place
        head = size.width // size.heads
        angle = place / 10_000 ** (torch.arange(0, head, 2) / head)
        cos, sin = angle.cos(), angle.sin()
        for layer, block in enumerate(self.blocks):
            norm, qkv, out, norm_2, gate_value, down = cast("nn.ModuleList", block)
            q, k, v = qkv(norm(x)).view(3, size.heads, 1, -1)
            q, k = (
                torch.cat([a * cos - b * sin, a * sin + b * cos], -1)
                for a, b in (part.chunk(2, -1) for part in (q, k))
            )
            keys, values = self.cache[layer]
            keys[:, place : place + 1], values[:, place : place + 1] = k, v
            seen = place + 1
            attended = functional.scaled_dot_product_attention(
                q[None], keys[None, :, :seen], values[None, :, :seen]
            )
            x = x + out(attended.reshape(1, -1))
            gate, value = gate_value(norm_2(x)).chunk(2, -1)
            x = x + down(functional.silu(gate) * value)
        self.place += 1
        return self.head(self.norm(x))[0]


def static_cache(size: Size, context: int) -> Callable[[], object]:
    """Return a step of `StaticCache` with `context` tokens in its cache."""
    model, token = StaticCache(size, context).eval(), torch.tensor(5)

    def step() -> Tensor:
        model.place = context
        return model(token)

    return step


def dynamic_cache(size: Size, context: int) -> Callable[[], object] | None:
    """Return a step of Hugging Face's Llama with its growing cache; None if it is not installed."""
    try:
        transformers = import_module("transformers")
    except ImportError:
        return None
    config = transformers.LlamaConfig(
        vocab_size=VOCABULARY,
        hidden_size=size.width,
        intermediate_size=size.hidden,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.heads,
        max_position_embeddings=context + 1024,
    )
    model = transformers.LlamaForCausalLM(config).eval()
    cache = transformers.DynamicCache(config=config)
    shape = (1, size.heads, context, size.width // size.heads)
    for layer in range(size.layers):
        cache.update(torch.randn(shape), torch.randn(shape), layer)
    token = torch.tensor([[5]])

    def step() -> object:
        output = model(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)  # removes the new token; this is a view, since steps copy the cache
        return output

    return step


def gpt2(size: Size, context: int) -> Callable[[], object] | None:
    """Return a step of Hugging Face's GPT-2 with its growing cache; None if it is not installed.

    Its feed-forward layers have four times the width, which is about as many weights as ours.
    """
    try:
        transformers = import_module("transformers")
    except ImportError:
        return None
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY,
        n_embd=size.width,
        n_layer=size.layers,
        n_head=size.heads,
        n_positions=context + 1024,
    )
    model, token = transformers.GPT2LMHeadModel(config).eval(), torch.tensor([[5]])
    with torch.inference_mode():
        cache = model(token.expand(1, context), use_cache=True).past_key_values

    def step() -> object:
        output = model(token, past_key_values=cache, use_cache=True)
        cache.crop(-1)
        return output

    return step


def onnx_products(size: Size, *, int8: bool) -> Callable[[], object] | None:
    """Return only the matrix products of one token, by ONNX Runtime on one thread.

    A whole step takes longer, since it also computes norms, codes and attention. None if ONNX
    Runtime is not installed.
    """
    try:
        ort, onnx = import_module("onnxruntime"), import_module("onnx")
    except ImportError:
        return None
    helper, numpy_helper, numbers = onnx.helper, onnx.numpy_helper, onnx.TensorProto
    rng = np.random.default_rng(0)
    nodes, weights, name = [], [], "x"
    m, f = size.width, size.hidden
    shapes = [(m, 3 * m), (m, m), (m, 2 * f), (f, m)] * size.layers + [(m, VOCABULARY)]
    for index, (rows, columns) in enumerate(shapes):
        weight = rng.normal(size=(rows, columns), scale=rows**-0.5).astype(np.float32)
        if int8:
            scale = np.abs(weight).max(0) / 127
            whole = np.rint(weight / scale).astype(np.int8)
            weights += [
                numpy_helper.from_array(whole, f"w{index}"),
                numpy_helper.from_array(scale.astype(np.float32), f"s{index}"),
            ]
            narrow = [f"q{index}", f"step{index}", f"zero{index}"]
            nodes += [
                helper.make_node("DynamicQuantizeLinear", [name], narrow),
                helper.make_node(
                    "MatMulInteger", [narrow[0], f"w{index}", narrow[2]], [f"i{index}"]
                ),
                helper.make_node("Cast", [f"i{index}"], [f"c{index}"], to=numbers.FLOAT),
                helper.make_node("Mul", [f"step{index}", f"s{index}"], [f"t{index}"]),
                helper.make_node("Mul", [f"c{index}", f"t{index}"], [f"y{index}"]),
            ]
        else:
            weights.append(numpy_helper.from_array(weight, f"w{index}"))
            nodes.append(helper.make_node("MatMul", [name, f"w{index}"], [f"y{index}"]))
        name = f"y{index}"
        width = shapes[index + 1][0] if index + 1 < len(shapes) else columns
        if columns != width:  # only the first features are used in the next product
            weights.append(numpy_helper.from_array(np.array([width, columns - width]), f"n{index}"))
            nodes.append(
                helper.make_node("Split", [name, f"n{index}"], [f"z{index}", f"r{index}"], axis=1)
            )
            name = f"z{index}"
    graph = helper.make_graph(
        nodes,
        "products",
        [helper.make_tensor_value_info("x", numbers.FLOAT, [1, m])],
        [helper.make_tensor_value_info(name, numbers.FLOAT, [1, VOCABULARY])],
        weights,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = ort.InferenceSession(model.SerializeToString(), options, ["CPUExecutionProvider"])
    binding = session.io_binding()
    binding.bind_cpu_input("x", rng.normal(size=(1, m)).astype(np.float32))
    binding.bind_output(name)
    return lambda: session.run_with_iobinding(binding)


def stream(size: int) -> Callable[[], object]:
    """Return a matrix-vector product in float32 that reads `size` bytes and does little else."""
    matrix, vector = torch.randn(max(1, size // (4 * 1024)), 1024), torch.randn(1024)
    return lambda: torch.mv(matrix, vector)
