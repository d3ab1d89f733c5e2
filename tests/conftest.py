"""Shared fixtures: tiny random models, made in code, and the command line as a function."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

# Nothing in the tests may reach for a model hub.
os.environ["HF_HUB_OFFLINE"] = "1"

REPOSITORY = Path(__file__).resolve().parent.parent
SHARED = REPOSITORY.parent / "shared"


# Documents of words that the tiny tokenizer knows.
CATS_AND_DOGS = (
    {
        "id": "cats",
        "title": "Cats",
        "text": "The cat sat on the mat. A dog is late. The answer is river. Hello world.",
    },
    {
        "id": "dogs",
        "title": "Dogs",
        "text": "A dog sat on a cat. The river is blue. Hello hello hello world. Alpha.",
    },
)


def save_tiny_model(folder: Path, *, seed: int = 7, positions: int = 64, width: int = 32) -> Path:
    """Save a random two-layer BERT with a WordPiece tokenizer of a few words; mean pooling by default."""
    import torch
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    from tests.pipeline.tiny import wordpiece

    tokenizer = wordpiece()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=positions,
    ).save_pretrained(folder)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=tokenizer.get_vocab_size(),
        hidden_size=width,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=positions,
        # Wide enough that position and calibration matter in so small a model.
        initializer_range=0.3,
    )
    BertModel(config).eval().save_pretrained(folder)
    return folder


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    return save_tiny_model(tmp_path / "tiny-model")


@dataclass(frozen=True)
class Outcome:
    """What a command printed and returned."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> dict[str, Any]:
        value: dict[str, Any] = json.loads(self.out)
        return value


@pytest.fixture
def lastpage(capfd: pytest.CaptureFixture[str]) -> Callable[..., Outcome]:
    """Run the command in this process, through the same entry point as the console script."""
    from pipeline.cli.main import main

    def run(*arguments: object) -> Outcome:
        capfd.readouterr()
        with pytest.raises(SystemExit) as exit_:
            main([str(argument) for argument in arguments])
        printed = capfd.readouterr()
        code = exit_.value.code
        assert isinstance(code, int)
        return Outcome(code, printed.out, printed.err)

    return run


@pytest.fixture
def empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder that commands run in: empty, and without a run named by the environment."""
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.delenv("LASTPAGE_RUN", raising=False)
    return work


@pytest.fixture
def tiny_settings(tiny_model: Path) -> list[str]:
    """Options that make a run small: the tiny model, chunks of 16 tokens, baskets of 4."""
    return [
        "--model",
        str(tiny_model),
        "--set",
        "model.max_length=64",
        "--set",
        "chunk.max_tokens=16",
        "--set",
        "arms.plain.strength=0.0",
        "--set",
        "arms.calibrated.basket_size=4",
        "--quiet",
    ]


def write_jsonl(path: Path, records: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


# For each module anew: while it runs, playwright's event loop is the thread's, and no test can have its own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium without a window; skips where there is none, unless LASTPAGE_REQUIRE_BROWSER is set."""
    from playwright.sync_api import sync_playwright

    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if path is None:
        if os.environ.get("LASTPAGE_REQUIRE_BROWSER"):
            pytest.fail("no Chromium found, and LASTPAGE_REQUIRE_BROWSER asks for one")
        pytest.skip("no Chromium on this machine")
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield chromium
        chromium.close()
