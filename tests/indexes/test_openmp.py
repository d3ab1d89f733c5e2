"""Torch and FAISS bring an OpenMP runtime each; both import orders must work in one process."""

from __future__ import annotations

import subprocess
import sys

import pytest

USE = """
import numpy as np
vectors = np.random.default_rng(0).standard_normal((500, 32)).astype(np.float32)
index = indexes.VectorIndex.build(vectors, dim=32, spec=indexes.IndexSpec("IVF4,Flat", nprobe=4))
product = torch.from_numpy(vectors) @ torch.from_numpy(vectors).T
assert index.search(vectors[3], 1).rows[0] == product[3].argmax().item()
print("done")
"""


@pytest.mark.parametrize("imports", ["import torch, indexes", "import indexes, torch"])
def test_both_import_orders_work(imports: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", imports + USE], capture_output=True, text=True, timeout=120
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.strip() == "done"
