"""Logs that are damaged or that somebody else wrote: what is good in them counts."""

from __future__ import annotations

import base64
import copy
import json
import math
import os
import random
import shutil
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tvm
from harness import relax_function
from tvm import relax
from tvm.s_tir import Schedule
from tvm.s_tir import meta_schedule as ms
from tvm.script import tirx as T
from tvm.target import Target

from tvm_scatter import ScatterError, explain
from tvm_scatter.cli import main
from tvm_scatter.errors import ScatterWarning
from tvm_scatter.ops.operators import index_put
from tvm_scatter.selection.records import records_in
from tvm_scatter.selection.shipped_log import database_for
from tvm_scatter.tasks import extract_tasks
from tvm_scatter.tuning.space.candidates import candidates
from tvm_scatter.tuning.store.database import open_database, read_database
from tvm_scatter.tuning.store.packed import pack_log
from tvm_scatter.tuning.store.results import results_in

LLVM = Target("llvm")
RECORDS, WORKLOADS = "database_tuning_record.json", "database_workload.json"
COUNT = 4


def model() -> tvm.IRModule:
    builder = relax.BlockBuilder()
    arrays = [np.ones((50, 4), "float32"), np.zeros(30, "int64"), np.ones((30, 4), "float32")]
    relax_function(builder, "main", lambda d, i, u: index_put(d, [i], u, reduction="add"), arrays)
    return builder.get()


@pytest.fixture(scope="module")
def good(tmp_path_factory) -> Path:
    """A log of some candidates of the model's scatter, and of another."""
    folder = tmp_path_factory.mktemp("logs") / "log"
    (task,) = extract_tasks(model(), LLVM)
    with open_database(folder, LLVM) as database:
        for number, candidate in enumerate(list(candidates(task.problem, LLVM))[:COUNT]):
            told = {"distribution": "uniform", "seed": "0", "cache": "warm"}
            database.add(task.problem, LLVM, candidate, told, [(1 + number) * 1e-6] * 3)
        database.add_run({"machine": {"device": "a CPU"}, "date": "2026-01-01"})
    return folder


@pytest.fixture
def log(good: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(good, tmp_path / "log"))


def change_line(path: Path, number: int, change: Callable[[Any], Any]) -> None:
    lines = path.read_text().splitlines()
    lines[number] = json.dumps(change(json.loads(lines[number])))
    path.write_text("\n".join(lines) + "\n")


def with_seconds(*seconds: Any) -> Callable[[Any], Any]:
    def change(line: Any) -> Any:
        place, (trace, _, *rest) = line
        return [place, [trace, list(seconds), *rest]]

    return change


def with_text_knob(line: Any) -> Any:
    steps = line[1][0][0]
    steps.append(["Annotate", ["b0", '"many"'], ["scatter.knobs.chunks"], []])
    return line


def with_negative_knob(line: Any) -> Any:
    line[1][0][0].append(["Annotate", ["b0", -7], ["scatter.knobs.chunks"], []])
    return line


def with_nameless_knob(line: Any) -> Any:
    line[1][0][0].append(["Annotate", ["b0", 7], [None], []])
    return line


DAMAGE = {
    "zero": with_seconds(0.0),
    "negative": with_seconds(1e-6, -1e-6),
    "nan": with_seconds(math.nan),
    "infinite": with_seconds(math.inf),
    "text": with_seconds("soon"),
    "nothing": with_seconds(None),
    "knob without a name": with_nameless_knob,
    "text knob": with_text_knob,
    "negative knob": with_negative_knob,
    "no trace": lambda line: [line[0], [None, *line[1][1:]]],
    "other workload": lambda line: [99, line[1]],
    "text for a place": lambda line: ["0", line[1]],
    "number": lambda _line: 7,
}


def all_of(folder: Path, log: Path) -> dict[str, int]:
    """How many records each reader of a log takes."""
    (task,) = extract_tasks(model(), LLVM)
    found = {}
    database = read_database(log)
    found["read"] = len(list(database.records()))
    found["in force"] = len(records_in(database.stored, task.problem, LLVM))
    found["report"] = sum(len(result.ranked) for result in results_in(database))
    with database.stored:
        assert explain(model(), LLVM)[0].source in ("tuned", "default")
    pack_log(log, folder / "log.tar.xz", "log")
    shipped = database_for(folder, "llvm", "")
    found["shipped"] = len(records_in(shipped, task.problem, LLVM))
    again = folder.parent / "again" / "log"
    shutil.copytree(log, again, dirs_exist_ok=True)
    with open_database(again, LLVM) as resumed:
        found["resumed"] = len(list(resumed.records()))
    return found


@pytest.mark.parametrize("damage", DAMAGE)
def test_one_damaged_record_is_passed_over(tmp_path: Path, log: Path, damage: str) -> None:
    change_line(log / RECORDS, 1, DAMAGE[damage])
    with pytest.warns(ScatterWarning):
        found = all_of(tmp_path, log)
    assert set(found.values()) == {COUNT - 1}, found


def test_a_damaged_record_is_named_in_one_line(
    log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    change_line(log / RECORDS, 1, DAMAGE["nan"])
    assert main(["report", str(log)]) == 0
    out, err = capfd.readouterr()
    assert "3 records" in out
    (line,) = err.splitlines()
    assert line.startswith("tvm-scatter: line 2 of") and "nan" in line


Graph = dict[str, Any]


def graph_of(line: Any) -> Graph:
    """The graph that TVM wrote of a workload."""
    graph = json.loads(base64.b64decode(line[1])[8:])
    assert isinstance(graph, dict)
    return graph


def with_graph(line: Any, graph: Graph) -> Any:
    text = json.dumps(graph).encode()
    packed = base64.b64encode(len(text).to_bytes(8, "little") + text)
    return [line[0], packed.decode()]


def node_of(graph: Graph, kind: str) -> Any:
    return next(node for node in graph["nodes"] if node["type"] == kind)


def with_a_cycle(graph: Graph) -> None:
    node = node_of(graph, "tirx.BufferStore")
    node["data"]["value"] = graph["nodes"].index(node)


def with_a_module_for_a_name(graph: Graph) -> None:
    node_of(graph, "ir.GlobalVar")["data"]["name_hint"] = graph["root_index"]


def with_type(name: str) -> Callable[[Graph], None]:
    return lambda graph: node_of(graph, "int").update(type=name)


#: One field of a workload's graph. TVM's own reader ends the process over each.
GRAPHS = {
    "cycle": with_a_cycle,
    "module for a name": with_a_module_for_a_name,
    "Python object": with_type("ffi.OpaquePyObject"),
    "error": with_type("ffi.Error"),
    "pointer": with_type("void*"),
}


def damage_graph(log: Path, damage: Callable[[Graph], None]) -> None:
    def change(line: Any) -> Any:
        graph = graph_of(line)
        damage(graph)
        return with_graph(line, graph)

    change_line(log / WORKLOADS, 0, change)


@pytest.mark.parametrize("damage", GRAPHS)
def test_a_graph_is_not_read_beyond_its_problem(tmp_path: Path, log: Path, damage: str) -> None:
    damage_graph(log, GRAPHS[damage])
    found = all_of(tmp_path, log)
    assert set(found.values()) == {COUNT}, found
    assert main(["report", str(log)]) == 0


def problem_node(graph: Graph) -> Any:
    """The text of the problem."""
    return next(node for node in graph["nodes"] if '"problem"' in str(node.get("data")))


OTHER_PROBLEMS = {
    "another": lambda text: text.replace('"count":"30"', '"count":"31"'),
    "another architecture": lambda text: text.replace('"arch":""', '"arch":"sm_90"'),
    "no size": lambda text: text.replace('"count":"30"', '"count":"-3"'),
    "more than any memory": lambda text: text.replace('"count":"30"', f'"count":"{10**400}"'),
    "very long": lambda text: " " * 1_000_000 + text,
    "of another version": lambda text: text.replace('"version":1', '"version":2'),
    "number": lambda _text: 7,
}


@pytest.mark.parametrize("damage", OTHER_PROBLEMS)
def test_records_of_another_problem_do_not_count(
    tmp_path: Path, log: Path, damage: str, recwarn: pytest.WarningsRecorder
) -> None:
    def change(graph: Graph) -> None:
        node = problem_node(graph)
        node["data"] = OTHER_PROBLEMS[damage](node["data"])

    damage_graph(log, change)
    with pytest.raises(ScatterError, match="holds no tuning records"):
        read_database(log)
    with open_database(log, LLVM) as resumed:
        assert not list(resumed.records())
    assert all(issubclass(each.category, ScatterWarning) for each in recwarn)


GRAPH_IN_A_TRACE = json.dumps({"root_index": 0, "nodes": [{"type": "ffi.Array", "data": [0]}]})


@pytest.mark.parametrize(
    "step",
    [
        ["Annotate", ["b0", GRAPH_IN_A_TRACE], ["scatter.knobs.chunks"], []],
        ["TransformLayout", ["b0"], [0, 0, GRAPH_IN_A_TRACE, None, False], []],
    ],
    ids=["annotation", "layout"],
)
def test_a_graph_in_a_trace_is_not_read(tmp_path: Path, log: Path, step: Any) -> None:
    def change(line: Any) -> Any:
        line[1][0][0].append(step)
        return line

    change_line(log / RECORDS, 1, change)
    with pytest.warns(ScatterWarning):
        found = all_of(tmp_path, log)
    assert set(found.values()) == {COUNT - 1}, found


def test_what_somebody_else_wrote_into_a_log_stays(log: Path) -> None:
    """Another tuner's workload and record, among ours."""

    @T.prim_func(s_tir=True)  # type: ignore[untyped-decorator]
    def main(out: T.Buffer((1,), "int32")) -> None:  # type: ignore[valid-type]
        with T.sblock("theirs"):
            out[0] = 0

    plain = ms.database.JSONDatabase(work_dir=str(log))
    theirs = tvm.IRModule({"main": main})
    foreign = ms.database.TuningRecord(
        Schedule(theirs).trace, plain.commit_workload(theirs), [1e-6], LLVM
    )
    plain.commit_tuning_record(foreign)
    (log / RECORDS).write_text((log / RECORDS).read_text().rstrip("\n"))
    (task,) = extract_tasks(model(), LLVM)
    other = replace(task.problem, unique=True)
    candidate = next(iter(candidates(other, LLVM)))
    with open_database(log, LLVM) as resumed:
        for problem in (task.problem, other):
            resumed.add(problem, LLVM, candidate, {}, [2e-6])
    assert len(read_database(log)) == COUNT + 2
    plain = ms.database.JSONDatabase(work_dir=str(log))
    assert len(plain) == COUNT + 3 and plain.has_workload(theirs)
    assert len(records_in(plain, other, LLVM)) == 1


METADATA = {
    "target of text": ("target", "llvm"),
    "kind of number": ("target", {"kind": 3, "arch": ""}),
    "arch of list": ("target", {"kind": "llvm", "arch": []}),
    "format of list": ("format", []),
    "runs of text": ("runs", "many"),
    "runs of texts": ("runs", ["one", None, {"machine": "fast"}, {"machine": None}]),
    "runs of nothing": ("runs", None),
}


@pytest.mark.parametrize("damage", METADATA)
@pytest.mark.parametrize("command", ["report", "read", "resume", "shipped"])
def test_metadata_of_wrong_types(tmp_path: Path, log: Path, damage: str, command: str) -> None:
    path = log / "metadata.json"
    key, value = METADATA[damage]
    path.write_text(json.dumps({**json.loads(path.read_text()), key: value}))
    survives(command, tmp_path, log)


def survives(command: str, folder: Path, log: Path) -> None:
    """A reader takes what it can, or says what is wrong."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ScatterWarning)
        try:
            if command == "report":
                assert main(["report", str(log)]) in (0, 2)
            elif command == "read":
                with read_database(log).stored:
                    explain(model(), LLVM)
            elif command == "resume":
                with open_database(log, LLVM) as database:
                    list(database.records())
            else:
                (task,) = extract_tasks(model(), LLVM)
                pack_log(log, folder / "log.tar.xz", "log")
                shipped = database_for(folder, "llvm", "")
                if shipped is not None:
                    records_in(shipped, task.problem, LLVM)
        except ScatterError as error:
            assert "\n" not in str(error)


@pytest.mark.parametrize("name", ["metadata.json", RECORDS, WORKLOADS])
def test_files_that_are_none(tmp_path: Path, log: Path, name: str) -> None:
    """A pipe that nobody writes to, a folder, and text of an absurd depth."""

    def folder(path: Path) -> None:
        path.mkdir()

    def deep(path: Path) -> None:
        path.write_text("[" * 200_000)

    for make in (os.mkfifo, folder, deep):
        path = log / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        make(path)
        for command in ("report", "read", "resume", "shipped"):
            survives(command, tmp_path, log)


ODD = [None, True, -1, 0, 3, 1 << 70, 0.5, math.nan, math.inf, "", "x", "v1", [], {}, [[]]]


def mutate(part: Any, random_: random.Random) -> Any:
    """Plain data with something else somewhere."""
    if isinstance(part, (list, dict)) and part and random_.random() < 0.9:
        keys = list(part) if isinstance(part, dict) else list(range(len(part)))
        key = random_.choice(keys)
        fate = random_.random()
        if fate < 0.1:
            del part[key]
        elif fate < 0.2 and isinstance(part, list):
            part.insert(key, part[key])
        else:
            part[key] = mutate(part[key], random_)
        return part
    if isinstance(part, str) and part and random_.random() < 0.5:
        at = random_.randrange(len(part))
        return part[:at] + random_.choice('0aZ{]"\\\0\n') + part[at + 1 :]
    return copy.deepcopy(random_.choice(ODD))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.turns(4)
def test_random_damage(tmp_path: Path, good: Path, seed: int) -> None:
    random_ = random.Random(seed)
    for number in range(12):
        log = Path(shutil.copytree(good, tmp_path / f"{number}" / "log"))
        for _ in range(random_.randint(1, 3)):
            name = random_.choice([RECORDS, RECORDS, WORKLOADS, "metadata.json"])
            path = log / name
            if name == "metadata.json":
                path.write_text(json.dumps(mutate(json.loads(path.read_text()), random_)))
            else:
                last = len(path.read_text().splitlines()) - 1
                change_line(path, random_.randint(0, last), lambda line: mutate(line, random_))
        for command in ("report", "read", "shipped", "resume"):
            survives(command, log.parent, log)
