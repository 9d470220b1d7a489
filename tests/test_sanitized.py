"""Kernels under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of their own."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from cuda_on_cpu import run_with_sanitizers, sanitizers_available, status

HERE = Path(__file__).parent


def under_sanitizers(*arguments: str, timeout: float) -> None:
    """Run tests that must pass without a report; the first report ends the process."""
    if not (status() and sanitizers_available()):
        pytest.skip("kernels cannot be run under sanitizers here")
    result = run_with_sanitizers(
        ["-m", "pytest", "-o", "addopts=", "-p", "no:cacheprovider", "-q", "-x", *arguments],
        cwd=HERE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
    )
    assert result.returncode == 0, result.stdout[-4000:]


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.exhaustive
def test_random_problems() -> None:
    """And rows whose last columns are read again where a thread would have none."""
    wanted = "cuda and (short_run or bucketed-float32-33-weighted)"
    under_sanitizers("test_fuzz.py", "test_columns_apart.py", "-k", wanted, timeout=500)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_the_table_of_cases() -> None:
    under_sanitizers("test_cases.py", "-k", "cuda", timeout=3500)


@pytest.mark.exhaustive
@pytest.mark.timeout(3600)
def test_every_implementation_on_bad_indices() -> None:
    under_sanitizers("test_bounds.py", "-k", "cuda", timeout=3500)
