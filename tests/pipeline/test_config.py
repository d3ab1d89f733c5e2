"""Settings: what is accepted, what is refused, and how the refusal reads."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from pipeline.config import Config, load_config
from pipeline.errors import UsageError
from tests.conftest import REPOSITORY

CONFIGS = sorted((REPOSITORY / "configs").glob("*.toml"))


def test_default_file_and_defaults_in_code_agree() -> None:
    assert load_config(REPOSITORY / "configs" / "default.toml") == Config()


def test_default_file_shows_every_key() -> None:
    """Each setting stands in the file, in force or commented out with an example."""
    text = (REPOSITORY / "configs" / "default.toml").read_text(encoding="utf-8")
    shown = tomllib.loads(
        "\n".join(line.removeprefix("# ") if _is_example(line) else line for line in text.splitlines())
    )
    for section, field in Config.model_fields.items():
        annotation = field.annotation
        if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
            assert set(shown[section]) == set(annotation.model_fields), section
    arm = Config.model_fields["arms"].get_default(call_default_factory=True)["calibrated"]
    assert set(shown["arms"]["calibrated"]) == set(type(arm).model_fields)


def _is_example(line: str) -> bool:
    key, equals, _ = line.removeprefix("# ").partition(" = ")
    return line.startswith("# ") and bool(equals) and key.isidentifier()


@pytest.mark.parametrize("path", CONFIGS, ids=lambda path: path.name)
def test_shipped_configs_are_valid(path: Path) -> None:
    config = load_config(path)
    assert next(iter(config.arms)) == "plain"
    assert config.arms["plain"].strength == 0.0


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("chunk.max_token", 5, "chunk.max_token: unknown key; did you mean 'max_tokens'?"),
        ("modle.name", "x", "modle: unknown key; did you mean 'model'?"),
        ("arms.calibrated.strenght", 0.5, "arms.calibrated.strenght: unknown key; did you mean 'strength'?"),
        ("chunk.zzz", 5, "chunk.zzz: unknown key; known keys: strategy, max_tokens, overlap_tokens"),
        ("arms.calibrated.strength", 1.5, "less than or equal to 1 (got 1.5)"),
        ("chunk.max_tokens", 0, "greater than or equal to 1 (got 0)"),
        ("model.dtype", "float8", "'float32', 'float16' or 'bfloat16' (got 'float8')"),
        ("arms.a/b.strength", 0.5, "arm name 'a/b'"),
        ("run.x", 1, "run: "),
    ],
)
def test_refusals_name_the_key_and_the_way_out(key: str, value: Any, message: str) -> None:
    with pytest.raises(UsageError) as refusal:
        load_config(None, {key: value})
    assert message in str(refusal.value)


@pytest.mark.parametrize(("overlap", "budget"), [(8, 8), (9, 8)])
def test_overlap_must_leave_room(overlap: int, budget: int) -> None:
    with pytest.raises(
        UsageError, match=f"overlap_tokens = {overlap} must be smaller than max_tokens = {budget}"
    ):
        load_config(None, {"chunk.overlap_tokens": overlap, "chunk.max_tokens": budget})


@pytest.mark.parametrize(
    ("content", "message"),
    [(b"run = ", "not valid TOML"), (b"\xff\xfe", "cannot be read"), (None, "no such configuration file")],
)
def test_unreadable_files_are_named(tmp_path: Path, content: bytes | None, message: str) -> None:
    path = tmp_path / "run.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UsageError, match=message) as refusal:
        load_config(path)
    assert str(path) in str(refusal.value)


def test_overrides_win_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("\ufeff[chunk]\nmax_tokens = 100\noverlap_tokens = 3\n", encoding="utf-8")
    config = load_config(path, {"chunk.max_tokens": 50})
    assert (config.chunk.max_tokens, config.chunk.overlap_tokens) == (50, 3)


def test_a_typing_error_in_an_arm_makes_no_further_arm() -> None:
    with pytest.raises(UsageError, match="did you mean 'calibrated'"):
        load_config(None, {"arms.calibratd.strength": 0.7})


def test_options_may_add_arms_that_differ_in_a_number() -> None:
    config = load_config(None, {"arms.strong-1.strength": 0.7, "arms.strong-2.strength": 0.9})
    assert list(config.arms) == ["plain", "calibrated", "strong-1", "strong-2"]
