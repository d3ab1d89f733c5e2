"""The build that serves: opened beside the old one, swapped in one step, held to each request's end."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from indexes import BuildManifest, BuildStore, IndexesError, OpenBuild
from pipeline.ab import ABSearcher
from pipeline.ab.filters import MetadataFilter
from pipeline.ab.opening import explain_settings, model_folder, open_run_build
from pipeline.artifacts import fingerprint
from pipeline.config import ArmSettings, ModelSettings, ServeSettings
from pipeline.embedding.loading import as_calibration, model_options
from pipeline.encoders.calibration import Calibration
from pipeline.encoders.loading import load_model
from pipeline.errors import DataError, LastpageError
from pipeline.serving.encoding import EncodingThread, QueryBatcher, SharedEncoder
from pipeline.serving.metrics import Metrics

_log = logging.getLogger("lastpage.serve")

# A build that could not be opened is tried again: what kept it may have been the machine's.
_RETRY_SECONDS = 60.0


@dataclass(slots=True, eq=False)
class ServedModel:
    """A loaded model with its thread; builds that differ in nothing that it embeds by share it.

    Attributes:
        key: what it is, for builds that could share it.
        encoder: embeds.
        n_leases: requests that use it now, through whichever build.
    """

    key: str
    encoder: SharedEncoder
    n_leases: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class ServedBuild:
    """A build that answers.

    Attributes:
        searcher: asks it.
        filters: its documents' metadata.
        manifest: what it was made of.
        model: what embeds for it.
        batcher: embeds questions.
        calibrations: of its arms.
    """

    searcher: ABSearcher
    filters: MetadataFilter
    manifest: BuildManifest
    model: ServedModel
    batcher: QueryBatcher
    calibrations: dict[str, Calibration | None]

    @property
    def build_id(self) -> str:
        """Its id, which every answer bears."""
        return self.manifest.build_id

    @property
    def application(self) -> dict[str, Any]:
        """What the pipeline noted about it."""
        return dict(self.manifest.application)


@dataclass(frozen=True, slots=True)
class FailedBuild:
    """A new build that could not be opened, so that the old one goes on."""

    build_id: str
    error: str
    tried_at: float = field(default_factory=time.monotonic)


class BuildKeeper:
    """Opens the current build of a run directory, and each one that takes its place.

    `lease` and the swap happen on the event loop, so that they need no lock; opening happens on a thread.
    """

    def __init__(
        self,
        run: Path,
        settings: ServeSettings,
        metrics: Metrics,
        *,
        n_under_way: Callable[[], int],
        model: str | None = None,
        device: str = "auto",
    ) -> None:
        """Open the current build; this takes as long as loading the model.

        Args:
            run: the run directory.
            settings: of the service.
            metrics: told of each build.
            n_under_way: how many requests there are, for the batching of their questions.
            model: where the model's files are now, if they have moved since; for a build that was made with
                other files the model that it names is looked for, and the log says so.
            device: where texts are embedded.

        Raises:
            UsageError: nothing has been indexed there yet.
            DataError: the model's files are not those that the index was made with.
            InvalidIndexError: the build is damaged.
        """
        self._run = run
        self._settings = settings
        self._metrics = metrics
        self._n_under_way = n_under_way
        self._model_path = model
        self._device = device
        self._store = BuildStore(run)
        self.failed: FailedBuild | None = None
        self._current = self._open(None, None)
        self._announce()

    @property
    def current(self) -> ServedBuild:
        """The build that serves now; use `lease` to ask it."""
        return self._current

    @contextmanager
    def lease(self) -> Iterator[ServedBuild]:
        """Hold the build that serves now until the end of a request."""
        served = self._current
        served.model.n_leases += 1
        try:
            yield served
        finally:
            served.model.n_leases -= 1
            self._release(served.model)

    def build_ids(self) -> tuple[str, ...]:
        """The ids of all builds of the run, oldest first."""
        return self._store.build_ids()

    async def watch(self) -> None:
        """Look for a new build, again and again."""
        while True:
            await asyncio.sleep(self._settings.poll_seconds)
            await self.refresh()

    async def refresh(self) -> None:
        """Take a new build into service, if there is one. If it cannot be opened, the old one stays."""
        wanted = "?"
        try:
            pointed = await asyncio.to_thread(self._store.current_id)
            wanted = pointed or self._current.build_id
            if wanted == self._current.build_id:
                self.failed = None  # rolled back, or published anew: nothing is amiss any more
            elif self._is_due(wanted):
                self._swap(await asyncio.to_thread(self._open, wanted, self._current))
        except (LastpageError, IndexesError, OSError) as error:
            self._note_failure(wanted, error)
        except Exception as error:
            _log.exception("a new build could not be opened", extra={"event": "build_failed"})
            self._note_failure(wanted, error)

    def close(self) -> None:
        """End the encoding thread when its jobs are done."""
        self._current.model.encoder.thread.close()

    def _is_due(self, build_id: str) -> bool:
        failed = self.failed
        is_new = failed is None or failed.build_id != build_id
        return is_new or (failed is not None and time.monotonic() - failed.tried_at > _RETRY_SECONDS)

    def _note_failure(self, build_id: str, error: Exception) -> None:
        is_known = self.failed is not None and self.failed.build_id == build_id
        if build_id == "?" and is_known:
            return  # the pointer cannot be read; said once
        self.failed = FailedBuild(build_id, str(error))
        self._metrics.builds_failed.inc()
        _log.error(str(error), extra={"event": "build_failed", "build_id": build_id})

    def _swap(self, new: ServedBuild) -> None:
        old, self._current = self._current, new
        self.failed = None
        self._announce()
        self._release(old.model)

    def _announce(self) -> None:
        served = self._current
        model = str(served.application["model"]["name"])
        n_documents = served.searcher.n_documents
        self._metrics.serve_build(served.build_id, model=model, n_documents=n_documents)
        _log.info("build serves", extra={"event": "build", "build_id": served.build_id})

    def _release(self, model: ServedModel) -> None:
        """End the thread of a model that neither the current build nor a request needs any more."""
        if model is not self._current.model and not model.n_leases:
            model.encoder.thread.close()

    def _open(self, build_id: str | None, current: ServedBuild | None) -> ServedBuild:
        build = open_run_build(self._run, build_id)
        filters = MetadataFilter(build)
        arms: Any = build.build.manifest.application["arms"]
        calibrations = {name: as_calibration(ArmSettings.model_validate(arm)) for name, arm in arms.items()}
        key = _model_key(build)
        is_shared = current is not None and current.model.key == key
        model = current.model if current is not None and is_shared else self._load(build, key, calibrations)
        searcher = ABSearcher(
            build,
            model.encoder,
            explain_settings(self._run),
            cache=current.searcher.cache if current is not None and is_shared else None,
        )
        _touch(build, searcher)
        batcher = self._batcher(model, searcher)
        return ServedBuild(searcher, filters, build.build.manifest, model, batcher, calibrations)

    def _load(self, build: OpenBuild, key: str, calibrations: dict[str, Calibration | None]) -> ServedModel:
        settings = ModelSettings.model_validate(build.build.manifest.application["model"])
        loaded = load_model(self._model_folder(build), device=self._device, **model_options(settings))
        n_tokens = self._settings.encode_tokens
        encoder = SharedEncoder(loaded, calibrations, thread=EncodingThread(), tokens_per_slice=n_tokens)
        return ServedModel(key, encoder)

    def _model_folder(self, build: OpenBuild) -> Path:
        """Find the model where it was said to be; a build made with another one since names its own."""
        try:
            return model_folder(build, self._model_path)
        except DataError as error:
            if self._model_path is None:
                raise
            try:
                folder = model_folder(build)
            except LastpageError:
                raise error from None
            message = f"--model {self._model_path} does not fit build {build.build.build_id}; using {folder}"
            _log.warning(message, extra={"event": "model", "build_id": build.build.build_id})
            return folder

    def _batcher(self, model: ServedModel, searcher: ABSearcher) -> QueryBatcher:
        return QueryBatcher(
            model.encoder.thread,
            searcher.encode,
            wait_seconds=self._settings.encode_wait_ms / 1000,
            max_tokens=self._settings.encode_tokens,
            expected=self._n_under_way,
            on_batch=self._metrics.queries_per_batch.observe,
        )


def _model_key(build: OpenBuild) -> str:
    """Name a loaded model: its files by content, how they are used, and the arms that it was proved with."""
    application = build.build.manifest.application
    return fingerprint([application[part] for part in ("model_fingerprint", "model", "arms")])


def _touch(build: OpenBuild, searcher: ABSearcher) -> None:
    """Open every file of the build now: its folder may be pruned while it still answers."""
    if build.rows.n_documents:
        searcher.document(build.rows.doc_id(0))
