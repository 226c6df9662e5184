"""Models on the Hugging Face Hub: in folders without network, and on a stand-in for its server."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import torch

pytest.importorskip("huggingface_hub")

from relpe import ClassifierConfig, DecoderConfig, EncoderDecoderConfig
from relpe.hub import CARRIED, Classifier, Decoder, EncoderDecoder

SIZES: dict[str, Any] = {
    "vocabulary_size": 11,
    "width": 16,
    "num_heads": 2,
    "num_layers": 1,
    "hidden": 16,
}
COMMIT = "c" * 40


def small_decoder() -> Decoder:
    """A decoder whose weights are those that bfloat16 can store."""
    torch.manual_seed(0)
    return Decoder(DecoderConfig(**SIZES)).bfloat16().float()


@pytest.mark.parametrize("kind", [Decoder, Classifier, EncoderDecoder])
def test_models_and_what_lies_beside_them_are_kept_in_folders(kind: Any, tmp_path: Path) -> None:
    small: dict[str, Any] = {"width": 16, "num_heads": 2, "hidden": 16}
    configs = {
        Decoder: lambda: DecoderConfig(**SIZES),
        Classifier: lambda: ClassifierConfig(**small, num_layers=1),
        EncoderDecoder: lambda: EncoderDecoderConfig(**small, vocabulary_size=11),
    }
    model = kind(configs[kind]()).bfloat16().float()
    model.save_pretrained(tmp_path / "first")
    assert "relpe.hub." + kind.__name__ in (tmp_path / "first" / "README.md").read_text()
    for name in CARRIED:
        (tmp_path / "first" / name).write_text(name)
    loaded = kind.from_pretrained(tmp_path / "first")
    assert isinstance(loaded, kind)
    assert not loaded.training
    assert loaded.config == model.config
    for name, weight in model.state_dict().items():
        assert torch.equal(loaded.state_dict()[name], weight)
    loaded.save_pretrained(tmp_path / "second")
    assert all((tmp_path / "second" / name).read_text() == name for name in CARRIED)


class Hub(BaseHTTPRequestHandler):
    """The requests of huggingface_hub that uploads and downloads of a model need."""

    files: dict[str, bytes]

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing."""

    def _answer(self, content: bytes, **headers: str) -> None:
        self.send_response(200)
        for name, value in {"X-Repo-Commit": COMMIT, **headers}.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def do_POST(self) -> None:
        """A repository, how files are uploaded, or a commit."""
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path.endswith("/preupload/main"):
            found = [
                {"path": one["path"], "uploadMode": "regular", "shouldIgnore": False}
                for one in json.loads(body)["files"]
            ]
            return self._answer(json.dumps({"files": found}).encode())
        if self.path.endswith("/commit/main"):
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    value = line["value"]
                    self.files[value["path"]] = base64.b64decode(value["content"])
        url = f"http://{self.headers['Host']}/me/model"
        answer = {"url": url, "commitUrl": f"{url}/commit/{COMMIT}", "commitOid": COMMIT}
        return self._answer(json.dumps({**answer, "errors": [], "warnings": []}).encode())

    def do_GET(self) -> None:
        """The names of all files, or one file."""
        if "/tree/" in self.path:
            sizes = {name: len(content) for name, content in self.files.items()}
            entries = [
                {"type": "file", "path": name, "size": size, "oid": COMMIT}
                for name, size in sizes.items()
            ]
            return self._answer(json.dumps(entries).encode())
        if "/resolve/" not in self.path:
            siblings = [{"rfilename": name} for name in self.files]
            about = {"id": "me/model", "sha": COMMIT, "siblings": siblings}
            return self._answer(json.dumps(about).encode())
        content = self.files[self.path.rpartition("/")[2]]
        return self._answer(content, ETag=f'"{hash(content)}"')

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def server() -> Iterator[tuple[str, dict[str, bytes]]]:
    """Address of the stand-in, and the files of its repository."""
    files: dict[str, bytes] = {}
    handler = type("Handler", (Hub,), {"files": files})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{running.server_port}", files
        running.shutdown()


def test_a_model_is_pushed_with_its_card_and_downloaded(
    server: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    address, files = server
    small_decoder().save_pretrained(tmp_path / "first")
    (tmp_path / "first" / "README.md").write_text("# Mine\n")
    script = (
        "import sys\nfrom relpe.hub import Decoder\nfirst, second = sys.argv[1:]\n"
        "Decoder.from_pretrained(first).push_to_hub('me/model', token='t')\n"
        "Decoder.from_pretrained('me/model').save_pretrained(second)\n"
    )
    # the address is read when the package is imported
    environment = {
        "HF_ENDPOINT": address,
        "HF_HOME": str(tmp_path / "home"),
        "HF_HUB_DISABLE_XET": "1",
    }
    words = [sys.executable, "-c", script, str(tmp_path / "first"), str(tmp_path / "second")]
    run = subprocess.run(
        words, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert files["README.md"] == b"# Mine\n"
    for name in ("README.md", "model.json", "model.safetensors"):
        saved = (tmp_path / "second" / name).read_bytes()
        assert saved == files[name] == (tmp_path / "first" / name).read_bytes()


def test_a_missing_folder_and_an_unknown_option_are_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="no such folder, expected one with model"):
        Decoder.from_pretrained(tmp_path / "none")
    with pytest.raises(TypeError, match="from_pretrained has no argument devcie"):
        Decoder.from_pretrained(tmp_path, devcie="cpu")
