"""Models on the Hugging Face Hub, by `huggingface_hub` (extra `hub`).

    model = Decoder.from_pretrained("name/of-a-repository")   # or a folder, without network
    model.save_pretrained("folder")
    model.push_to_hub("name/of-a-repository")

Files are those of `save_model`. The card, tokenizer and record of training of a model that was
loaded are written with it again.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

from huggingface_hub import ModelCard, PyTorchModelHubMixin, snapshot_download

from relpe.models import decoder
from relpe.models.checkpoint import (
    AnyModel,
    load_classifier,
    load_encoder_decoder,
    load_model,
    save_model,
)
from relpe.models.classifier import model as classifier
from relpe.models.config import CheckpointError
from relpe.models.encoder_decoder import model as encoder_decoder

CARRIED = ("README.md", "tokenizer.json", "training.json")
"""Files of a model's folder that are kept besides its weights and config."""
_DOWNLOAD = ("revision", "cache_dir", "force_download", "local_files_only", "token")
"""Options that `huggingface_hub` takes to download a repository."""
_CARD = """---
library_name: relpe
tags: [relpe]
---

A model of [relpe](https://pypi.org/project/relpe/): `relpe.hub.{kind}.from_pretrained` loads it.
"""


class _OnHub(PyTorchModelHubMixin):
    """The methods of all kinds of models; see `PyTorchModelHubMixin`."""

    config: Any
    load: ClassVar[Callable[..., AnyModel]]
    carried: dict[str, bytes]
    """Contents of `CARRIED`, by name."""

    def _save_pretrained(self, save_directory: Path) -> None:
        save_model(self, save_directory)  # pyright: ignore[reportArgumentType]
        for name, content in getattr(self, "carried", {}).items():
            (save_directory / name).write_bytes(content)

    @classmethod
    def from_pretrained(  # pyright: ignore[reportIncompatibleMethodOverride]
        cls,
        pretrained_model_name_or_path: str | Path,
        **options: Any,  # noqa: ANN401
    ) -> Self:
        """Load a model from a repository or a folder; see `PyTorchModelHubMixin`.

        Raises:
            CheckpointError: there is no such folder, or its files are not those of such a model.
            TypeError: there is no such option.
        """
        name, folder = str(pretrained_model_name_or_path), Path(pretrained_model_name_or_path)
        is_path = folder.is_absolute() or name.startswith(".") or name.count("/") > 1
        if is_path and not folder.is_dir():
            raise CheckpointError(f"{name}: no such folder, expected one with model.json")
        unknown = sorted(options.keys() - {*_DOWNLOAD, "map_location", "strict"})
        if unknown:
            raise TypeError(f"from_pretrained has no argument {', '.join(unknown)}")
        return super().from_pretrained(pretrained_model_name_or_path, **options)

    @classmethod
    def _from_pretrained(
        cls,
        *,
        model_id: str,
        map_location: str = "cpu",
        **options: Any,  # noqa: ANN401
    ) -> Self:
        folder = Path(model_id)
        if not folder.is_dir():
            files = ["model.json", "model*.safetensors", *CARRIED]
            given = {name: options[name] for name in _DOWNLOAD}
            # the caller chooses the revision; nothing that is downloaded is unpickled
            folder = Path(snapshot_download(model_id, allow_patterns=files, **given))  # nosec B615
        loaded = cls.load(folder)
        model: Any = cls(loaded.config)  # pyright: ignore[reportCallIssue]
        model.load_state_dict(loaded.state_dict())
        paths = (folder / name for name in CARRIED)
        model.carried = {path.name: path.read_bytes() for path in paths if path.is_file()}
        return model.to(map_location).eval()

    def generate_model_card(self, *args: object, **kwargs: object) -> ModelCard:
        """Return a card for a model that has none."""
        return ModelCard(_CARD.format(kind=type(self).__name__))


class Decoder(_OnHub, decoder.Decoder):
    """`relpe.Decoder` with `from_pretrained`, `save_pretrained` and `push_to_hub`."""

    load = staticmethod(load_model)


class Classifier(_OnHub, classifier.Classifier):
    """`relpe.Classifier` with the same methods."""

    load = staticmethod(load_classifier)


class EncoderDecoder(_OnHub, encoder_decoder.EncoderDecoder):
    """`relpe.EncoderDecoder` with the same methods."""

    load = staticmethod(load_encoder_decoder)
