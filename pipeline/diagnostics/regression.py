"""Ordinary least squares of a similarity on position: what does standing at a place cost?

`value ~ position`, or `value ~ position * language` where documents mix languages; both are categorical and
compared with the first place (and the first language). The documents of a segment set share its content, so
standard errors are clustered by set, and intervals take Student's t with (sets - 1) degrees of freedom.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import statsmodels.api as sm
from numpy.typing import NDArray
from scipy.stats import t as student

from pipeline.diagnostics.similarity import CONFIDENCE

Values = NDArray[np.float64]

FEW_SETS = 10


@dataclass(frozen=True, slots=True)
class Coefficient:
    """One term of a fit.

    Attributes:
        position: counted from 1; None for a language by itself.
        language: None for a position by itself.
        estimate: in units of the cosine.
        low, high: 95 % interval.
        p: of the estimate being 0.
    """

    position: int | None
    language: str | None
    estimate: float
    low: float
    high: float
    p: float

    @property
    def term(self) -> str:
        """How it is called in tables; the intercept is the first place in the first language."""
        parts = [f"position {self.position}" if self.position is not None else None, self.language]
        return " x ".join(part for part in parts if part is not None) or "intercept"


@dataclass(frozen=True, slots=True)
class Fit:
    """A regression.

    Attributes:
        coefficients: the intercept first.
        n_rows: values.
        n_sets: clusters.
        r_squared: share of the variance that position (and language) explain.
    """

    coefficients: tuple[Coefficient, ...]
    n_rows: int
    n_sets: int
    r_squared: float

    @property
    def caution(self) -> str | None:
        """What to say where there are few clusters."""
        if self.n_sets >= FEW_SETS:
            return None
        return (
            f"only {self.n_sets} segment sets: intervals by t with {self.n_sets - 1} degrees of freedom, "
            "and probably still too narrow"
        )

    def at(self, position: int) -> Coefficient:
        """The coefficient of a place against the first, in the first language."""
        return next(each for each in self.coefficients if (each.position, each.language) == (position, None))


def fit_positions(
    values: NDArray[np.floating], sets: Sequence[str], languages: Sequence[Sequence[str]] | None = None
) -> Fit:
    """Fit similarities on their places.

    Args:
        values: (documents, places).
        sets: (documents,), the segment set of each.
        languages: (documents, places), the language at each place; None leaves language out.
    """
    n_documents, n_places = values.shape
    places = np.tile(np.arange(n_places), n_documents)
    spoken = np.array(languages).ravel() if languages is not None else np.full(values.size, "")
    names = list(dict.fromkeys(spoken.tolist()))
    terms = [(place, name) for name in names for place in range(n_places)]
    columns = [_column(places, spoken, place, name, names[0]) for place, name in terms]
    clusters = np.repeat(np.unique(np.array(sets), return_inverse=True)[1], n_places)
    design = np.column_stack(columns)
    fitted = sm.OLS(values.astype(np.float64).ravel(), design).fit(
        cov_type="cluster", cov_kwds={"groups": clusters, "df_correction": True}, use_t=True
    )
    errors = np.sqrt(np.diag(fitted.cov_params()).clip(min=0.0))  # rounding can leave -1e-33 for a zero
    margins = student.ppf((1 + CONFIDENCE) / 2, fitted.df_resid_inference) * errors
    coefficients = tuple(
        Coefficient(
            position=place + 1 if place else None,
            language=name if name != names[0] else None,
            estimate=float(estimate),
            low=float(estimate - margin),
            high=float(estimate + margin),
            p=_p_value(float(estimate), float(error), fitted.df_resid_inference),
        )
        for (place, name), estimate, margin, error in zip(terms, fitted.params, margins, errors, strict=True)
    )
    explained = float(fitted.rsquared) if np.ptp(values) > 0 else 0.0
    return Fit(coefficients, int(values.size), int(clusters.max()) + 1, explained)


def _p_value(estimate: float, error: float, degrees: float) -> float:
    """Two-sided; what does not scatter at all (an arm that changes nothing) is certain either way."""
    if error == 0.0:
        return float(estimate == 0.0)
    return float(2 * student.sf(abs(estimate) / error, degrees))


def _column(places: NDArray[np.intp], spoken: NDArray[np.str_], place: int, name: str, first: str) -> Values:
    """The dummy of a term; the reference of each factor is left out, the intercept is all ones."""
    column = np.ones(places.shape)
    if place:
        column *= places == place
    if name != first:
        column *= spoken == name
    return column
