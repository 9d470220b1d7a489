"""Compares programs whose scatters compute their updates themselves with the same, unfused."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from unittest import mock

import numpy as np
import tvm
from column_parts import columns_in_parts
from cuda_on_cpu import real_gpu
from harness import ORDERS, device_of, in_order, target_of
from random_messages import POLICIES, Program, add_program
from tvm import relax
from worker_threads import divided_work

import tvm_scatter
from tvm_scatter import strategy_for
from tvm_scatter.passes import fuse_epilogues
from tvm_scatter.selection.backend import backend_for, register_backend

_DTYPES = ("float32", "float32", "float64", "int32")
_RARE_DTYPES = ("float32", "float16", "bfloat16", "int8", "uint8", "int16", "int64")
#: How far numbers may be off that are rounded in another order.
_TOLERANCE = 1e-4


@dataclass
class Outcome:
    """What was tried.

    Attributes
    ----------
    programs, fused, softmaxes, finished : int
        How many programs were compared, how many of their scatters computed their updates, how many
        the softmax that weights them, and how many what follows them.
    implementations : Counter
        How many programs each implementation computed; ``None`` is the default choice.
    kept : Counter
        Why other scatters read their updates from memory.
    failures : list of str
        What went wrong in which program.
    device_lost : bool
        Whether a program failed on a GPU so that no other can run in this process.
    """

    programs: int = 0
    fused: int = 0
    softmaxes: int = 0
    finished: int = 0
    implementations: Counter[str] = field(default_factory=Counter)
    kept: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    device_lost: bool = False

    @staticmethod
    def from_json(text: str) -> Outcome:
        """The inverse of ``json.dumps(vars(outcome))``."""
        fields = json.loads(text)
        counts = {name: Counter(fields[name]) for name in ("implementations", "kept")}
        return Outcome(**fields | counts)

    def add(self, other: Outcome) -> None:
        """Count another outcome as well."""
        self.programs += other.programs
        self.fused += other.fused
        self.softmaxes += other.softmaxes
        self.finished += other.finished
        self.implementations += other.implementations
        self.kept += other.kept
        self.failures += other.failures
        self.device_lost |= other.device_lost


@dataclass(frozen=True)
class Trial:
    """How the programs of some seeds are computed.

    Attributes
    ----------
    every : bool
        Whether scatters compute their updates even if that takes longer.
    divided : bool
        Whether CPU code divides the work among threads however little it is.
    nans : bool
        Whether there are numbers that are none. TVM's code for CPUs and for GPUs does not agree
        about the larger of such and another.
    parts : bool
        Whether orders carry what is the same for a row, and GPU code reads rows in parts, however
        little there is.
    """

    device: str
    seeds: range
    bounds: str
    dtypes: tuple[str, ...]
    deterministic: bool
    every: bool
    divided: bool
    nans: bool
    parts: bool

    @staticmethod
    def draw(device: str, seeds: range, bounds: str | None = None) -> Trial:
        """A trial that depends on the first seed alone."""
        random = Random(seeds[0])
        drawn = random.choice(POLICIES)
        return Trial(
            device=device,
            seeds=seeds,
            bounds=bounds or drawn,
            dtypes=_RARE_DTYPES if random.random() < 0.25 else _DTYPES,
            deterministic=random.random() < 0.5,
            every=random.random() < 0.6,
            divided=device == "llvm" and random.random() < 0.5,
            nans=random.random() < 0.15,
            parts=random.random() < 0.5,
        )

    @property
    def _reference(self) -> str:
        """What runs the unfused program. A simulated device takes long to compile it."""
        return self.device if self.nans else "llvm"

    def compare_all(self, begin: Callable[[str], None]) -> Outcome:
        """Like :meth:`compare`, where programs that do not compile leave the others alone."""
        try:
            return self.compare(begin)
        except Exception as error:
            half = len(self.seeds) // 2
            if not half:
                return Outcome(failures=[f"{self}: {brief(error)}"])
            outcome = Outcome()
            for seeds in (self.seeds[:half], self.seeds[half:]):
                outcome.add(replace(self, seeds=seeds).compare_all(begin))
                if outcome.device_lost:
                    break
            return outcome

    def compare(self, begin: Callable[[str], None] = lambda _: None) -> Outcome:
        """Run each program unfused, and fused by a random implementation.

        Parameters
        ----------
        begin : callable
            Gets the name of each program and its implementation before it runs.
        """
        random = Random(self.seeds[0])
        builder = relax.BlockBuilder()
        programs = [
            # TVM cannot compile an order of symbolic sizes that is divided however short it is.
            add_program(
                *(builder, f"seed{seed}", Random(seed), self.dtypes, self.bounds, self.nans),
                softmax=not self.divided,
            )
            for seed in self.seeds
        ]
        module = builder.get()
        outcome = Outcome(programs=len(programs))
        plain = self._compiled(self._reference, module, fuse=False, fill=False, epilogue=False)
        with every_one_fused(self.device) if self.every else nullcontext():
            groups = self._groups(random, module, programs, outcome)
            for implementation, group in groups.items():
                part = tvm.IRModule({each.name: module[each.name] for each in group})
                with columns_in_parts() if self.parts else nullcontext():
                    machine = self._compiled(
                        self.device, part, fuse=True, epilogue=True, implementation=implementation
                    )
                for program in group:
                    order = random.choice(ORDERS) if self.device == "cuda" else "forward"
                    how = f"{program.name}, {implementation}, {order}, {self}"
                    begin(how)
                    try:
                        self._check(program, plain, machine, order)
                    except AssertionError as error:
                        outcome.failures.append(f"{how}: {error}")
                    except Exception as error:
                        outcome.failures.append(f"{how}: {brief(error)}")
                        if real_gpu():
                            outcome.device_lost = True
                            return outcome
        return outcome

    def _check(self, program: Program, plain: Any, machine: Any, order: str) -> None:
        """Run a program in both ways for each of its sizes."""
        for run, sizes in enumerate(program.sizes):
            arrays = program.arrays(run)
            wanted = _results(plain, program.name, arrays, self._reference)
            with in_order(order):
                found = _results(machine, program.name, arrays, self.device)
            if isinstance(wanted, str) or isinstance(found, str):
                assert isinstance(wanted, str), f"{sizes}: only the fused program raises: {found}"
                assert isinstance(found, str), f"{sizes}: only the unfused one raises: {wanted}"
                continue
            tolerance = 0 if program.style.whole else _TOLERANCE
            for at, (left, right) in enumerate(zip(found, wanted, strict=True)):
                what = f"result {at}, {sizes}"
                left, right = (_comparable(each) for each in (left, right))
                np.testing.assert_allclose(left, right, tolerance, tolerance, err_msg=what)

    def _compiled(self, device: str, module: tvm.IRModule, **options: Any) -> Any:
        target = target_of(device)
        if device == "llvm" and self.seeds[0] % 3:
            # It takes less long to compile.
            target = tvm.target.Target({"kind": "llvm", "opt-level": 0})
        with self._options(**options), divided_work() if self.divided else nullcontext():
            executable = tvm.compile(module, target)
        return relax.VirtualMachine(executable, device_of(device))

    def _options(self, **options: Any) -> Any:
        return tvm_scatter.options(bounds=self.bounds, deterministic=self.deterministic, **options)

    def _groups(
        self, random: Random, module: tvm.IRModule, programs: list[Program], outcome: Outcome
    ) -> dict[str | None, list[Program]]:
        """The programs by the implementation that computes them; ``None`` leaves the choice."""
        strategy, target = strategy_for(self.device), target_of(self.device)
        assert strategy is not None
        with self._options(fuse=True, epilogue=True):
            explanations = tvm_scatter.explain(module, target)
        for text in map(str, explanations.notes):
            outcome.fused += "computes its updates itself" in text
            outcome.softmaxes += "computes the softmax" in text
            outcome.finished += "computes what follows" in text
            if "reads its updates from memory" in text:
                outcome.kept[text.split("memory: ")[-1]] += 1
        groups: dict[str | None, list[Program]] = {}
        for program in programs:
            taken = [
                set(strategy.applicable(each.problem, target))
                for each in explanations
                if each.where.split(".")[0] == program.name and each.problem is not None
            ]
            known = sorted(set.intersection(*taken)) if taken else []
            implementation = random.choice([None, *known])
            outcome.implementations[str(implementation)] += 1
            groups.setdefault(implementation, []).append(program)
        return groups


@contextmanager
def every_one_fused(device: str) -> Iterator[None]:
    """Scatters compute updates and what follows inside the block even if that takes longer."""
    before = backend_for(device)
    register_backend(replace(before, fuses_vectors_only=False))
    possible = fuse_epilogues._planned
    try:
        with mock.patch.object(fuse_epilogues, "_check_pays", lambda _, each: possible(each)):
            yield
    finally:
        register_backend(before)


def brief(error: Exception) -> str:
    """The class of an error and the lines that say what is wrong, of a text that may be long."""
    lines = str(error).splitlines() or [""]
    # A compiler's warnings come first, and its count of errors last.
    wrong = [at for at, line in enumerate(lines) if re.search(r"(?i)\berror\b|_ERROR_", line)]
    shown = [line[-500:] for at in wrong[:3] for line in lines[at : at + 2]] or lines[-3:]
    return "\n".join([type(error).__name__, *shown])


def _comparable(array: Any) -> Any:
    return array.astype("float32") if array.dtype.name == "bfloat16" else array


def _results(machine: Any, name: str, arrays: list[Any], device: str) -> Any:
    """The results as arrays; the text of the error if an index is out of bounds."""
    try:
        results = machine[name](*[tvm.runtime.tensor(each, device_of(device)) for each in arrays])
        return [each.numpy() for each in results]
    except IndexError as error:
        return str(error)
