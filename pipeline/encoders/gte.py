"""Load GTE checkpoints of Alibaba's remote code (`model_type: "new"`) with the class that transformers has.

gte-multilingual-base and its kin were published with code of their own, which no longer runs on
transformers 5. Their weights load unchanged into `GteModel`; only config.json has to be translated. That
is done in a temporary folder of links, never in the user's files.
"""

from __future__ import annotations

import json
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from transformers import CONFIG_MAPPING

from pipeline.errors import DataError

_LEGACY_KEYS = ("auto_map", "rope_theta", "rope_scaling")

# What the remote code can do and GteModel cannot: field, the one value that both share.
_SHARED = {
    "position_embedding_type": "rope",
    "layer_norm_type": "layer_norm",
    "pack_qkv": True,
    "logn_attention_scale": False,
}

_NEEDED_WEIGHTS = (
    "embeddings.word_embeddings.weight",
    "embeddings.token_type_embeddings.weight",
    "encoder.layer.{last}.attention.qkv_proj.weight",
    "encoder.layer.{last}.attention.qkv_proj.bias",
    "encoder.layer.{last}.mlp.up_gate_proj.weight",
    "encoder.layer.{last}.mlp_ln.weight",
)


@contextmanager
def loadable(folder: Path) -> Iterator[Path]:
    """Yield `folder`, or for as long as the block runs a translated stand-in if it holds a remote-code GTE.

    Raises:
        DataError: it does, but uses something that `GteModel` does not have.
    """
    part = _transformer_part(folder)
    config = _read(folder / part / "config.json")
    if not _is_remote_gte(config):
        yield folder
        return
    translated = translate_config(config, folder)
    _check_weights(folder / part, config)
    with tempfile.TemporaryDirectory(prefix="lastpage-gte-") as temporary:
        stand_in = Path(temporary)
        _link_tree(folder, stand_in)
        target = stand_in / part / "config.json"
        target.unlink()
        target.write_text(json.dumps(translated), encoding="utf-8")
        yield stand_in


def translate_config(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Rewrite the config of the remote code as one of `GteModel`.

    Raises:
        DataError: the checkpoint cannot be translated; the message says what was found and why.
    """
    if "gte" not in CONFIG_MAPPING:
        raise DataError(
            f"model {folder}: GTE needs the class GteModel, which this version of transformers lacks; "
            "run `pip install 'transformers>=5.24'`"
        )
    for name, shared in _SHARED.items():
        if (found := config.get(name, shared)) != shared:
            raise _untranslatable(folder, f"{name} = {found!r}, but GteModel has only {shared!r}")
    if not config.get("type_vocab_size", 1):
        raise _untranslatable(folder, "type_vocab_size = 0, but GteModel always adds a token type")
    kept = {name: value for name, value in config.items() if name not in _LEGACY_KEYS}
    return {
        **kept,
        "model_type": "gte",
        "architectures": ["GteModel"],
        "rope_parameters": _rope(config, folder),
    }


def _rope(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Express the remote code's rotary embedding in the terms of transformers.

    Its "ntk" multiplies theta by the factor and divides all frequencies by factor^(2 / head width), at all
    lengths: `(theta * factor)^(-2i/d) / factor^(2/d)`. The second half is what transformers calls "linear".
    """
    theta = float(config.get("rope_theta", 10000.0))
    scaling = config.get("rope_scaling")
    if scaling is None:
        return {"rope_type": "default", "rope_theta": theta}
    kind = scaling.get("type", scaling.get("rope_type"))
    if kind != "ntk" or scaling.get("mixed_b") is not None or "factor" not in scaling:
        raise _untranslatable(
            folder, f"rope_scaling = {dict(scaling)}; only 'ntk' with a factor and no mixed_b is known"
        )
    factor = float(scaling["factor"])
    head_width = int(config["hidden_size"]) // int(config["num_attention_heads"])
    return {"rope_type": "linear", "rope_theta": theta * factor, "factor": factor ** (2 / head_width)}


def _is_remote_gte(config: Mapping[str, Any]) -> bool:
    """Recognise the original (`new`), and copies that took the name `gte` with the old rotary fields."""
    if config.get("model_type") == "gte":
        return "rope_parameters" not in config and any(name in config for name in _LEGACY_KEYS)
    return config.get("model_type") == "new" and any(
        "New" in str(name) for name in config.get("architectures") or ["New"]
    )


def _check_weights(folder: Path, config: Mapping[str, Any]) -> None:
    """Refuse a checkpoint that lacks weights: transformers would draw them at random and only warn."""
    names = {
        name.removeprefix("new.") for file in folder.glob("*.safetensors") for name in _tensor_names(file)
    }
    needed = {name.format(last=int(config["num_hidden_layers"]) - 1) for name in _NEEDED_WEIGHTS}
    if names and (missing := sorted(needed - names)):
        raise _untranslatable(folder, f"its weights have no {', '.join(missing)}")


def _tensor_names(file: Path) -> list[str]:
    """Read the header of a safetensors file: its length in 8 bytes, then JSON."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        return [name for name in json.loads(stream.read(length)) if name != "__metadata__"]


def _transformer_part(folder: Path) -> str:
    modules = _read(folder / "modules.json")
    return str(modules[0]["path"]) if isinstance(modules, list) and modules else ""


def _read(file: Path) -> Any:
    if not file.is_file():
        return {}
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise DataError(f"{file}: not valid JSON ({error})") from error


def _link_tree(source: Path, target: Path) -> None:
    """Mirror a folder with links to its files (to what they are links to, in a hub cache)."""
    for file in source.rglob("*"):
        if not file.is_file():
            continue
        link = target / file.relative_to(source)
        link.parent.mkdir(parents=True, exist_ok=True)
        try:
            link.symlink_to(file.resolve())
        except OSError:  # no links on this file system
            shutil.copyfile(file, link)


def _untranslatable(folder: Path, found: str) -> DataError:
    return DataError(
        f"model {folder}: a GTE checkpoint with remote code that cannot be translated to GteModel: {found}. "
        "Use a converted checkpoint, such as alibaba-nlp-community/gte-multilingual-base"
    )
