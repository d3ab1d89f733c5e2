"""A sweep measures what single evaluations would, shares what it can, and goes on where it stopped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import product
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from pipeline.artifacts import RunLayout, run_lock
from pipeline.config import ArmSettings, Config, EvaluateSettings, ModelSettings
from pipeline.errors import UsageError
from pipeline.evaluation.costs import in_turn, query_milliseconds
from pipeline.evaluation.datasets import load_evaluation_set
from pipeline.evaluation.evaluate import score_arm
from pipeline.evaluation.grid import Grid, passes
from pipeline.evaluation.sweep import SweepResult, run_sweep
from pipeline.evaluation.vectors import embed_set
from pipeline.reporting import SilentReporter
from tests.conftest import Outcome, save_tiny_model
from tests.pipeline.evaluation.making import document, posir, qrel, query

WORDS = ["cat", "dog", "sat", "mat", "answer", "river", "blue", "late", "early", "alpha", "beta", "gamma"]
GRID = Grid(baskets=(4,), strengths=(0.5, 1.0), layers=("last", "all"), chunk_tokens=(None, 16))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_tiny_model(tmp_path_factory.mktemp("model") / "tiny")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """12 documents of three blocks in three rotations; each block is asked for by its first words."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(3)
    blocks = [[" ".join(rng.permutation(WORDS)[:10]) for _ in range(3)] for _ in range(12)]
    corpus, queries, qrels = [], [], []
    for (number, own), shift in product(enumerate(blocks), range(3)):
        doc_id = f"d{number}-s{shift}"
        corpus.append({"_id": doc_id, "text": "\n\n".join(own[shift:] + own[:shift]), "shift": shift})
        for block, text in enumerate(own):
            query = {"_id": f"q{number}.{block}-s{shift}", "text": " ".join(text.split()[:3])}
            place = {"question_id": f"q{number}.{block}", "paragraph_position": (block - shift) % 3}
            queries.append({**query, **place, "article": f"a{number}"})
            qrels.append({"query-id": query["_id"], "corpus-id": doc_id, "score": 1})
    for name, rows in {"corpus": corpus, "queries": queries, "qrels": qrels}.items():
        pq.write_table(pa.Table.from_pylist(rows), folder / f"{name}.parquet")
    return folder


@pytest.fixture(scope="module")
def config(model: Path, data: Path) -> Config:
    return Config(
        model=ModelSettings(name=str(model), max_length=64),
        evaluate=EvaluateSettings(data=str(data), rounds=100),
    )


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("run")


@pytest.fixture(scope="module")
def swept(config: Config, run: Path) -> SweepResult:
    return sweep(config, GRID, run)


def sweep(config: Config, grid: Grid, run: Path) -> SweepResult:
    layout = RunLayout(run)
    with run_lock(layout):
        return run_sweep(
            load_evaluation_set(config.evaluate), config, grid, layout, SilentReporter(), timing=False
        )


def shards(run: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in (run / "vectors").rglob("*.parquet")}


def test_every_setting_is_measured_and_the_best_stands_first(swept: SweepResult) -> None:
    arms = ("plain", "b4-llast-s0.5", "b4-llast-s1", "b4-lall-s0.5", "b4-lall-s1")

    assert {row.setting.name for row in swept.rows} == {f"{arm}{end}" for arm in arms for end in ("", "@16")}
    quality = [row.summary.harmonic_mean.value for row in swept.rows]
    assert quality == sorted(quality, reverse=True)
    assert swept.reference == "plain"
    assert swept.row("plain").gain is None
    assert swept.row("plain").cost.vectors_per_document == 1.0
    assert swept.row("plain@16").cost.vectors_per_document > 2.0
    # Calibration changes vectors, or the sweep would compare nothing.
    assert len({tuple(mean.value for mean in row.summary.means) for row in swept.rows}) > 5


def test_a_sweep_agrees_with_evaluating_one_setting_alone(
    swept: SweepResult, config: Config, tmp_path: Path
) -> None:
    arm = ArmSettings(strength=1.0, basket_size=4, layers="all")
    alone = config.model_copy(
        update={"arms": {"only": arm}, "evaluate": config.evaluate.model_copy(update={"chunk_tokens": 16})}
    )
    data = load_evaluation_set(alone.evaluate)
    embedded = embed_set(data, alone, RunLayout(tmp_path), SilentReporter())
    values = score_arm(data, embedded, "only", k=10).ndcg

    groups = np.array([query.group for query in data.queries])
    means = [values[groups == name].mean() for name in data.group_names]
    row = swept.row("b4-lall-s1@16")
    assert [mean.value for mean in row.summary.means] == pytest.approx(means)
    assert row.cost.n_vectors == embedded.rows.n_rows


def test_a_second_sweep_embeds_nothing_and_finds_the_same(
    swept: SweepResult, config: Config, run: Path
) -> None:
    before = shards(run)

    assert sweep(config, GRID, run).as_json() == swept.as_json()
    assert shards(run) == before


def test_a_larger_grid_embeds_only_what_is_new(swept: SweepResult, config: Config, run: Path) -> None:
    before = shards(run)
    larger = Grid(baskets=(4,), strengths=(0.25, 0.5, 1.0), layers=("last",), chunk_tokens=(None,))
    result = sweep(config, larger, run)
    after = shards(run)

    assert {path: time for path, time in after.items() if path in before} == before
    assert len({path.parent for path in after} - {path.parent for path in before}) == 1
    assert result.row("b4-llast-s1").summary == swept.row("b4-llast-s1").summary


def test_arms_with_the_same_layers_share_a_pass_and_plain_rides_along() -> None:
    shared = [list(arms) for arms in passes(GRID.arms())]

    assert shared == [["plain", "b4-llast-s0.5", "b4-llast-s1"], ["b4-lall-s0.5", "b4-lall-s1"]]
    assert [list(arms) for arms in passes(Grid(strengths=(0.0,)).arms())] == [["plain"]]


def test_masses_and_layer_lists_have_names_of_their_own() -> None:
    grid = Grid(baskets=(8,), strengths=(1.0,), layers=([0, 1],), masses=("equal", "original", 0.2))

    assert list(grid.arms()) == ["plain", "b8-l0_1-s1", "b8-l0_1-s1-moriginal", "b8-l0_1-s1-m0.2"]
    Config(arms=grid.arms())  # the names are allowed


def test_gains_are_counted_from_the_largest_chunks_whatever_the_order_given() -> None:
    grid = Grid(strengths=(0.0,), chunk_tokens=(126, None, 254, 126))

    assert [setting.name for setting in grid.settings()] == ["plain", "plain@254", "plain@126"]


def test_an_empty_dimension_is_refused() -> None:
    with pytest.raises(UsageError, match="no baskets"):
        Grid(baskets=())


def test_work_is_timed_in_turn_after_a_warm_up() -> None:
    done: list[str] = []
    seconds = in_turn({name: lambda name=name: done.append(name) for name in "ab"}, turns=3)

    assert done == list("ab" * 4)
    assert {name: len(own) for name, own in seconds.items()} == {"a": 3, "b": 3}


def test_searching_ever_more_vectors_takes_longer() -> None:
    milliseconds = query_milliseconds({"small": (1_000, 64), "large": (200_000, 64)})

    assert milliseconds["large"] > 2 * milliseconds["small"] > 0


# -- the command ---------------------------------------------------------------------------------------


@pytest.fixture
def command(
    lastpage: Callable[..., Outcome], model: Path, data: Path, tmp_path: Path
) -> Iterator[Callable[..., Outcome]]:
    def run(*options: object) -> Outcome:
        return lastpage(
            "sweep", "--data", data, "--model", model, "--out", tmp_path / "out", "--quiet",
            "--set", "model.max_length=64", "--set", "evaluate.rounds=100",
            "--basket", "4,8", "--strength", "0.5,1", "--layers", "last,2", *options,
        )  # fmt: skip

    return run


def test_the_command_writes_table_figures_and_times(command: Callable[..., Outcome], tmp_path: Path) -> None:
    swept = command("--chunk-tokens", "none,16", "--json")
    assert swept.code == 0, swept.err
    out, result = tmp_path / "out", swept.json

    assert result["reference"] == "plain"
    assert len(result["rows"]) == 2 * 9
    assert pq.read_table(out / "sweep.parquet").to_pylist() == result["rows"]
    assert set(result["timings"]) == {row["setting"] for row in result["rows"]}
    assert json.loads((out / "timings.json").read_text()) == result["timings"]
    assert result["timings"]["plain"]["embed_ratio"] == 1.0
    names = ("position-curves", "frontier", "heat-map", "costs")
    assert sorted(result["figures"]) == sorted(
        str(out / "plots" / f"{name}.{kind}") for name in names for kind in ("svg", "png")
    )
    assert all(Path(path).stat().st_size > 1000 for path in result["figures"])


def test_one_layer_is_not_all_layers() -> None:
    from pipeline.cli.sweep_command import CommaList, _layers

    assert CommaList(_layers, "L,L", "layers").convert("1,1.0,last,1", None, None) == [1, 1.0, "last"]


def test_the_command_prints_the_frontier(command: Callable[..., Outcome]) -> None:
    printed = command("--no-timing")

    assert printed.code == 0, printed.err
    assert "* " in printed.out
    assert "vectors/doc" in printed.out
    assert "embed x" not in printed.out


def test_a_smaller_sweep_leaves_no_figures_and_times_of_a_larger_one(
    command: Callable[..., Outcome], tmp_path: Path
) -> None:
    command("--chunk-tokens", "none,16")
    again = command("--basket", "4", "--strength", "1", "--no-timing", "--json")

    assert again.code == 0, again.err
    assert sorted(str(path) for path in (tmp_path / "out/plots").iterdir()) == sorted(again.json["figures"])
    assert not (tmp_path / "out/timings.json").exists()


def test_a_smaller_sweep_sets_the_larger_one_aside(command: Callable[..., Outcome], tmp_path: Path) -> None:
    out = tmp_path / "out"
    names = ("sweep.json", "sweep.parquet", "timings.json")
    command("--chunk-tokens", "none,16")
    larger = {name: (out / name).read_bytes() for name in names}
    smaller = ("--basket", "4", "--strength", "1", "--no-timing")
    first, again = command(*smaller), command(*smaller, "--json")

    (folder,) = (out / "earlier").iterdir()
    assert {name: (folder / name).read_bytes() for name in names} == larger
    assert (folder / "plots/costs.svg").is_file()
    assert f"earlier results, of other settings: {folder}" in first.out
    assert again.json["earlier"] is None


def test_settings_that_do_nothing_are_one_note(command: Callable[..., Outcome]) -> None:
    options = ("--basket", "4,60", "--chunk-tokens", "none,16", "--no-timing")
    rows = command(*options, "--json").json["rows"]
    # The documents have 30 words and separators: less than one basket of 60.
    idle = {row["setting"] for row in rows if row["same_as_plain"]}
    assert idle == {
        f"b60-l{layers}-s{s}{end}" for layers in ("last", 2) for s in (0.5, 1) for end in ("", "@16")
    }
    out = command(*options).out
    assert "b60-" not in out
    assert "8 settings do nothing and have no row" in out


def test_plain_and_what_is_configured_have_rows_however_bad(
    command: Callable[..., Outcome], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pipeline.cli.sweep_report._ROWS_SHOWN", 0)
    configured = [f"--set=arms.calibrated.{value}" for value in ("basket_size=8", "layers=2", "strength=1")]
    out = command("--no-timing", *configured).out
    table = out.partition("no other setting")[0]
    shown = [
        line.removeprefix("* ").split()[0] for line in table.splitlines() if "plain" in line or "-l" in line
    ]
    assert sorted(shown) == ["b8-l2-s1", "plain"]
    assert "7 more" in out


def test_few_questions_and_many_settings_are_called_luck(command: Callable[..., Outcome]) -> None:
    out = " ".join(command("--no-timing").out.split())
    assert "the best of 9 settings on 108 questions is best partly by luck" in out


def test_a_mass_that_the_model_has_not_is_refused(command: Callable[..., Outcome], tmp_path: Path) -> None:
    refused = command("--mass", "equal,original")
    assert refused.code == 2
    assert "pools by the mean, so that no special token is isolated" in refused.err
    assert not (tmp_path / "out").exists()


def test_without_positions_there_is_no_psi(
    lastpage: Callable[..., Outcome], model: Path, tmp_path: Path
) -> None:
    corpus = [document(f"d{n}", f"the cat {'alpha ' * n}") for n in range(3)]
    queries = [query(f"q{n}", f"cat {'alpha ' * n}", None, None) for n in range(3)]
    posir(tmp_path / "bare", corpus, queries, [qrel(f"q{n}", f"d{n}") for n in range(3)])
    out = lastpage(
        "sweep", "--data", tmp_path / "bare", "--model", model, "--out", tmp_path / "out", "--quiet",
        "--set", "model.max_length=64", "--set", "evaluate.rounds=100",
        "--basket", "4", "--strength", "1", "--layers", "last", "--no-timing",
    ).out  # fmt: skip
    words = " ".join(out.split())
    assert "nothing is known of where answers stand" in words
    assert "there are only 3 independent clusters" in words
    (plain,) = (line for line in out.splitlines() if "plain" in line.split())
    assert plain.split()[-4:-1] == ["\N{EN DASH}"] * 3


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("--basket", "4,x"),
        ("--strength", "1.5"),
        ("--layers", "first"),
        ("--mass", "2"),
        ("--chunk-tokens", "0"),
    ],
)
def test_values_that_do_not_fit_are_named(command: Callable[..., Outcome], option: str, value: str) -> None:
    refused = command(option, value)

    assert refused.code == 2
    assert f"{value.split(',')[-1]!r}: expected" in refused.err
