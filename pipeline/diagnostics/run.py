"""A diagnosis from settings to results: plan, embed, measure, fit, write; a killed run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.artifacts import DiagnosisFiles, RunLayout, run_lock, write_json
from pipeline.config import Config
from pipeline.diagnostics.attention_profile import link_to_similarity, summarise_attention
from pipeline.diagnostics.cache import ArrayCache
from pipeline.diagnostics.fidelity import control_fidelity, sentences_of
from pipeline.diagnostics.measuring import Measurements, embed_alone, measure
from pipeline.diagnostics.planning import DocumentPlan, plan_documents
from pipeline.diagnostics.regression import fit_positions
from pipeline.diagnostics.results import EVERY_PAIR, Diagnosis, Measure, NamedFit, Profile
from pipeline.diagnostics.rows import write_attention, write_similarities
from pipeline.diagnostics.settings import DiagnosisSettings
from pipeline.diagnostics.similarity import mean_by_place
from pipeline.embedding.identity import embedding_identity
from pipeline.embedding.loading import as_calibration, model_options
from pipeline.encoders.model_files import find_model, model_fingerprint
from pipeline.errors import UsageError
from pipeline.reporting import Reporter

if TYPE_CHECKING:
    from pipeline.encoders.contextual import ContextualEncoder

_MEASURES: tuple[Measure, ...] = ("sigma", "tau")


@dataclass(frozen=True, slots=True)
class Diagnoser:
    """A loaded encoder and the documents planned for it.

    Attributes:
        config: model, arms, corpus and run directory.
        settings: of the diagnosis.
        encoder: with all arms.
        identity: hash of what decides its vectors.
        plan: the documents.
    """

    config: Config
    settings: DiagnosisSettings
    encoder: ContextualEncoder
    identity: str
    plan: DocumentPlan

    @classmethod
    def prepare(cls, config: Config, settings: DiagnosisSettings) -> Diagnoser:
        """Load the model and plan the documents; nothing is embedded yet.

        Raises:
            DataError: model or corpus cannot be used.
            UsageError: the first arm is not plain, a calibration does not fit, or a language is missing.
        """
        first = next(iter(config.arms))
        if config.arms[first].strength > 0:
            raise UsageError(
                f"arm {first!r}: the first arm must be plain (strength = 0), all are compared with it"
            )
        folder = find_model(config.model.name, config.model.revision)
        encoder = _load(config, folder)
        files = model_fingerprint(folder)
        identities = [embedding_identity(files, config.model, arm) for arm in config.arms.values()]
        plan = plan_documents(encoder, config.corpus, settings)
        return cls(config, settings, encoder, "+".join(identities), plan)

    def run(self, reporter: Reporter) -> Diagnosis:
        """Measure and write everything into the run directory; what an earlier run measured is taken over."""
        layout = RunLayout(Path(self.config.run))
        files = DiagnosisFiles(layout.root)
        with run_lock(layout):
            cache = ArrayCache(files.cache, self.identity, reporter.say)
            diagnosis, measured = self._measure(cache, reporter)
            write_similarities(files.similarities, self.plan.documents, measured)
            # Those of an earlier run would stand beside figures that know nothing of them.
            for path in files.root.glob(f"{files.attention_plot.name}.*"):
                path.unlink()
            if measured.attention is not None:
                write_attention(files.attention, self.plan.documents, measured.arms, measured.attention)
            _write_presentation(diagnosis, files)
            write_json(files.results, diagnosis.as_json())
        return diagnosis

    def _measure(self, cache: ArrayCache, reporter: Reporter) -> tuple[Diagnosis, Measurements]:
        texts = [segment.text for document in self.plan.documents for segment in document.segments]
        segments = embed_alone(self.encoder, texts, cache, reporter, label="segments")
        # In the order of the rows, so that every run asks the same.
        cut = [sentence for sentence, _ in sentences_of(list(segments.row))]
        sentences = embed_alone(self.encoder, cut, cache, reporter, label="sentences")
        measured = measure(
            self.encoder,
            self.plan.documents,
            segments,
            cache,
            reporter,
            watched=self.settings.attention_documents,
            seed=self.settings.seed,
        )
        attention = measured.attention
        diagnosis = Diagnosis(
            model=self.config.model.name,
            source=str(self.config.corpus.source),
            settings=self.settings.model_dump(mode="json"),
            calibrations=_calibrations(self.config),
            counts=self.plan.counts,
            profiles=profiles(self.plan, measured),
            fits=fits(self.plan, measured),
            attention=summarise_attention(measured.arms, attention, self.encoder.attention_baskets)
            if attention is not None
            else (),
            links=link_to_similarity(measured, self.plan.sets, seed=self.settings.seed),
            fidelity=control_fidelity(self.encoder, measured, segments, sentences),
            cost=measured.cost,
        )
        return diagnosis, measured


def profiles(plan: DocumentPlan, measured: Measurements) -> tuple[Profile, ...]:
    """Average both similarities by place: every arm, every language pair."""
    found = []
    for pair in plan.pairs:
        rows = plan.rows_of(pair)
        sets = [plan.sets[row] for row in rows]
        for measure_name in _MEASURES:
            values = getattr(measured, measure_name)
            found += [
                Profile(measure_name, arm, pair.label, mean_by_place(values[number][rows], sets))
                for number, arm in enumerate(measured.arms)
            ]
    return tuple(found)


def fits(plan: DocumentPlan, measured: Measurements) -> tuple[NamedFit, ...]:
    """Regress both similarities on position: every arm and its difference from the plain one, every pair.

    With several languages also on position x language over all pairs.
    """
    found = []
    for measure_name in _MEASURES:
        values = getattr(measured, measure_name)
        for number, arm in enumerate(measured.arms):
            for minus in (None, measured.arms[0]) if number else (None,):
                own = values[number] if minus is None else values[number] - values[0]
                for pair in plan.pairs:
                    rows = plan.rows_of(pair)
                    fit = fit_positions(own[rows], [plan.sets[row] for row in rows])
                    found.append(NamedFit(measure_name, arm, minus, pair.label, fit))
                if len(plan.pairs) > 1:
                    spoken = [[segment.language for segment in each.segments] for each in plan.documents]
                    fit = fit_positions(own, plan.sets, spoken)
                    found.append(NamedFit(measure_name, arm, minus, EVERY_PAIR, fit))
    return tuple(found)


def _load(config: Config, folder: Path) -> ContextualEncoder:
    from pipeline.encoders.contextual import ContextualEncoder
    from pipeline.encoders.loading import load_model

    loaded = load_model(folder, device=config.embed.device, **model_options(config.model))
    arms = {name: as_calibration(arm) for name, arm in config.arms.items()}
    return ContextualEncoder(loaded, arms, tokens_per_batch=config.embed.tokens_per_batch)


def _calibrations(config: Config) -> dict[str, Mapping[str, Any] | None]:
    return {
        name: arm.model_dump(mode="json") if arm.strength > 0 else None for name, arm in config.arms.items()
    }


def _write_presentation(diagnosis: Diagnosis, files: DiagnosisFiles) -> None:
    from pipeline.diagnostics.plots import draw_plots
    from pipeline.diagnostics.section import write_page

    drawn = draw_plots(diagnosis, files)
    write_page(diagnosis, drawn, files)
