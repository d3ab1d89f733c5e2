"""The model that a configuration names: its files, its identity, and the encoder once somebody needs it."""

from __future__ import annotations

from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from pipeline.embedding import embedding_identity
from pipeline.embedding.loading import load_encoder

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
