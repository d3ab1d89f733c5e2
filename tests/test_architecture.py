"""The architecture rules are in pyproject.toml; import-linter checks them."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import REPOSITORY


def test_imports_flow_one_way() -> None:
    command = shutil.which("lint-imports", path=str(Path(sys.executable).parent))
    assert command is not None
    done = subprocess.run(
        [command, "--no-cache"], cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    assert "6 kept, 0 broken" in done.stdout


def test_help_needs_no_model_library() -> None:
    """`--help` answers at once because no heavy library is imported for it."""
    code = (
        "import sys\n"
        "from pipeline.cli.main import main\n"
        "try:\n    main(['index', '--help'])\nexcept SystemExit:\n    pass\n"
        "print(sorted({'torch', 'transformers', 'faiss', 'datasets', 'pyarrow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=REPOSITORY, capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"
