"""The encoder of a run: in this process, in a worker on this machine, or on a node of a cluster."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from pipeline.config import ArmSettings, Config, ModelSettings
from pipeline.errors import DataError

if TYPE_CHECKING:
    from pipeline.encoders import Calibration, Encoder


def load_encoder(config: Config, folder: Path, *, device: str | None = None) -> Encoder:
    """Load the configured model with all its arms, on the configured device or another one."""
    from pipeline.encoders import Encoder, load_model

    loaded = load_model(folder, device=device or config.embed.device, **model_options(config.model))
    arms = {name: as_calibration(arm) for name, arm in config.arms.items()}
    return Encoder(loaded, arms, tokens_per_batch=config.embed.tokens_per_batch)


def load_in_worker(config: Config, folder: Path, number: int) -> Encoder:
    """Load the encoder of worker `number` on this machine: one GPU a worker, where the device is CUDA.

    Raises:
        UsageError: there are more workers than GPUs.
    """
    from pipeline.encoders.loading import pick_device

    device = pick_device(config.embed.device)
    return load_encoder(config, folder, device=f"cuda:{number}" if device == "cuda" else device)


def load_on_node(config: Config, folder: Path, model_fingerprint: str) -> Encoder:
    """Load the encoder on a node of a cluster, from the same folder or from the node's own copy.

    Raises:
        DataError: the node has other model files; its vectors would be stored under a false identity.
    """
    from pipeline.encoders.model_files import find_model
    from pipeline.encoders.model_files import model_fingerprint as fingerprint_of

    found = folder if folder.is_dir() else find_model(config.model.name, config.model.revision)
    here = fingerprint_of(found)
    if here != model_fingerprint:
        raise DataError(
            f"model {found}: expected files with fingerprint {model_fingerprint[:12]}…, but this node's have "
            f"{here[:12]}…; put the same model on every node"
        )
    return load_encoder(config, found)


def model_options(settings: ModelSettings) -> dict[str, Any]:
    """The settings that `load_model` takes as they are."""
    return settings.model_dump(exclude={"name", "revision"})


def as_calibration(arm: ArmSettings) -> Calibration | None:
    """Turn an arm's settings into a calibration; strength 0 is the plain model."""
    from pipeline.encoders import Calibration

    return Calibration(**arm.model_dump()) if arm.strength > 0 else None
