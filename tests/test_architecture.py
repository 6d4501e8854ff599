"""The layout's rules, as tests: import direction, and what importing the package does (nothing)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from importlinter.cli import lint_imports

ROOT = Path(__file__).parents[1]


def test_imports_point_down_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    status = lint_imports(config_filename=str(ROOT / ".importlinter"), no_cache=True)
    assert status == 0, capsys.readouterr().out


def test_importing_every_module_prints_nothing_makes_nothing_and_loads_nothing_heavy(tmp_path: Path) -> None:
    program = """
import importlib, pkgutil, sys
import ratchet
# Nobody imports these but the processes that train and sample.
learning = {
    "ratchet.policies.local.engine",
    "ratchet.policies.local.loading",
    "ratchet.train.checkpoints",
    "ratchet.train.lora",
    "ratchet.train.reinforce",
    "ratchet.train.warm_start",
}
for module in pkgutil.walk_packages(ratchet.__path__, "ratchet."):
    if not module.name.endswith("__main__") and module.name not in learning:
        importlib.import_module(module.name)
heavy = {"torch", "ray", "transformers", "trl"} & sys.modules.keys()
sys.exit(f"heavy modules were loaded: {heavy}" if heavy else 0)
"""
    environment = {
        **os.environ,
        "HOME": str(tmp_path),
        "RATCHET_HOME": str(tmp_path / "home"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    for variable in [name for name in environment if name.startswith("XDG_")]:
        del environment[variable]
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []
