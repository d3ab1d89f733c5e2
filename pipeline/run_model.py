"""The model that a configuration names: its files, its identity, and the encoder once somebody needs it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.embedding import Engine, LocalEngine, ShardFolder, embedding_identity
from pipeline.embedding.loading import load_encoder, load_in_worker, load_on_node

if TYPE_CHECKING:
    from pipeline.config import Config
    from pipeline.encoders import Encoder
    from pipeline.reporting import Reporter


class RunModel:
    """The model of one configuration; found, hashed and loaded at most once, and only when asked for."""

    def __init__(self, config: Config, reporter: Reporter) -> None:
        self._config = config
        self._reporter = reporter

    @cached_property
    def folder(self) -> Path:
        """Where the model's files are."""
        from pipeline.encoders.model_files import find_model

        return find_model(self._config.model.name, self._config.model.revision)

    @cached_property
    def fingerprint(self) -> str:
        """The model's files by content."""
        from pipeline.encoders.model_files import model_fingerprint

        return model_fingerprint(self.folder)

    @cached_property
    def encoder(self) -> Encoder:
        """The encoder with all arms of the configuration."""
        self._reporter.say(f"loading model {self._config.model.name}")
        return load_encoder(self._config, self.folder)

    def release(self) -> None:
        """Let go of the encoder's memory; it is loaded again if somebody needs it."""
        self.__dict__.pop("encoder", None)

    def identities(self) -> dict[str, str]:
        """The embedding identity of each arm."""
        return {
            name: embedding_identity(self.fingerprint, self._config.model, arm)
            for name, arm in self._config.arms.items()
        }


def choose_engine(
    config: Config, model: RunModel, folders: Mapping[str, ShardFolder], *, n_shards: int
) -> Engine:
    """Take the engine that the settings name, with no more workers than there are shards to make."""
    settings, folder = config.embed, model.folder.absolute()
    workers = min(settings.workers, n_shards)
    if settings.engine == "local" and workers == 1:
        return LocalEngine(model.encoder, folders)
    # The workers load encoders of their own; this one would only take up memory meanwhile.
    model.release()
    if settings.engine == "ray":
        from pipeline.embedding.on_ray import RayEngine

        load = partial(load_on_node, config, folder, model.fingerprint)
        return RayEngine(load, folders, workers, settings.device)
    from pipeline.embedding.workers import WorkersEngine

    return WorkersEngine(partial(load_in_worker, config, folder), folders, workers)
