"""Encoders with arms: the same weights, plainly and with calibrated attention.

    from pipeline.encoders import Calibration, Encoder

    encoder = Encoder.load("all-MiniLM-L6-v2", arms={"plain": None, "calibrated": Calibration()})
    documents = encoder.encode_documents(["a long text …", "another …"])

Names are imported on first use: what only asks for a model's files need not wait for torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipeline.encoders.calibration import Calibration, Pooling
    from pipeline.encoders.encoder import Encoder
    from pipeline.encoders.loading import load_model
    from pipeline.encoders.wrapper import calibrate
    from pipeline.errors import NonFiniteVectorsError

__all__ = ["Calibration", "Encoder", "NonFiniteVectorsError", "Pooling", "calibrate", "load_model"]

_HOMES = {
    "Calibration": "pipeline.encoders.calibration",
    "Encoder": "pipeline.encoders.encoder",
    "NonFiniteVectorsError": "pipeline.errors",
    "Pooling": "pipeline.encoders.calibration",
    "calibrate": "pipeline.encoders.wrapper",
    "load_model": "pipeline.encoders.loading",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
