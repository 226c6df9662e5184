"""All tokenizers by name, and loading of a model's tokenizer."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from tokenization.errors import TokenizerError
from tokenization.remi.multitrack import MultitrackRemiConfig
from tokenization.remi.remi import PianoRemiConfig, Remi
from tokenization.tokenizer import FILE_NAME, FORMAT_VERSION

TokenizerConfig = PianoRemiConfig | MultitrackRemiConfig
"""All tokenizer configurations; add new ones with `|`."""

PRESETS: dict[str, TokenizerConfig] = {
    "piano-2": PianoRemiConfig(),
    "multitrack-2": MultitrackRemiConfig(),
}
"""Default configurations by user-facing name."""

_CONFIGS: dict[str, type[TokenizerConfig]] = {
    config.kind: type(config) for config in PRESETS.values()
}


def load_tokenizer(folder: str | Path) -> Remi:
    """Load the tokenizer that `save` wrote to a folder.

    Raises TokenizerError if the file is missing or damaged, or if this release has a different
    vocabulary.
    """
    path = Path(folder) / FILE_NAME
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        version, stored = content["format_version"], dict(content["config"])
        kind, vocabulary_hash = str(stored.pop("kind")), content["vocabulary_hash"]
    except OSError as error:
        raise TokenizerError(f"{path} cannot be read ({error.strerror})") from error
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise TokenizerError(
            f"{path} is damaged: expected JSON with format_version, config and vocabulary_hash; "
            "download the released model again"
        ) from error
    if version != FORMAT_VERSION:
        raise TokenizerError(
            f"{path} has format {version}, expected {FORMAT_VERSION}; install the release that "
            "wrote it"
        )
    config_class = _CONFIGS.get(kind)
    if config_class is None:
        raise TokenizerError(
            f"{path} has the tokenizer {kind!r}, expected one of {', '.join(_CONFIGS)}"
        )
    unknown = stored.keys() - {field.name for field in fields(config_class)}
    if unknown:
        raise TokenizerError(f"{path} has unknown options: {', '.join(sorted(unknown))}")
    for name, hint in get_type_hints(config_class).items():
        literals = get_args(hint)
        if get_origin(hint) is Literal and stored.get(name, literals[0]) not in literals:
            choices = " or ".join(map(repr, literals))
            raise TokenizerError(
                f"{path}: {name} is {stored[name]!r}, expected {choices}; prepare the data or "
                "train the model again"
            )
    tokenizer = config_class(**stored).build()
    if tokenizer.vocabulary.hash != vocabulary_hash:
        raise TokenizerError(
            f"{path} belongs to vocabulary {vocabulary_hash}, but this release has "
            f"{tokenizer.vocabulary.hash}, which assigns ids differently; install the release "
            "that wrote it"
        )
    return tokenizer
