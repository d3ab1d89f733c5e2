"""Where the built-in questions find their documents, by answer position, in both arms.

Run `make index` first, then `.venv/bin/python -m tests.benchmarks.default_questions`. Forty-five questions
show how the tool works; they are far too few to judge a model.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq

from indexes import BuildStore, OpenBuild, open_build, rank_documents
from pipeline.artifacts import BuildFiles
from pipeline.encoders import Encoder, load_model
from pipeline.encoders.model_files import find_model
from tests.conftest import REPOSITORY

RUN = Path("runs/python-docs")
QUERIES = REPOSITORY / "configs" / "python-docs.queries.jsonl"
THIRDS = ("early", "middle", "late")


def third_of(query: dict[str, object], chunks: list[dict[str, int | str]]) -> int:
    """In which third of its chunk the middle of the answer stands."""
    start, end = int(str(query["start"])), int(str(query["end"]))
    (chunk,) = [
        chunk
        for chunk in chunks
        if chunk["doc_id"] == query["doc_id"] and int(chunk["start"]) <= start and end <= int(chunk["end"])
    ]
    length = int(chunk["end"]) - int(chunk["start"])
    return int(3 * ((start + end) / 2 - int(chunk["start"])) / length)


def ranks_by_third(build: OpenBuild) -> dict[str, list[list[int]]]:
    """For each arm and third, the rank of each question's document."""
    columns = ["doc_id", "start", "end"]
    chunks = pq.read_table(BuildFiles(build.build.path).chunks, columns=columns).to_pylist()
    queries = [json.loads(line) for line in QUERIES.read_text(encoding="utf-8").splitlines()]
    encoder = Encoder(load_model(find_model("all-MiniLM-L6-v2"), max_length=512), {"plain": None})
    vectors = encoder.encode_queries([query["query"] for query in queries])["plain"]
    ranks: dict[str, list[list[int]]] = {arm: [[], [], []] for arm in build.arms}
    for query, vector in zip(queries, vectors, strict=True):
        for arm, index in build.arms.items():
            ranking = rank_documents(index, build.rows, vector, build.rows.n_documents)
            rank = ranking.doc_ids.index(query["doc_id"]) + 1
            ranks[arm][third_of(query, chunks)].append(rank)
    return ranks


def main() -> None:
    """Print one row an arm and third."""
    print(f"{'arm':<12} {'answer':<8} {'questions':>9} {'MRR':>6} {'in top 10':>10}")
    for arm, thirds in ranks_by_third(open_build(BuildStore(RUN).current())).items():
        for name, ranks in zip(THIRDS, thirds, strict=True):
            mrr = np.mean([1 / rank for rank in ranks])
            found = sum(rank <= 10 for rank in ranks)
            print(f"{arm:<12} {name:<8} {len(ranks):>9} {mrr:>6.2f} {found:>10}")


if __name__ == "__main__":
    main()
