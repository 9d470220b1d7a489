"""Rates of a machine: measured by scatters, kept for the user, and what costs go by then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from harness import target_of
from tvm.target import Target

from tvm_scatter import ScatterError
from tvm_scatter.cli import main
from tvm_scatter.errors import ScatterWarning
from tvm_scatter.problem.symbolic_size import SymbolicSize
from tvm_scatter.selection import calibrated
from tvm_scatter.selection.backend import backend_of, register_backend
from tvm_scatter.selection.calibrated import keep, machine_for
from tvm_scatter.selection.calibration import Calibration, Probe
from tvm_scatter.selection.cost import coefficients
from tvm_scatter.selection.machine import Machine
from tvm_scatter.selection.user_folder import FOLDER
from tvm_scatter.selection.work import Work
from tvm_scatter.tuning.measure import device_time
from tvm_scatter.tuning.measure.calibrate import calibrate, explained
from tvm_scatter.tuning.space.candidates import need_strategy
from tvm_scatter.tuning.space.grid import problem

LLVM = Target("llvm")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv(FOLDER, str(tmp_path / "data"))
    yield tmp_path / "data"
    calibrated._read.cache_clear()


@pytest.fixture
def small(device: str) -> Iterator[Target]:
    """A target whose probes have some hundred elements, and whose flushes have few bytes."""
    target = target_of(device)
    backend = backend_of(target)
    assert backend.calibration is not None

    def probes(machine: Machine) -> list[Probe]:
        assert backend.calibration is not None
        return [
            replace(probe, problem=_small(probe.problem))
            for probe in backend.calibration.probes(machine)
        ]

    register_backend(replace(backend, calibration=Calibration(backend.calibration.device, probes)))
    yield target
    register_backend(backend)


def _small(posed: Any) -> Any:
    sizes = {name: min(getattr(posed, name).constant, 50) for name in ("slice", "count")}
    extents = tuple(SymbolicSize(min(each.constant, 50)) for each in posed.extents)
    return replace(
        posed, extents=extents, **{name: SymbolicSize(size) for name, size in sizes.items()}
    )


def a_machine(name: str, **more: Any) -> Machine:
    rates = {"multiprocessors": 7, "clock": 1000.0, "memory": 1e5, "cache_bytes": 1e6}
    return Machine(name=name, shared_bytes=1 << 15, launch=3.0, measured=True, **{**rates, **more})


@pytest.mark.parametrize("kind", ["llvm", "cuda"])
def test_rates_are_found_that_explain_the_times(kind: str) -> None:
    target = target_of(kind)
    backend, strategy = backend_of(target), need_strategy(target)
    assert backend.calibration is not None
    machine = backend.machine(target)
    probes = backend.calibration.probes(machine)
    true = replace(machine, **{p.rate: 1.7 * getattr(machine, p.rate) for p in probes})
    times = {}
    for probe in probes:
        implementation = strategy.implementations[probe.implementation]
        config = implementation.config(probe.problem, target)
        terms = implementation.cost(Work.of(probe.problem, true, "even"), config) or {}
        factors = coefficients(kind).get(probe.implementation, {})
        times[probe] = sum(value * factors.get(name, 1.0) for name, value in terms.items())
    found = explained(machine, times, target)
    for probe in probes:
        assert getattr(found, probe.rate) == pytest.approx(getattr(true, probe.rate), rel=0.01)
    # No clock is many times as fast as another, whatever a busy machine shows.
    fast = {probe: time / 20 if probe.rate == "clock" else time for probe, time in times.items()}
    assert explained(machine, fast, target).clock == machine.clock
    # Times that no rate explains change nothing.
    assert explained(machine, dict.fromkeys(probes, 1e-9), target) == machine


def test_a_device_is_measured(small: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(device_time.FLUSH_BYTES, "cuda", 1 << 16)
    assumed, measured = calibrate(small)
    assert measured.measured and measured.name == backend_of(small).device_name(small) != ""
    assert not assumed.measured and assumed.multiprocessors == measured.multiprocessors
    keep(small.kind.name, measured)
    assert machine_for(backend_of(small), small) == measured


def test_the_command_prints_the_rates_and_keeps_them(
    small: Target, folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(device_time.FLUSH_BYTES, "cuda", 1 << 16)
    kind = small.kind.name
    assert main(["calibrate", "--target", kind, "--dry-run"]) == 0
    out, _ = capfd.readouterr()
    assert "bytes/us" in out and "Not kept" in out
    assert not folder.exists()
    assert main(["calibrate", "--target", kind]) == 0
    out, _ = capfd.readouterr()
    assert str(folder) in out.replace("\n", "")
    kept = json.loads((folder / "machines.json").read_text())[kind]
    assert list(kept) == [backend_of(small).device_name(small)]


def test_what_cannot_be_measured(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["calibrate", "--target", "c"]) == 2
    assert "nothing measures the rates of c." in capfd.readouterr().err
    named = Target({"kind": "llvm", "mcpu": "cortex-a53", "mtriple": "aarch64-linux-gnu"})
    with pytest.raises(ScatterError, match="this machine's device is another"):
        calibrate(named)


def test_the_users_record_goes_before_the_table() -> None:
    backend = backend_of(LLVM)
    table = machine_for(backend, LLVM)
    assert table == backend.machine(LLVM)
    keep("llvm", a_machine("another CPU"))
    keep("cuda", a_machine(backend.device_name(LLVM)))
    assert machine_for(backend, LLVM) == table
    ours = a_machine(backend.device_name(LLVM))
    keep("llvm", ours)
    assert machine_for(backend, LLVM) == ours
    # Nothing is known of a CPU that is not here.
    elsewhere = Target({"kind": "llvm", "mcpu": "cortex-a53", "mtriple": "aarch64-linux-gnu"})
    assert machine_for(backend, elsewhere) == table


def test_the_default_goes_by_the_users_record() -> None:
    posed = problem(1 << 20, 1, 1 << 16, in_place=True)
    before = need_strategy(LLVM).default(posed, LLVM).predictions["sequential"].microseconds
    assumed = backend_of(LLVM).machine(LLVM)
    slow = replace(assumed, name=backend_of(LLVM).device_name(LLVM), clock=assumed.clock / 100)
    keep("llvm", slow)
    after = need_strategy(LLVM).default(posed, LLVM).predictions["sequential"].microseconds
    assert after > 5 * before


RATES = {"multiprocessors": 7, "clock": 1000.0, "memory": 1e5, "cache_bytes": 1e6}
RATES |= {"shared_bytes": 1, "launch": 3.0, "threads": 1}
RATES |= {"cached_sectors": 1.0, "missed_sectors": 1.0}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[]",
        '{"llvm": 7}',
        '{"llvm": {"CPU": {"clock": 1}}}',
        json.dumps({"llvm": {"CPU": {**RATES, "clock": "fast"}}}),
        json.dumps({"llvm": {"CPU": {**RATES, "clock": -1}}}),
        json.dumps({"llvm": {"CPU": {**RATES, "clock": float("nan")}}}),
        json.dumps({"llvm": {"CPU": {**RATES, "launch": 0}}}),
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_ignored_in_one_sentence(folder: Path, text: str) -> None:
    folder.mkdir()
    (folder / "machines.json").write_text(text)
    with pytest.warns(ScatterWarning, match="is ignored: .*; tvm-scatter calibrate") as warned:
        assert machine_for(backend_of(LLVM), LLVM) == backend_of(LLVM).machine(LLVM)
    assert len(warned) == 1 and "\n" not in str(warned[0].message)
    calibrated._read.cache_clear()
    with pytest.warns(ScatterWarning):
        keep("llvm", a_machine("a CPU"))
    assert json.loads((folder / "machines.json").read_text())["llvm"]["a CPU"]["clock"] == 1000


def test_a_folder_that_cannot_be_written(folder: Path) -> None:
    folder.write_text("a file")
    with pytest.raises(ScatterError, match="cannot be written"):
        keep("llvm", a_machine("a CPU"))
