from __future__ import annotations

import pytest

from indexes import ImpossibleIndexError, IndexSpec, resolve_spec
from indexes.spec import AUTO_IVF_MIN_ROWS


@pytest.mark.parametrize(
    "factory",
    [
        "auto",
        "Flat",
        "SQ8",
        "SQfp16",
        "PQ8",
        "PQ8x4",
        "IVF64,Flat",
        "IVF64,PQ8x4",
        "HNSW32",
        "HNSW32,Flat",
        "HNSW2,SQ8",
    ],
)
def test_accepts_supported_factories(factory: str) -> None:
    assert IndexSpec(factory).factory == factory


@pytest.mark.parametrize("factory", ["", "  ", "Flat\n", "IVF٣,Flat"])
def test_refuses_what_cannot_be_a_factory(factory: str) -> None:
    with pytest.raises(ImpossibleIndexError, match="expected a FAISS factory string"):
        IndexSpec(factory)


def test_lists_are_counted_behind_a_transformation() -> None:
    spec = IndexSpec("OPQ4,IVF64,PQ4", nprobe=8)
    assert (spec.is_known, spec.n_lists, spec.n_probes, spec.is_trained) == (False, 64, 8, True)
    with pytest.raises(ImpossibleIndexError, match=r"64 inverted lists .* there are 10"):
        resolve_spec(spec, n_rows=10, dim=8)


@pytest.mark.parametrize(
    ("factory", "setting", "message"),
    [
        ("Flat", {"nprobe": 4}, "nprobe = 4 needs an IVF factory, got 'Flat'"),
        ("IVF8,Flat", {"ef_search": 4}, "ef_search = 4 needs an HNSW factory"),
        ("IVF8,Flat", {"nprobe": 0}, "at least 1, got 0"),
        ("IVF8,Flat", {"nprobe": 9}, "nprobe = 9 exceeds the 8 lists"),
        ("HNSW8", {"ef_search": -1}, "at least 1, got -1"),
    ],
)
def test_refuses_search_settings_that_do_not_apply(
    factory: str, setting: dict[str, int], message: str
) -> None:
    with pytest.raises(ImpossibleIndexError, match=message):
        IndexSpec(factory, **setting)


def test_parts_of_a_factory() -> None:
    spec = IndexSpec("IVF64,PQ8x4", nprobe=5)
    assert (spec.n_lists, spec.n_subspaces, spec.n_centroids, spec.n_probes) == (64, 8, 16, 5)
    assert IndexSpec("PQ8").n_centroids == 256
    assert IndexSpec("IVF64,Flat").n_probes == 4
    assert IndexSpec("IVF8,Flat").n_probes == 1


@pytest.mark.parametrize("n_rows", [1, 10, 300])
def test_automatic_choice_falls_back_to_flat_and_says_so(n_rows: int) -> None:
    resolved = resolve_spec(IndexSpec("auto", nprobe=4), n_rows=n_rows, dim=8)
    assert resolved.spec == IndexSpec("Flat")
    assert f"{n_rows} rows" in resolved.note
    assert str(AUTO_IVF_MIN_ROWS) in resolved.note


def test_automatic_choice_has_enough_rows_to_train_its_lists() -> None:
    for n_rows in (AUTO_IVF_MIN_ROWS, 1_000_000, 50_000_000):
        spec = resolve_spec(IndexSpec("auto"), n_rows=n_rows, dim=8).spec
        assert spec.n_lists is not None
        assert spec.n_lists * 39 <= n_rows  # what FAISS asks for
    assert resolve_spec(IndexSpec("auto"), n_rows=1_000_000, dim=8).spec.factory == "IVF4096,Flat"


@pytest.mark.parametrize(
    ("factory", "n_rows", "numbers"),
    [("IVF256,Flat", 1, ("256", "1")), ("IVF256,Flat", 255, ("256", "255")), ("PQ4", 10, ("256", "10"))],
)
def test_impossible_requests_fail_with_both_numbers(
    factory: str, n_rows: int, numbers: tuple[str, str]
) -> None:
    with pytest.raises(ImpossibleIndexError) as failure:
        resolve_spec(IndexSpec(factory), n_rows=n_rows, dim=8)
    assert f"trains {numbers[0]} " in str(failure.value)
    assert f"there are {numbers[1]};" in str(failure.value)


def test_product_quantisation_must_divide_the_dimension() -> None:
    with pytest.raises(ImpossibleIndexError, match="5 equal parts, but the dimension is 8"):
        resolve_spec(IndexSpec("PQ5"), n_rows=1000, dim=8)


@pytest.mark.parametrize("factory", ["auto", "IVF256,Flat", "PQ4", "HNSW8"])
def test_no_rows_give_a_flat_index_and_a_note(factory: str) -> None:
    resolved = resolve_spec(IndexSpec(factory), n_rows=0, dim=8)
    assert resolved.spec == IndexSpec("Flat")
    assert factory in resolved.note


def test_an_explicit_request_stays_as_it_is() -> None:
    spec = IndexSpec("IVF256,Flat", nprobe=7)
    resolved = resolve_spec(spec, n_rows=256, dim=8)
    assert (resolved.spec, resolved.note) == (spec, "")
