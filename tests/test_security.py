"""Nothing in a log, a cache entry, a recorded index or a model file is executed."""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from model_files import changed
from tvm.support import cc

import tvm_scatter
from tvm_scatter import ScatterError, ScatterProblem
from tvm_scatter.cli.model import load
from tvm_scatter.runtime.kernel_cache import Store
from tvm_scatter.tuning.operands.distributions import draw_indices
from tvm_scatter.tuning.store.database import read_database

PACKAGE = Path(tvm_scatter.__file__).resolve().parent
FOLDERS = {
    "tvm_scatter": PACKAGE,
    "strategies": PACKAGE.parent / "strategies",
    "tuning": PACKAGE.parent / "tuning",
}
#: Modules that run what they read, and functions of any module that do.
MODULES = {"pickle", "cPickle", "dill", "cloudpickle", "joblib", "marshal", "shelve", "yaml"}
FUNCTIONS = {"eval", "exec", "compile", "__import__"}
#: PyTorch's own reader of exported programs, which the command line calls on the user's file.
ALLOWED = {("model.py", "torch.export.load")}
#: What only says how TVM's tuner sends functions to its own workers.
HARMLESS = {("cloudpickle", "register_pickle_by_value")}


class Marked:
    """Unpickling it makes a folder."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return os.mkdir, (str(self.path),)


def dangerous(path: Path, tree: ast.AST) -> list[str]:
    """What in a source may execute data."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.split(".")[0] in MODULES]
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in MODULES:
            found += [
                f"{node.module}.{name.name}"
                for name in node.names
                if (node.module, name.name) not in HARMLESS
            ]
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func)
        plain = {keyword.arg: keyword.value for keyword in node.keywords}
        allow = plain.get("allow_pickle")
        if name in FUNCTIONS:
            found.append(name)
        if name in ("np.load", "numpy.load") and ast.unparse(allow or ast.Constant(1)) != "False":
            found.append(name)
        if (
            name.startswith("torch.")
            and name.endswith(".load")
            and (path.name, name) not in ALLOWED
        ):
            found.append(name)
        if "shell" in plain and ast.unparse(plain["shell"]) != "False":
            found.append(f"{name}(shell=...)")
    return found


@pytest.mark.parametrize("folder", FOLDERS)
def test_no_source_executes_data(folder: str) -> None:
    sources = sorted(FOLDERS[folder].rglob("*.py"))
    assert sources
    for path in sources:
        assert dangerous(path, ast.parse(path.read_text())) == [], path


@pytest.mark.parametrize(
    "text",
    [
        "import pickle",
        "from marshal import loads",
        "np.load(path)",
        "np.load(path, allow_pickle=True)",
        "torch.load(path)",
        "eval(text)",
        "subprocess.run(text, shell=True)",
    ],
)
def test_what_does_is_noticed(text: str) -> None:
    assert dangerous(Path("x.py"), ast.parse(text))


def test_the_marker_works(tmp_path: Path) -> None:
    pickle.loads(pickle.dumps(Marked(tmp_path / "executed")))
    assert (tmp_path / "executed").is_dir()


def test_a_planted_cache_entry_is_not_used(tmp_path: Path) -> None:
    """Neither what has no digest nor what was digested under another key."""
    marked = tmp_path / "executed"
    store = Store(tmp_path / "kernels", 1 << 20)
    key, other = "ab" + "0" * 62, "ab" + "1" * 62
    store.write(key, b"binary")
    shutil.copy(store._path(key), store._path(other))
    assert store.read(other) is None
    store._path(key).write_bytes(pickle.dumps(Marked(marked)))
    assert store.read(key) is None
    assert not marked.exists()


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    """A model file as PyTorch wrote it."""
    torch = pytest.importorskip("torch")

    class Add(torch.nn.Module):
        def forward(self, x):
            return x + 1

    path = tmp_path_factory.mktemp("models") / "good.pt2"
    torch.export.save(torch.export.export(Add(), (torch.ones(2),)), path)
    return path


def native_library(folder: Path, marked: Path) -> bytes:
    """A library that makes a folder when it is loaded."""
    source, library = folder / "library.c", folder / "library.so"
    source.write_text(
        "#include <sys/stat.h>\n"
        f'__attribute__((constructor)) static void load(void) {{ mkdir("{marked}", 0700); }}\n'
    )
    compiler = cc.get_cc()
    if compiler is None:
        pytest.skip("no compiler")
    subprocess.run([compiler, "-shared", "-fPIC", "-o", library, "-x", "c", source], check=True)
    return library.read_bytes()


def plant(where: str, good: Path, folder: Path, marked: Path) -> Path:
    """The model file with something in it that makes a folder when it is executed."""
    import torch

    bad = folder / "bad.pt2"
    if where == "inputs":
        buffer = io.BytesIO()
        torch.save(Marked(marked), buffer)
        return changed(good, bad, {"data/sample_inputs/model.pt": lambda _: buffer.getvalue()})
    if where == "constants":
        entry = {"path_name": "opaque_obj_0", "is_param": False, "use_pickle": True}
        config = json.dumps({"config": {"x": {**entry, "tensor_meta": None}}}).encode()
        return changed(
            good,
            bad,
            {"data/constants/model_constants_config.json": lambda _: config},
            **{"data/constants/opaque_obj_0": pickle.dumps(Marked(marked))},
        )
    name = "data/aotinductor/model/x.wrapper"
    return changed(
        good,
        bad,
        {},
        **{
            f"{name}.so": native_library(folder, marked),
            f"{name}_metadata.json": json.dumps({"AOTI_DEVICE_KEY": "cpu"}).encode(),
        },
    )


def replace(part: Any, old: str, new: str) -> Any:
    """Plain data with another text everywhere."""
    if isinstance(part, dict):
        return {replace(k, old, new): replace(v, old, new) for k, v in part.items()}
    if isinstance(part, list):
        return [replace(each, old, new) for each in part]
    return new if part == old else part


def program_with(where: str, program: dict[str, Any], call: str) -> dict[str, Any]:
    """The program with a call in it."""
    graph = program["graph_module"]["graph"]
    signature = program["graph_module"]["module_call_graph"][0]["signature"]
    if where == "size":
        expression = {"as_expr": {"expr_str": call, "hint": None}}
        graph["tensor_values"]["x"]["sizes"][0] = expression
    elif where == "operator":
        graph["nodes"][0] |= {
            "target": "torch.os.mkdir",
            "inputs": [{"name": "", "arg": {"as_string": call.split("'")[3]}, "kind": 1}],
        }
    elif where == "parameter":
        program = replace(program, "x", f"x={call}")
    elif where == "guards":
        program["guards_code"] = [call]
    elif where == "factory":
        factory = {"default_factory_module": "planted", "default_factory_name": "x"}
        tree = {"type": "collections.defaultdict", "children_spec": []}
        tree["context"] = {**factory, "dict_context": []}
        signature["in_spec"] = json.dumps([1, tree])
    elif where == "key":
        key = json.dumps([{"__enum__": True, "fqn": "planted:x", "name": "x"}])
        tree = {"type": "builtins.dict", "context": key, "children_spec": []}
        signature["out_spec"] = json.dumps([1, tree])
    return program


#: Where PyTorch executes what a program says, and what is said of it.
IN_PROGRAMS = {
    "size": "no expression",
    "operator": "none of ATen's",
    "parameter": "no name",
    "guards": None,
    "factory": "no tuple, list or dict",
    "key": "no key",
}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", IN_PROGRAMS)
def test_a_planted_program_is_not_executed(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    marked, call = tmp_path / "executed", f"__import__('os').mkdir('{tmp_path / 'executed'}')"
    (tmp_path / "planted.py").write_text(f"{call}\n")
    monkeypatch.syspath_prepend(tmp_path)

    def change(content: bytes) -> bytes:
        return json.dumps(program_with(where, json.loads(content), call)).encode()

    bad = changed(model, tmp_path / "bad.pt2", {"models/model.json": change})
    said = IN_PROGRAMS[where]
    if said is None:
        # It is not needed, so it is left out.
        assert load(str(bad))["main"] is not None
    else:
        with pytest.raises(ScatterError, match=said):
            load(str(bad))
    assert not marked.exists()
    assert "planted" not in sys.modules


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("where", ["inputs", "constants", "library"])
def test_a_planted_model_is_not_executed(model: Path, tmp_path: Path, where: str) -> None:
    import torch

    marked = tmp_path / "executed"
    bad = plant(where, model, tmp_path, marked)
    with contextlib.suppress(Exception):
        torch.export.load(bad)
    if not marked.exists():
        pytest.skip("this PyTorch does not execute it either")
    marked.rmdir()
    # Example inputs are not needed, so they are not looked at.
    with (
        contextlib.nullcontext()
        if where == "inputs"
        else pytest.raises(ScatterError, match=bad.name)
    ):
        load(str(bad))
    assert not marked.exists()


def test_a_recorded_index_is_not_unpickled(tmp_path: Path) -> None:
    marked, path = tmp_path / "executed", tmp_path / "index.npy"
    np.save(path, np.array([Marked(marked)], dtype=object), allow_pickle=True)
    with pytest.raises(ScatterError, match="cannot read"):
        draw_indices(str(path), 10, 10)
    assert not marked.exists()


def npy(header: str, content: bytes = b"") -> bytes:
    text = header.encode()
    return b"\x93NUMPY\x02\x00" + len(text).to_bytes(4, "little") + text + content


@pytest.mark.parametrize(
    "content",
    [
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (1000000000000,)}\n", bytes(80)),
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (%s,)}\n" % ("9" * 60), bytes(80)),
        npy("{'descr': '<i8', 'fortran_order': False, 'shape': (-5,)}\n", bytes(80)),
        npy("{'descr': '|O', 'fortran_order': False, 'shape': (5,)}\n", bytes(80)),
        npy("{'descr': [[['<i8']]], 'fortran_order': False, 'shape': (5,)}\n", bytes(80)),
        npy("[" * 5000),
        npy("{}" + " " * (1 << 20)),
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(18),
        b"",
    ],
    ids=["long", "longer", "negative", "objects", "type", "deep", "header", "zip", "no", "empty"],
)
def test_a_damaged_index_is_one_sentence(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "index.npy"
    path.write_bytes(content)
    with pytest.raises(ScatterError, match="cannot read") as raised:
        draw_indices(str(path), 10, 10)
    assert "\n" not in str(raised.value)


def test_a_pipe_is_no_index(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "index.npy")
    with pytest.raises(ScatterError, match="cannot read"):
        draw_indices(str(tmp_path / "index.npy"), 10, 10)


def test_a_planted_log_is_not_executed(tmp_path: Path) -> None:
    marked = tmp_path / "executed"
    statement = f"__import__('os').mkdir({str(marked)!r})\n"
    for content in (pickle.dumps(Marked(marked)), statement.encode()):
        for name in ("database_workload.json", "database_tuning_record.json"):
            (tmp_path / name).write_bytes(
                content if isinstance(content, bytes) else content.encode()
            )
        try:
            found = len(read_database(tmp_path))
        except ScatterError:
            found = 0
        assert found == 0
    with pytest.raises(ScatterError, match="cannot read"):
        ScatterProblem.from_json(pickle.dumps(Marked(marked)).decode("latin-1"))
    assert not marked.exists()
