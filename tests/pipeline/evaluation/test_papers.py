"""The way to the papers' tables, on tiny models of the same classes and tiny data of the same layouts."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from pipeline.config import load_config
from pipeline.errors import DataError
from tests.conftest import REPOSITORY, Outcome
from tests.pipeline.encoders.tiny_models import save_folder, with_vocabulary
from tests.pipeline.evaluation.making import document, load, posir, qrel, query
from tests.pipeline.tiny import wordpiece

PAPERS = REPOSITORY / "configs" / "papers"
CONFIGS = sorted(PAPERS.glob("*.toml"))
POSITIONS = 256
TINY = {
    "bge-m3": ("XLMRoberta", "cls", {"max_position_embeddings": POSITIONS + 2}),
    "gte-multilingual-base": ("Gte", "cls", {"max_position_embeddings": POSITIONS}),
    "qwen3-embedding-0.6b": (
        "Qwen3",
        "lasttoken",
        {"num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": POSITIONS},
    ),
}


def _text(number: int) -> str:
    """Sixty words; the one that tells it from others comes once at the beginning, middle and end."""
    own = f"cat {number}"
    return " ".join([own, "the a is on sat " * 5, own, "the a is on sat " * 5, own])


def _squad(folder: Path) -> Path:
    paragraphs = []
    for number in range(12):
        context = _text(number)
        starts = [context.index(str(number)), context.rindex(str(number))]
        qas = [
            {
                "id": f"{number}-{start}",
                "question": f"{number}?",
                "answers": [{"text": str(number), "answer_start": start}],
            }
            for start in starts
        ]
        paragraphs.append({"context": context, "qas": qas})
    folder.mkdir()
    content = {"version": "v2.0", "data": [{"title": "T", "paragraphs": paragraphs}]}
    (folder / "dev-v2.0.json").write_text(json.dumps(content))
    return folder


def _fineweb(folder: Path) -> Path:
    import datasets

    rows = [
        {"question": f"{number} {group}?", "content": _text(number), "span_class": [group]}
        for number in range(12)
        for group in ("beginning", "middle", "end")
    ]
    datasets.DatasetDict({"train": datasets.Dataset.from_list(rows)}).save_to_disk(folder)
    return folder


def _posir(folder: Path) -> Path:
    for domain, first in (("law", 0), ("news", 6)):
        queries, qrels, corpus = [], [], []
        for number in range(first, first + 6):
            text = _text(number)
            corpus.append(document(f"d{number}", text))
            for place, start in enumerate((text.index(str(number)), text.rindex(str(number)))):
                queries.append(query(f"q{number}{place}", f"{number}?", [start, start + 1], len(text)))
                qrels.append(qrel(f"q{number}{place}", f"d{number}"))
        home = posir(folder / "eng-Latn" / domain, corpus, queries, qrels)
        (home / "qrels").mkdir()
        (home / "qrels.parquet").rename(home / "qrels" / "test.parquet")
    return folder


DATA = {
    "squad_v2": (_squad, [], {"0-100", "100-200"}),
    "FineWeb-PosQ": (_fineweb, [], {"beginning", "middle", "end"}),
    "PosIR-Benchmark-v1": (
        _posir,
        ["--language", "eng-Latn", "--groups", "twentieths"],
        {"0-5%", "95-100%"},
    ),
}


@pytest.mark.parametrize("config", CONFIGS, ids=lambda path: path.stem)
def test_configs_say_what_the_papers_did(config: Path) -> None:
    settings = load_config(config)
    assert list(settings.arms) == ["plain", "calibrated"]
    assert settings.arms["plain"].strength == 0.0
    arm = settings.arms["calibrated"]
    assert (arm.strength, arm.basket_size, arm.layers) == (0.5, 128, 0.5)
    assert (settings.evaluate.k, settings.evaluate.chunk_tokens, settings.model.max_length) == (
        10,
        None,
        8192,
    )


# Each model and each set once: what one does not share with the others is its own reading or loading.
@pytest.mark.parametrize(
    ("config", "data"), list(zip(CONFIGS, DATA, strict=True)), ids=lambda part: Path(part).stem
)
def test_the_way_to_a_table(
    lastpage: Callable[..., Outcome], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, config: Path, data: str
) -> None:
    monkeypatch.chdir(tmp_path)
    kind, pooling, values = TINY[config.stem]
    model = with_vocabulary(kind, wordpiece(), **values)
    folder = save_folder(tmp_path / "model", model, pooling=pooling, max_length=POSITIONS)
    make, options, groups = DATA[data]
    settings = [f"model.max_length={POSITIONS}", "arms.calibrated.basket_size=16", "evaluate.rounds=100"]
    outcome = lastpage(
        "evaluate",
        *("--config", config, "--data", make(tmp_path / data), "--model", folder, "--json", "--quiet"),
        *options,
        *(f"--set={setting}" for setting in settings),
    )
    assert outcome.code == 0, outcome.err
    result = outcome.json
    assert result["run"].startswith("runs/evaluate-")
    assert result["run"].endswith(config.stem.replace(".", "-"))
    assert groups <= set(result["data"]["group_names"])
    assert result["documents"]["cut"] == 0
    assert result["this_time"]["vectors_made"]["calibrated"] == 12
    plain, calibrated, lexical = (system["measures"]["nDCG@10"] for system in result["systems"])
    assert [mean["value"] for mean in plain["means"]] != [mean["value"] for mean in calibrated["means"]]
    assert lexical["harmonic_mean"]["value"] > 0.9


def test_a_name_on_the_hub_that_is_out_of_reach_says_so() -> None:
    with pytest.raises(DataError, match=r"NovaSearch/FineWeb-PosQ: the dataset cannot be read .* hub"):
        load("NovaSearch/FineWeb-PosQ")
