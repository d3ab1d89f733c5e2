"""What a vector is: its text and everything that decides how it is embedded, nothing else."""

from __future__ import annotations

from pipeline.artifacts import fingerprint
from pipeline.config import ArmSettings, ModelSettings


def embedding_identity(model_fingerprint: str, model: ModelSettings, arm: ArmSettings) -> str:
    """Hash what decides a vector besides its text; settings that cannot change a vector are left out."""
    calibration = arm.model_dump(mode="json") if arm.strength > 0 else None
    decisive = model.model_dump(
        mode="json", include={"max_length", "truncate_dim", "document_prompt", "dtype"}
    )
    return fingerprint({"model": model_fingerprint, "settings": decisive, "calibration": calibration})
