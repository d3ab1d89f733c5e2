"""A diagnosis in plain words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from statistics import fmean

from pipeline.diagnostics.fidelity import Fidelity
from pipeline.diagnostics.regression import Coefficient
from pipeline.diagnostics.results import EVERY_PAIR, Counts, Diagnosis, Measure

_ORDINALS = ("1st", "2nd", "3rd", "4th", "5th", "6th")
_SUBJECTS: dict[Measure, str] = {
    "sigma": "In the document's vector",
    "tau": "In its contextual tokens",
}
PROXY = (
    "A cosine says how near vectors are, not whether a query finds the text: a fall in sigma shows that a "
    "place is represented less, not how many answers are lost by it. For that, measure retrieval on queries "
    "whose answers' places are known (`lastpage evaluate`)."
)


def counted(counts: Counts) -> str:
    """The documents in one line."""
    orders = (
        f"{counts.orders} orders"
        if counts.orders == counts.all_orders
        else (f"{counts.orders} of {counts.all_orders} orders (balanced)")
    )
    n_pairs = len(counts.pairs)
    languages = f" x {n_pairs} language pairs" if n_pairs > 1 else ""
    return (
        f"{counts.sets:,} segment sets x {orders}{languages} = {counts.documents:,} documents, "
        f"{counts.tokens:,} tokens, the longest {counts.longest:,} of {counts.max_length:,}"
    )


def sentences(diagnosis: Diagnosis) -> tuple[str, ...]:
    """What was found, one sentence each.

    Within a pair of two languages place and language go together, so that only the regression over all pairs
    can tell them apart: such pairs have no sentence of their own.
    """
    languages = diagnosis.settings["languages"] or [""]
    return (
        *(_of_places(diagnosis, measure, language) for measure in _SUBJECTS for language in languages),
        *(_of_languages(diagnosis, measure) for measure in _SUBJECTS if len(languages) > 1),
        *(_of_levels(diagnosis, language) for language in languages),
        *_of_attention(diagnosis),
        *_of_fidelity(diagnosis),
        *_cautions(diagnosis),
    )


def number(value: float) -> str:
    """Three decimals without the leading zero, as similarities are written."""
    return f"{value:.3f}".replace("0.", ".", 1) if abs(value) < 1 else f"{value:.3f}"


def interval(low: float, high: float) -> str:
    """A 95 % interval."""
    return f"[{number(low)}, {number(high)}]"


def _of_places(diagnosis: Diagnosis, measure: Measure, pair: str) -> str:
    """The last place against the first, in every arm."""
    last = diagnosis.settings["n"]
    arms = [f"{arm}: {_change(diagnosis.fit(measure, arm, pair).at(last))}" for arm in diagnosis.arms]
    where = f" ({pair})" if pair else ""
    return (
        f"{_SUBJECTS[measure]}{where}, the {_ORDINALS[last - 1]} segment against the 1st ({measure}): "
        f"{'; '.join(arms)}."
    )


def _of_languages(diagnosis: Diagnosis, measure: Measure) -> str:
    """Languages against the first one, at the first place, over all language pairs."""
    first = diagnosis.settings["languages"][0]
    arms = []
    for arm in diagnosis.arms:
        terms = diagnosis.fit(measure, arm, EVERY_PAIR).coefficients
        changes = [f"{each.language} {_change(each)}" for each in terms if each.term == each.language]
        arms.append(f"{arm}: {', '.join(changes)}")
    return f"Language against {first} at the 1st place, over all pairs ({measure}): {'; '.join(arms)}."


def _of_levels(diagnosis: Diagnosis, pair: str) -> str:
    """Evenness can be had by raising the end or by lowering the beginning: say which it was."""
    levels = []
    for arm in diagnosis.arms:
        means = [place.mean for place in diagnosis.profile("sigma", arm, pair).places]
        levels.append(f"{arm}: {number(means[0])}, {number(means[-1])}, {number(fmean(means))}")
    where = f" ({pair})" if pair else ""
    return f"Sigma{where} at the first place, at the last and on average: {'; '.join(levels)}."


def _change(coefficient: Coefficient) -> str:
    low, high = coefficient.low, coefficient.high
    if low <= 0 <= high:
        return f"no clear difference, {number(coefficient.estimate)} {interval(low, high)}"
    if coefficient.estimate < 0:
        return f"loses {number(-coefficient.estimate)} {interval(-high, -low)}"
    return f"gains {number(coefficient.estimate)} {interval(low, high)}"


def _of_attention(diagnosis: Diagnosis) -> Iterator[str]:
    if diagnosis.attention:
        loads = "; ".join(f"{each.arm}: {number(each.front_loading)}" for each in diagnosis.attention)
        yield (
            "Front-loading of attention in the last layer (share of the first third less share of the last "
            f"third, between first and last token): {loads}."
        )
    known = [each for each in diagnosis.links if each.correlation is not None]
    if known:
        links = "; ".join(
            f"{each.arm}: r = {number(each.correlation or 0.0)}"
            + (f" {interval(each.low, each.high)}" if each.low is not None and each.high is not None else "")
            for each in known
        )
        yield (
            f"Over {known[0].n_documents} documents, front-loading goes with the front bias of sigma "
            f"(first place less last) as {links}."
        )


def _of_fidelity(diagnosis: Diagnosis) -> Iterator[str]:
    plain = diagnosis.fidelity[0]
    for each in diagnosis.fidelity[1:]:
        yield (
            f"{each.arm} stays near plain: cosine {number(each.documents)} on documents (lowest "
            f"{number(each.documents_lowest)}), {number(each.segments)} on segments."
        )
        yield (
            f"A segment's own sentence finds it first in {100 * each.first_rank:.1f} % of {each.n_queries:,} "
            f"queries with {each.arm}, {100 * plain.first_rank:.1f} % plainly; mean reciprocal rank "
            f"{number(each.reciprocal_rank)} and {number(plain.reciprocal_rank)}."
        )
    if diagnosis.fidelity[1:]:
        yield _short_texts(diagnosis.fidelity[1:])


def _short_texts(calibrated: Sequence[Fidelity]) -> str:
    if not calibrated[0].n_short:
        return "No text is shorter than one basket."
    texts = f"{calibrated[0].n_short:,} sentences and segments shorter than one basket"
    largest = max(each.short_difference for each in calibrated)
    if largest == 0.0:
        return f"The {texts} have the same vectors in every arm."
    return f"The vectors of {texts} differ between arms by up to {largest:.1e}."


def _cautions(diagnosis: Diagnosis) -> Iterator[str]:
    caution = diagnosis.fits[0].fit.caution
    if caution is not None:
        yield f"Caution: {caution}."
