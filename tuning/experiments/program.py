"""What the main programs of experiments have in common."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tvm_scatter.selection.targets import gpu_target


def parser(name: str) -> argparse.ArgumentParser:
    """For the arguments of an experiment, with the file for its table."""
    arguments = argparse.ArgumentParser(prog=f"python -m tvm_scatter.tuning.experiments.{name}")
    arguments.add_argument("--markdown", metavar="FILE")
    return arguments


def need_gpu(name: str) -> None:
    """Raise SystemExit where there is no CUDA device."""
    if gpu_target() is None:
        raise SystemExit(f"{name}: there is no CUDA device here.")


def publish(text: str, figures: Mapping[str, Any], parsed: argparse.Namespace) -> None:
    """Print a table, and write it and its figures to the files that were asked for."""
    print(text)
    if parsed.json:
        Path(parsed.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    if parsed.markdown:
        Path(parsed.markdown).write_text(text + "\n", encoding="utf-8")
