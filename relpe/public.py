"""Everything that `relpe` exports."""

from __future__ import annotations

from relpe.attention.delta.operation import DeltaAttentionConfig
from relpe.attention.delta.rule import gated_delta_rule
from relpe.attention.feature_maps import EluConfig, FavorConfig, ReluConfig
from relpe.attention.layer import AttentionConfig, SelfAttention
from relpe.attention.linear.attention import (
    LinearState,
    causal_linear_attention,
    linear_attention,
)
from relpe.attention.linear.operation import LinearAttentionConfig
from relpe.attention.softmax import SoftmaxAttentionConfig
from relpe.attention.windowed.attention import WindowedAttentionConfig, windowed_attention
from relpe.encodings import (
    AlgebraicConfig,
    AlibiConfig,
    ConvSPEConfig,
    EncodingConfig,
    KerpleConfig,
    LearnedPositionConfig,
    NoEncodingConfig,
    RopeConfig,
    SelectiveRopeConfig,
    ShawConfig,
    SineSPEConfig,
    SinusoidConfig,
    SirenConfig,
    SirenSPEConfig,
    T5Config,
    TransformerXLConfig,
    TreeSQConfig,
)
from relpe.encodings.absolute import LearnedPosition, Sinusoid, TreeSQ
from relpe.encodings.algebraic.encoding import Algebraic
from relpe.encodings.algebraic.structures import (
    CycleStructure,
    DirectSum,
    GridStructure,
    SequenceStructure,
    TreeStructure,
)
from relpe.encodings.base import (
    AbsoluteEncoding,
    Encoding,
    NoEncoding,
    NoState,
    OffsetTable,
    QueryKeyEncoding,
    Scoring,
    SelectiveEncoding,
)
from relpe.encodings.offset.alibi import Alibi
from relpe.encodings.offset.base import OffsetEncoding
from relpe.encodings.offset.kerple import Kerple
from relpe.encodings.offset.relative import RelativeEncoding
from relpe.encodings.offset.shaw import Shaw
from relpe.encodings.offset.siren_network import SirenNetworkConfig
from relpe.encodings.offset.t5 import T5
from relpe.encodings.offset.windows import WindowConfig
from relpe.encodings.rope import Rope
from relpe.encodings.selective import SelectiveRope
from relpe.encodings.stochastic.base import StochasticEncoding
from relpe.encodings.stochastic.conv import ConvSPE
from relpe.encodings.stochastic.sine import SineSPE
from relpe.encodings.stochastic.siren import SirenSPE
from relpe.models.attention import Attention, AttentionLayerConfig, AttentionState
from relpe.models.checkpoint import (
    load_classifier,
    load_encoder_decoder,
    load_model,
    save_model,
)
from relpe.models.classifier import Classifier, ClassifierConfig
from relpe.models.decoder import Decoder, DecoderConfig, DecoderState
from relpe.models.encoder_decoder.cross_attention import CrossAttention
from relpe.models.encoder_decoder.model import (
    EncoderDecoder,
    EncoderDecoderConfig,
    EncoderDecoderState,
)
from relpe.models.events import EventsConfig
from relpe.models.inputs import ConvolutionInputConfig, TokenInputConfig, ValueInputConfig
from relpe.models.layers import LayerConfig
from relpe.models.pointer.config import PointerConfig

__all__ = [
    "T5",
    "AbsoluteEncoding",
    "Algebraic",
    "AlgebraicConfig",
    "Alibi",
    "AlibiConfig",
    "Attention",
    "AttentionConfig",
    "AttentionLayerConfig",
    "AttentionState",
    "Classifier",
    "ClassifierConfig",
    "ConvSPE",
    "ConvSPEConfig",
    "ConvolutionInputConfig",
    "CrossAttention",
    "CycleStructure",
    "Decoder",
    "DecoderConfig",
    "DecoderState",
    "DeltaAttentionConfig",
    "DirectSum",
    "EluConfig",
    "EncoderDecoder",
    "EncoderDecoderConfig",
    "EncoderDecoderState",
    "Encoding",
    "EncodingConfig",
    "EventsConfig",
    "FavorConfig",
    "GridStructure",
    "Kerple",
    "KerpleConfig",
    "LayerConfig",
    "LearnedPosition",
    "LearnedPositionConfig",
    "LinearAttentionConfig",
    "LinearState",
    "NoEncoding",
    "NoEncodingConfig",
    "NoState",
    "OffsetEncoding",
    "OffsetTable",
    "PointerConfig",
    "QueryKeyEncoding",
    "RelativeEncoding",
    "ReluConfig",
    "Rope",
    "RopeConfig",
    "Scoring",
    "SelectiveEncoding",
    "SelectiveRope",
    "SelectiveRopeConfig",
    "SelfAttention",
    "SequenceStructure",
    "Shaw",
    "ShawConfig",
    "SineSPE",
    "SineSPEConfig",
    "Sinusoid",
    "SinusoidConfig",
    "SirenConfig",
    "SirenNetworkConfig",
    "SirenSPE",
    "SirenSPEConfig",
    "SoftmaxAttentionConfig",
    "StochasticEncoding",
    "T5Config",
    "TokenInputConfig",
    "TransformerXLConfig",
    "TreeSQ",
    "TreeSQConfig",
    "TreeStructure",
    "ValueInputConfig",
    "WindowConfig",
    "WindowedAttentionConfig",
    "causal_linear_attention",
    "gated_delta_rule",
    "linear_attention",
    "load_classifier",
    "load_encoder_decoder",
    "load_model",
    "save_model",
    "windowed_attention",
]
