"""The command line: what it prints, and one sentence for bad input."""

from __future__ import annotations

import io
import json
import os
import shlex
import shutil
import subprocess
import sys
import zipfile

import numpy as np
import pytest
import tvm
from tvm import relax

from tvm_scatter.cli import main
from tvm_scatter.runtime import cpu_threads
from tvm_scatter.runtime.cpu_threads import in_words

torch = pytest.importorskip("torch")


class Add(torch.nn.Module):
    def forward(self, data, index, updates):
        return data.index_add(0, index, updates)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "add.pt2"
    inputs = (torch.zeros(9, 4), torch.tensor([1, 1, 8]), torch.ones(3, 4))
    torch.export.save(torch.export.export(Add(), inputs), path)
    return path


def run(capfd, *arguments):
    status = main([str(argument) for argument in arguments])
    out, err = capfd.readouterr()
    return status, out, err


def test_compile(model, tmp_path, capfd):
    library = tmp_path / "add.so"
    status, out, _ = run(capfd, "compile", model, "--target", "llvm", "-o", library)
    assert status == 0
    assert "1 x " in out
    machine = relax.VirtualMachine(tvm.runtime.load_module(str(library)), tvm.cpu())
    arrays = (np.zeros((9, 4), "float32"), np.array([1, 1, 8]), np.ones((3, 4), "float32"))
    result = machine["main"](*map(tvm.runtime.tensor, arrays))[0].numpy()
    np.testing.assert_array_equal(result[:, 0], [0, 2, 0, 0, 0, 0, 0, 0, 1])


def test_explain(model, capfd):
    status, out, err = run(capfd, "explain", model, "--target", "llvm")
    assert status == 0
    assert "index_add" in out
    assert "importing" in err


class Spread(torch.nn.Module):
    def forward(self, data, index, updates):
        return data.scatter_add(0, index.unsqueeze(1).expand(3, 4), updates)


def test_passes_can_be_left_out(tmp_path, capfd):
    path = tmp_path / "spread.pt2"
    inputs = (torch.zeros(9, 4), torch.tensor([1, 1, 8]), torch.ones(3, 4))
    torch.export.save(torch.export.export(Spread(), inputs), path)
    command = ("explain", path, "--target", "llvm")
    _, out, _ = run(capfd, *command)
    assert "fold_broadcast_index: main." in out
    _, out, _ = run(capfd, *command, "--without", "fold_broadcast_index")
    assert "fold_broadcast_index" not in out


def test_a_cuda_graph_takes_a_gpu(model, capfd):
    command = ("explain", model, "--cuda-graph", "--target")
    complaint(capfd, *command, "llvm", about="--cuda-graph")
    assert run(capfd, *command, "sm_90")[0] == 0


def test_explain_as_data(model, capfd):
    command = ("explain", model, "--target", "sm_90", "--json", "--implementation", "sequential")
    status, out, _ = run(capfd, *command)
    (explanation,) = json.loads(out)
    assert status == 0
    assert explanation["target"] == "cuda"
    assert explanation["source"] == "forced"
    assert explanation["choices"][0]["implementation"] == "sequential"


def test_doctor(capfd):
    status, out, _ = run(capfd, "doctor")
    assert status == 0
    for word in ("apache-tvm-ffi", "TVM uses", "GPU", "CUDA compiler", "sequential"):
        assert word in out


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize("threads", ["1", "2"])
@pytest.mark.turns(2)
def test_threads_are_counted(threads):
    """Who sets fewer threads than there are cores is told so."""
    assert ("set TVM_NUM_THREADS=2" in in_words(int(threads), 2)) == (threads == "1")
    assert in_words(int(threads), None).startswith(f"TVM uses {threads} thread")
    code = "from tvm_scatter.runtime.cpu_threads import *; print(usable_cores(), threads_of_tvm())"
    environment = {**os.environ, "TVM_NUM_THREADS": threads}
    said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
    found, own = said.split()
    assert own == threads and (found == "None" or int(found) >= 1)


@pytest.mark.parametrize(("said", "cores"), [("max 100000", None), ("50000 100000", 1)])
def test_a_container_has_a_quota(monkeypatch, tmp_path, said, cores):
    (tmp_path / "cpu.max").write_text(said)
    without = cpu_threads.usable_cores()
    monkeypatch.setattr(cpu_threads, "_QUOTA", tmp_path / "cpu.max")
    found = cpu_threads.usable_cores()
    assert found == (without if without is None or cores is None else cores)


def test_demo(capfd):
    pytest.importorskip("torch_geometric")
    command = ("demo", "--small", "--target", "llvm", "--model", "gcn")
    status, out, _ = run(capfd, *command)
    assert status == 0
    assert "1 of 1 agree with PyTorch on llvm." in out
    assert "scatter_add.default" in out


def bad_files(folder):
    text, archive, weights = folder / "text.pt2", folder / "zip.pt2", folder / "weights.pt2"
    text.write_text("no model")
    with zipfile.ZipFile(archive, "w") as file:
        file.writestr("a", "b")
    torch.save({"weight": torch.zeros(2)}, weights)
    return {
        "missing": folder / "missing.pt2",
        "folder": folder,
        "text": text,
        "archive": archive,
        "weights": weights,
    }


@pytest.mark.parametrize("command", ["compile", "explain"])
@pytest.mark.parametrize("kind", ["missing", "folder", "text", "archive", "weights"])
def test_a_file_that_is_no_model(command, kind, tmp_path, capfd):
    path = bad_files(tmp_path)[kind]
    complaint(capfd, command, path, "--target", "llvm", about=path.name)


def complaint(capfd, *arguments, about):
    """Run a command that must fail with one sentence on standard error."""
    status, out, err = run(capfd, *arguments)
    lines = [line for line in err.splitlines() if not line.startswith(("importing", "compiling"))]
    assert status == 2
    assert out == ""
    assert len(lines) == 1, err
    assert lines[0].startswith("tvm-scatter ")
    assert lines[0].endswith(".")
    assert about in lines[0]


def test_unknown_target(model, capfd):
    complaint(capfd, "compile", model, "--target", "abacus", about="'abacus'")


@pytest.mark.parametrize("name", ["sm_10", "sm_49", "sm_9000", "sm_999999999999", "sm_1300"])
def test_an_architecture_that_was_never_made(name, model, capfd):
    complaint(capfd, "explain", model, "--target", name, about=f"unknown target '{name}'")


@pytest.mark.parametrize("name", ["sm_52", "sm_90a", "sm_100f", "sm_120"])
def test_architectures(name, model, capfd):
    assert run(capfd, "explain", model, "--target", name)[0] == 0


def test_a_model_without_a_name(capfd):
    complaint(capfd, "compile", "", about="'' names no model")


def test_what_is_no_regular_file_is_not_written(model, capfd):
    command = ("compile", model, "--target", "llvm", "-o", "/dev/full")
    complaint(capfd, *command, about="/dev/full is no regular file")


def test_a_cache_that_cannot_be(capfd, monkeypatch):
    monkeypatch.setenv("TVM_SCATTER_CACHE_DIR", "/proc/nowhere")
    complaint(capfd, "cache", about="/proc/nowhere")


def test_unknown_implementation(model, capfd):
    command = ("explain", model, "--target", "llvm", "--implementation", "magic")
    complaint(capfd, *command, about="'magic'")


def test_options_of_a_target_are_json(model, capfd):
    said = '\'{"kind": "llvm", "mcpu": "core-avx2"}\''
    complaint(capfd, "explain", model, "--target", "llvm -mcpu=core-avx2", about=said)
    assert run(capfd, "explain", model, "--target", said.strip("'"))[0] == 0


def test_the_model_is_not_overwritten(model, tmp_path, capfd):
    link, before = tmp_path / "link.so", model.read_bytes()
    link.symlink_to(model)
    for output in (model, link, model.parent / "." / model.name):
        complaint(capfd, "compile", model, "-o", output, about="the model itself")
    assert model.read_bytes() == before


@pytest.mark.parametrize("arguments", [(".",), ("..",), ("/",), ("model.pt2\0",)])
def test_what_is_no_file_is_not_compiled(arguments, capfd):
    complaint(capfd, "compile", *arguments, about=arguments[0].strip("\0"))


def test_a_device_is_no_model(capfd):
    complaint(capfd, "explain", "/dev/null", about="it is no regular file")


def test_a_name_that_is_no_utf8(model, tmp_path, monkeypatch):
    """It can be shown all the same, and the library written."""
    named = os.fsencode(tmp_path) + b"/add\xff"
    shutil.copy(model, named + b".pt2")
    monkeypatch.chdir(tmp_path)
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", mode) for mode in ("strict", "replace"))
    monkeypatch.setattr(sys, "stdout", out)
    monkeypatch.setattr(sys, "stderr", err)
    assert main(["compile", os.fsdecode(named + b".pt2"), "--target", "llvm"]) == 0
    assert rb"add\udcff.so" in out.buffer.getvalue()
    assert os.path.exists(named + b".so")


def test_a_folder_is_no_output(model, capfd):
    complaint(capfd, "compile", model, "--target", "llvm", "-o", ".", about="is a folder")


def test_a_name_that_no_file_can_have(model, capfd):
    complaint(capfd, "compile", model, "--target", "llvm", "-o", "x" * 300, about="too long")


def test_no_folder_for_the_output(model, tmp_path, capfd):
    output = tmp_path / "nowhere" / "add.so"
    complaint(capfd, "compile", model, "--target", "llvm", "-o", output, about="nowhere")


def test_unknown_demo_model(capfd):
    pytest.importorskip("torch_geometric")
    complaint(capfd, "demo", "--target", "llvm", "--model", "GPT", about="'gpt'")


def test_a_model_that_tvm_cannot_import(tmp_path, capfd):
    class Unsupported(torch.nn.Module):
        def forward(self, x):
            return torch.special.bessel_j0(x)

    path = tmp_path / "unsupported.pt2"
    torch.export.save(torch.export.export(Unsupported(), (torch.ones(3),)), path)
    complaint(capfd, "compile", path, "--target", "llvm", about="bessel_j0")


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.exhaustive
def test_no_command_is_a_usage_error():
    command = [sys.executable, "-m", "tvm_scatter.cli"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 2
    assert "Traceback" not in finished.stderr


@pytest.mark.parametrize(("name", "about"), [("", "names no file"), ("new/", "is a folder")])
def test_the_output_is_a_file(name, about, model, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    complaint(capfd, "compile", model, "--target", "llvm", "-o", name, about=about)
    assert not list(tmp_path.glob("new*"))


def in_shell(*arguments, before="", after=""):
    command = [sys.executable, "-m", "tvm_scatter.cli", *map(str, arguments)]
    line = f"{before} {shlex.join(command)} {after}"
    return subprocess.run(
        ["sh", "-c", line], capture_output=True, text=True, check=False, timeout=120
    )


def test_the_table_is_shown_without_a_width_and_errors(model, capfd, monkeypatch):
    monkeypatch.setenv("COLUMNS", "0")
    monkeypatch.setattr(sys, "stderr", None)
    status, out, _ = run(capfd, "explain", model, "--target", "llvm")
    assert status == 0
    assert "chosen" in out


@pytest.mark.exhaustive
def test_the_table_is_shown_however_the_shell_is_set(model):
    finished = in_shell("explain", model, "--target", "llvm", before="COLUMNS=0", after="2>&-")
    assert finished.returncode == 0, finished.stderr
    assert "chosen" in finished.stdout


@pytest.mark.usefixtures("quick_processes")
def test_output_to_a_full_device_is_no_traceback():
    finished = in_shell("cache", after=">/dev/full")
    assert finished.returncode == 2
    full = "tvm-scatter cache: the output cannot be written: No space left on device.\n"
    assert finished.stderr == full


@pytest.mark.exhaustive
@pytest.mark.parametrize(("odd", "status"), [(">/dev/full", 2), (">&- 2>&- <&-", 0)])
def test_output_that_goes_nowhere_is_no_traceback(model, odd, status):
    finished = in_shell("explain", model, "--target", "llvm", after=odd)
    assert finished.returncode == status
    lines = [line for line in finished.stderr.splitlines() if "importing" not in line]
    full = "tvm-scatter explain: the output cannot be written: No space left on device."
    assert lines == ([full] if status else [])


_INTERRUPTED = """
import signal, sys

# What runs in the background of a shell ignores it.
signal.signal(signal.SIGINT, signal.default_int_handler)
at, sys.argv = sys.argv[1], ["/usr/bin/tvm-scatter", *sys.argv[2:]]

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == at:
            sys.meta_path.remove(self)
            signal.raise_signal(signal.SIGINT)

sys.meta_path.insert(0, Finder())
from tvm_scatter.cli import main
sys.exit(main())
"""


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.parametrize(
    "at",
    [
        "numpy.exceptions",
        "tvm_scatter.lowering",
        *(
            pytest.param(other, marks=pytest.mark.exhaustive)
            for other in ("numpy", "tvm", "torch", "xgboost")
        ),
    ],
)
def test_an_interrupted_import_is_one_line(at, model, tmp_path):
    command = {
        "xgboost": ["tune", str(model), "--work-dir", str(tmp_path), "--target", "llvm"],
    }.get(at, ["demo", "--target", "llvm"])
    finished = subprocess.run(
        [sys.executable, "-c", _INTERRUPTED, at, *command],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert finished.returncode == 130, finished.stderr
    assert [line for line in finished.stderr.splitlines() if "importing" not in line] == [
        finished.stderr.splitlines()[-1]
    ]
    assert finished.stderr.endswith(": interrupted.\n")


@pytest.mark.parametrize(
    "odd",
    [
        ("--timeout", "nan"),
        ("--timeout", "inf"),
        ("--seconds", "nan"),
        ("--seconds", "-1"),
        ("--grid", "random:" + "9" * 5000),
        ("--range", "n=" + "9" * 5000 + ":3"),
        ("--import", ""),
        ("--import", ".x"),
        ("--tracker", "host:" + "9" * 5000),
    ],
)
def test_odd_arguments_of_tune(odd, model, tmp_path, capfd):
    given = () if odd[0] == "--grid" else (model,)
    command = ("tune", *given, "--target", "llvm", "--work-dir", tmp_path / "log", *odd)
    complaint(capfd, *command, about=odd[1][:8])


@pytest.mark.usefixtures("quick_processes")
@pytest.mark.exhaustive
def test_pictures_need_no_backend_of_the_environment():
    pytest.importorskip("matplotlib")
    draw = "from tvm_scatter.tuning.bench.pyplot import pyplot; print(pyplot('it').get_backend())"
    finished = subprocess.run(
        [sys.executable, "-c", draw],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "MPLBACKEND": "nonsense"},
    )
    assert finished.stdout.strip().lower() == "agg", finished.stderr
