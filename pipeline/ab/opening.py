"""Open a run for queries: its build, the encoder that made it, and how it explains."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from indexes import BuildStore, NoBuildError, OpenBuild, open_build
from pipeline.artifacts import RunLayout, read_json
from pipeline.config import Config, ExplainSettings, ModelSettings
from pipeline.errors import DataError, UsageError

if TYPE_CHECKING:
    from pipeline.encoders import Encoder


def open_run_build(run: Path, build_id: str | None = None) -> OpenBuild:
    """Open the current build of a run directory, or the one that is named.

    Raises:
        UsageError: nothing has been indexed there yet.
        InvalidIndexError: the build is damaged.
        NoBuildError: there is no build of that name.
    """
    store = BuildStore(run)
    if build_id is not None:
        return open_build(store.get(build_id), verify=False)
    try:
        return open_build(store.current(), verify=False)
    except NoBuildError as error:
        raise UsageError(f"run {run}: nothing is indexed there yet; run `lastpage index` first") from error


def query_encoder(build: OpenBuild, *, model: str | None = None, device: str = "auto") -> Encoder:
    """Load the model that a build was made with, for queries and windows.

    Args:
        build: the build.
        model: where the model's files are now, if they have moved since; they must be the same files.
        device: where texts are embedded.

    Raises:
        DataError: the model's files are not those that the index was made with.
    """
    from pipeline.embedding.loading import model_options
    from pipeline.encoders import Encoder, load_model

    settings = ModelSettings.model_validate(build.build.manifest.application["model"])
    folder = model_folder(build, model)
    return Encoder(load_model(folder, device=device, **model_options(settings)), {"plain": None})


def model_folder(build: OpenBuild, model: str | None = None) -> Path:
    """Find the files of the model that a build was made with, where they were or where `model` says.

    Raises:
        DataError: the model's files are not those that the index was made with.
    """
    from pipeline.encoders.model_files import find_model, model_fingerprint

    application = build.build.manifest.application
    settings = ModelSettings.model_validate(application["model"])
    folder = find_model(model or settings.name, settings.revision)
    expected, got = application["model_fingerprint"], model_fingerprint(folder)
    if expected != got:
        raise DataError(
            f"the index was made with model {settings.name!r}, files {str(expected)[:12]}…, but {folder} "
            f"holds {got[:12]}…; give --model with the original files, or index again"
        )
    return folder


def explain_settings(run: Path) -> ExplainSettings:
    """How the last `lastpage index` of a run wanted movements to be explained."""
    return Config.model_validate(read_json(RunLayout(run).config) or {}).explain
