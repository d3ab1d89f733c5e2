"""Encoders with arms: the same weights, plainly and with calibrated attention.

    from pipeline.encoders import Calibration, Encoder

Names are imported on first use: what only asks for a model's files need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.encoders.calibration import Calibration, Pooling
    from pipeline.encoders.encoder import Encoder
    from pipeline.encoders.loading import load_model

__all__ = ["Calibration", "Encoder", "Pooling", "load_model"]

_HOMES = {"Calibration": "calibration", "Encoder": "encoder", "Pooling": "calibration", "load_model": "loading"}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
