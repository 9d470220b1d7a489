"""The cache of compiled kernels: what a key holds, the store on disk, and TVM's callback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import resource
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from cuda_cases import cuda_target
from harness import relax_function
from tvm import relax
from tvm.support import nvcc

import tvm_scatter
from tvm_scatter import ScatterError
from tvm_scatter.cli import main
from tvm_scatter.ops.operators import index_put
from tvm_scatter.runtime import kernel_cache
from tvm_scatter.runtime.cuda_toolkit import nvrtc_version
from tvm_scatter.runtime.kernel_cache import Store, headers, settings, statistics
from tvm_scatter.runtime.kernel_cache import compile as cache
from tvm_scatter.runtime.kernel_cache import store as store_module

needs_nvrtc = pytest.mark.skipif(nvrtc_version() is None, reason="nvrtc is not installed")

CALLBACK = "tvm_callback_cuda_compile"
KEY = "ab" + "0" * 62


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    """Nothing here touches the user's cache."""
    monkeypatch.setenv(settings.FOLDER, str(tmp_path / "cache"))
    monkeypatch.delenv(settings.SWITCH, raising=False)
    kernel_cache.forget()
    yield
    kernel_cache.forget()


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "kernels", 1 << 20)


# The store


def test_what_is_written_is_read(store):
    assert store.read(KEY) is None
    store.write(KEY, b"binary")
    assert store.read(KEY) == b"binary"
    assert store.read(KEY.replace("0", "1")) is None


@pytest.mark.parametrize(
    "damage",
    {
        "truncated": lambda content: content[:-1],
        "flipped": lambda content: content[:-1] + bytes([content[-1] ^ 1]),
        "empty": lambda content: b"",
        "foreign": lambda content: b"\x7fELF",
        "grown": lambda content: content + b"\0",
    }.items(),
    ids=lambda item: item[0],
)
def test_a_damaged_entry_is_a_miss_and_is_replaced(store, damage):
    store.write(KEY, b"binary")
    (entry,) = store.entries()
    entry.path.write_bytes(damage[1](entry.path.read_bytes()))
    assert store.read(KEY) is None
    store.write(KEY, b"binary")
    assert store.read(KEY) == b"binary"


def test_an_entry_answers_to_its_own_key_only(store):
    store.write(KEY, b"binary")
    other = KEY[:-1] + "1"
    shutil.copy(store._path(KEY), store._path(other))
    assert store.read(other) is None


def test_the_folder_is_private(store):
    store.write(KEY, b"binary")
    assert store.folder.stat().st_mode & 0o777 == 0o700
    store.folder.chmod(0o777)
    assert store.read(KEY) == b"binary"
    assert store.folder.stat().st_mode & 0o777 == 0o700


def as_link(path):
    path.rename(path.with_name("elsewhere"))
    path.symlink_to(path.with_name("elsewhere"))


def as_pipe(path):
    path.unlink()
    os.mkfifo(path)


def as_open_to_others(path):
    path.chmod(0o666)


def as_another_users(path):
    if os.geteuid() != 0:
        pytest.skip("only root may give a file away")
    os.chown(path, 12345, 12345)


@pytest.mark.parametrize("plant", [as_link, as_pipe, as_open_to_others, as_another_users])
def test_planted_entries_are_not_used(store, plant):
    """The folder was open to others once, and is closed by now."""
    store.write(KEY, b"binary")
    plant(store._path(KEY))
    assert store.read(KEY) is None
    store.write(KEY, b"fresh")
    assert store.read(KEY) == b"fresh"


@pytest.mark.parametrize("plant", [as_link, as_another_users])
@pytest.mark.parametrize("level", ["folder", "parent"])
def test_planted_folders_are_not_used(store, plant, level):
    """Nothing in them is read, written, deleted or given other rights."""
    store.write(KEY, b"binary")
    path = store._path(KEY)
    planted = {"folder": store.folder, "parent": path.parent}[level]
    plant(planted)
    before = path.stat()
    assert store.read(KEY) is None
    store.write(KEY, b"fresh")
    with store.lock(KEY):
        pass
    assert store.entries() == store.clear() == []
    after = path.stat()
    assert (before.st_mtime_ns, before.st_mode) == (after.st_mtime_ns, after.st_mode)


def test_a_planted_lock_overwrites_nothing(store, tmp_path):
    store.write(KEY, b"binary")
    target = tmp_path / "mine"
    target.write_text("precious")
    (store.folder / f"{KEY[:2]}.lock").symlink_to(target)
    with store.lock(KEY):
        pass
    assert target.read_text() == "precious"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_of_another_user_is_not_used(store):
    store.write(KEY, b"binary")
    os.chown(store.folder, 12345, -1)
    assert store.read(KEY) is None
    store.write(KEY[:-1] + "1", b"binary")
    assert len(list(store.folder.glob("??/*"))) == 1


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o775])
def test_a_folder_that_others_can_exchange_is_not_used(tmp_path, caplog, mode):
    """Between any two looks at it, they may put a link in its place."""
    shared = tmp_path / "shared"
    store = Store(shared / "ours" / "kernels", 1 << 20)
    store.write(KEY, b"binary")
    shared.chmod(mode)
    assert store.read(KEY) is None
    store.write(KEY, b"fresh")
    assert store.clear() == []
    assert f"others may write to {shared} above it" in caplog.text
    shared.chmod(0o1777)
    assert store.read(KEY) == b"binary"


def test_a_link_that_others_can_exchange_is_not_followed(tmp_path):
    shared, own = tmp_path / "shared", tmp_path / "own"
    own.mkdir()
    shared.mkdir()
    (shared / "link").symlink_to(own)
    store = Store(shared / "link" / "kernels", 1 << 20)
    store.write(KEY, b"binary")
    assert store.read(KEY) == b"binary"
    shared.chmod(0o777)
    assert store.read(KEY) is None
    assert Store(own / "kernels", 1 << 20).read(KEY) == b"binary"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may give a folder away")
def test_a_folder_inside_of_another_users_is_not_used(tmp_path):
    store = Store(tmp_path / "theirs" / "kernels", 1 << 20)
    store.write(KEY, b"binary")
    os.chown(store.folder.parent, 12345, -1)
    assert store.read(KEY) is None


def test_folders_are_made_for_the_user_alone(tmp_path):
    before = os.umask(0o002)
    try:
        store = Store(tmp_path / "new" / "newer" / "kernels", 1 << 20)
        store.write(KEY, b"binary")
    finally:
        os.umask(before)
    assert store.read(KEY) == b"binary"


def test_a_huge_entry_is_not_read(store):
    """A sparse file takes no room on the disk, but all of the memory."""
    unlimited = Store(store.folder, 1 << 50)
    store.write(KEY, b"binary")
    os.truncate(store._path(KEY), 1 << 42)
    assert store.read(KEY) is unlimited.read(KEY) is None
    store.write(KEY, b"fresh")
    assert store.read(KEY) == b"fresh"


def test_files_of_others_are_left_alone(store):
    store.write(KEY, b"binary")
    folder = store._path(KEY).parent
    foreign = [folder / name for name in ("thesis.txt", ".keep", "cd" + "0" * 62)]
    for path in foreign:
        path.write_text("mine")
    assert [entry.path.name for entry in store.clear()] == [KEY]
    assert all(path.exists() for path in foreign)


def test_a_full_disk_leaves_nothing_behind(store):
    store.write(KEY, b"binary")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        store.write(KEY[:-1] + "1", b"x" * 5000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert [entry.path.name for entry in store.entries()] == [KEY]
    assert not list(store.folder.rglob(f"{store_module._TEMPORARY}*"))


def test_no_folder_no_cache(tmp_path):
    (tmp_path / "file").write_text("in the way")
    store = Store(tmp_path / "file" / "kernels", 1 << 20)
    with store.lock(KEY):
        assert store.read(KEY) is None
        store.write(KEY, b"binary")
    assert store.read(KEY) is None


def test_the_least_recently_used_go_first(tmp_path):
    store = Store(tmp_path / "kernels", 10_000)
    keys = [f"{i:02x}" + "0" * 62 for i in range(4)]
    for age, key in enumerate(keys[:3]):
        store.write(key, b"x" * 3000)
        os.utime(store._path(key), (age, age))
    store.read(keys[0])
    store.write(keys[3], b"x" * 3000)
    kept = {entry.path.name for entry in store.entries()}
    assert keys[0] in kept and keys[3] in kept
    assert keys[1] not in kept
    assert sum(entry.size for entry in store.entries()) <= 10_000


def test_what_is_larger_than_the_cap_is_not_kept(tmp_path):
    store = Store(tmp_path / "kernels", 1000)
    store.write(KEY, b"x" * 3000)
    assert not store.entries()


def test_files_of_killed_writers_go(store):
    store.write(KEY, b"binary")
    folder = store._path(KEY).parent
    old, new = (folder / f"{store_module._TEMPORARY}{name}" for name in ("old", "new"))
    for path in (old, new):
        path.write_bytes(b"half")
    os.utime(old, (0, 0))
    assert [entry.path.name for entry in store.entries()] == [KEY]
    store.write(KEY, b"binary")
    assert not old.exists() and new.exists()


#: A process that uses the store by itself, without the seconds that importing TVM takes.
PROCESS = f"""
import importlib.util, sys, time
from pathlib import Path
spec = importlib.util.spec_from_file_location("store", {store_module.__file__!r})
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)
store = module.Store(Path(sys.argv[1]), 1 << 20)
"""


def process(folder, text, *arguments):
    command = [sys.executable, "-c", PROCESS + textwrap.dedent(text), str(folder), *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def test_many_processes_compile_each_key_once(tmp_path):
    compiled = tmp_path / "compiled"
    text = """
    for key in ("aa" * 32, "bb" * 32, "cc" * 32):
        with store.lock(key):
            if store.read(key) is None:
                with open(sys.argv[2], "a") as file:
                    file.write(key + "\\n")
                time.sleep(0.05)
                store.write(key, key.encode())
        assert store.read(key) == key.encode()
    """
    started = [process(tmp_path / "kernels", text, str(compiled)) for _ in range(8)]
    assert [running.wait(60) for running in started] == [0] * 8
    assert sorted(compiled.read_text().split()) == ["aa" * 32, "bb" * 32, "cc" * 32]


def test_a_killed_owner_frees_its_lock(tmp_path):
    text = f"""
    with store.lock({KEY!r}):
        print("held", flush=True)
        time.sleep(600)
    """
    owner = process(tmp_path / "kernels", text)
    assert owner.stdout.readline() == "held\n"
    owner.kill()
    owner.wait()
    start = time.monotonic()
    with Store(tmp_path / "kernels", 1 << 20).lock(KEY):
        assert time.monotonic() - start < 30


# The key

SOURCE = "__global__ void nothing() {}\n"


class Compiler:
    """Stands for TVM's callback, and counts."""

    def __init__(self):
        self.calls = []

    def __call__(self, source):
        self.calls.append(source)
        return b"binary " + str(len(self.calls)).encode()

    def get(self, source=SOURCE, arch="sm_80", fresh=True):
        """What the cache answers, as a new process would get it if ``fresh``."""
        if fresh:
            kernel_cache.forget()
        return cache.compile_cached(source, cuda_target(arch), self)


@needs_nvrtc
def test_compiled_once_for_memory_and_disk():
    compiler = Compiler()
    assert [compiler.get(fresh=fresh) for fresh in (True, False, True)] == [b"binary 1"] * 3
    assert len(compiler.calls) == 1


@needs_nvrtc
def test_what_another_process_compiles_meanwhile_is_taken(monkeypatch):
    """It held the lock, and has written what this one waits to compile."""
    lock = Store.lock

    @contextlib.contextmanager
    def late(store, key):
        with lock(store, key):
            store.write(key, b"binary of another")
            yield

    monkeypatch.setattr(Store, "lock", late)
    compiler = Compiler()
    assert compiler.get() == b"binary of another" and not compiler.calls


@needs_nvrtc
@pytest.mark.usefixtures("quick_processes")
def test_a_process_killed_while_it_compiles_holds_nobody_up():
    text = f"""
    import time
    from tvm.target import Target
    from tvm_scatter.runtime.kernel_cache import compile
    def hang(source):
        print("compiling", flush=True)
        time.sleep(600)
    compile.compile_cached({SOURCE!r}, Target({dict(cuda_target("sm_80").export())!r}), hang)
    """
    command = [sys.executable, "-c", textwrap.dedent(text)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout.readline() == "compiling\n"
        child.kill()
    compiler, begin = Compiler(), time.monotonic()
    assert compiler.get() == b"binary 1"
    assert time.monotonic() - begin < 30
    assert compiler.get() == b"binary 1", "what is compiled now is kept"
    assert len(Store(settings.folder(), 1 << 20).entries()) == 1


@needs_nvrtc
def test_the_key_holds_source_and_architecture():
    compiler = Compiler()
    compiler.get()
    compiler.get(source=SOURCE + " ")
    compiler.get(arch="sm_75")
    assert len(compiler.calls) == 3


@needs_nvrtc
@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TVM_CUDA_PTXAS_REG_LEVEL", "5"),
        ("TVM_CUDA_PTXAS_EXTRA_OPTS", "-O1"),
        ("TVM_CUDA_NVRTC_EXTRA_OPTS", "--ftz=false"),
    ],
)
def test_the_key_holds_options(monkeypatch, variable, value):
    compiler = Compiler()
    compiler.get()
    before = os.environ.get(variable, "")
    monkeypatch.setenv(variable, f"{before} {value}".strip())
    compiler.get()
    assert len(compiler.calls) == 2
    monkeypatch.setenv(variable, before)
    compiler.get()
    assert len(compiler.calls) == 2


@needs_nvrtc
def test_the_key_holds_headers_and_not_where_they_stand(monkeypatch, tmp_path):
    source = '#include "ours.h"\n' + SOURCE
    compiler = Compiler()

    def get(folder, inner):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "ours.h").write_text("#include <inner.h>\n")
        (tmp_path / folder / "inner.h").write_text(inner)
        monkeypatch.setenv("TVM_CUDA_NVRTC_EXTRA_OPTS", f"-I{tmp_path / folder}")
        return compiler.get(source)

    first = get("here", "int one;")
    assert get("there", "int one;") == first
    assert get("elsewhere", "int two;") != first


def test_a_digest_of_headers_is_kept_until_one_changes(monkeypatch, tmp_path):
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        folder.mkdir()
    (first / "ours.h").write_text("#include <inner.h>\n")
    (second / "inner.h").write_text("int one;")
    reads = []
    read = Path.read_bytes
    monkeypatch.setattr(Path, "read_bytes", lambda path: reads.append(path) or read(path))

    def digest():
        """As a new process would get it, and which headers were read for it."""
        headers.headers_digest.cache_clear()
        reads.clear()
        found = headers.headers_digest(frozenset({"ours.h"}), (first, second))
        return found, {path.name for path in reads if path.suffix == ".h"}

    begun, read_first = digest()
    assert read_first == {"ours.h", "inner.h"}
    assert digest() == (begun, set())
    (second / "inner.h").write_text("int two;")
    changed, read_again = digest()
    assert changed != begun and read_again == read_first
    # A header that is found earlier, in a folder where nothing was.
    (first / "inner.h").write_text("int one;")
    assert digest()[0] == begun
    (first / "inner.h").unlink()
    assert digest()[0] == changed


@needs_nvrtc
@pytest.mark.skipif(shutil.which("nvcc") is None, reason="nvcc is not installed")
def test_the_key_holds_the_compiler(monkeypatch):
    compiler = Compiler()
    compiler.get()
    monkeypatch.setenv("TVM_CUDA_COMPILE_MODE", "nvcc")
    compiler.get()
    for name, value in [("NVCC_APPEND_FLAGS", "-lineinfo"), ("TVM_CUDA_NVCC_NO_FAST_MATH", "1")]:
        monkeypatch.setenv(name, value)
        compiler.get()
    assert len(compiler.calls) == 4


@needs_nvrtc
@pytest.mark.parametrize(("variable", "value"), [(settings.SWITCH, "0"), ("TVM_KERNEL_DUMP", "x")])
def test_nothing_is_kept(monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    compiler = Compiler()
    compiler.get()
    compiler.get(fresh=False)
    assert len(compiler.calls) == 2
    assert not settings.folder().exists()


@pytest.mark.parametrize(("text", "limit"), [("", 1 << 30), ("4096", 4096), ("3M", 3 << 20)])
def test_size_limit(monkeypatch, text, limit):
    monkeypatch.setenv(settings.SIZE, text)
    assert settings.size_limit() == limit


def test_a_bad_size_limit_is_refused(monkeypatch):
    monkeypatch.setenv(settings.SIZE, "much")
    with pytest.raises(ScatterError, match="TVM_SCATTER_CACHE_SIZE='much'"):
        settings.size_limit()


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        (settings.SIZE, "9" * 5000),
        (settings.SIZE, "9" * 5000 + "G"),
        (settings.SIZE, "²"),
        (settings.FOLDER, "~nosuchuser/x"),
    ],
)
def test_odd_settings_are_refused_in_one_line(monkeypatch, capfd, variable, value):
    monkeypatch.setenv(variable, value)
    assert main(["cache"]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line.startswith(f"tvm-scatter cache: {variable}=") and len(line) < 200


def test_command(capsys):
    Store(settings.folder(), 1 << 20).write(KEY, b"binary")
    assert main(["cache"]) == 0
    assert f"{settings.folder()}: 1 kernel module, " in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "deleted 1 kernel module" in capsys.readouterr().out
    assert main(["cache", "info"]) == 0
    assert ": 0 kernel modules, " in capsys.readouterr().out


# TVM's callback


def scatter_module(count=1):
    """``count`` equal scatters, one after another."""

    def build(data, index, updates):
        for _ in range(count):
            data = relax.BlockBuilder.current().emit(index_put(data, [index], updates, [0], "add"))
        return data

    builder = relax.BlockBuilder()
    arrays = [np.zeros((9, 4), "float32"), np.zeros(3, "int64"), np.zeros((3, 4), "float32")]
    relax_function(builder, "main", build, arrays)
    return builder.get()


@pytest.fixture
def with_nvrtc():
    """TVM's own compiler behind the cache, whatever compiler the tests have put in its place."""
    before = tvm_ffi.get_global_func(CALLBACK)
    tvm_ffi.register_global_func(CALLBACK, nvcc.tvm_callback_cuda_compile, override=True)
    kernel_cache.install_cache()
    yield
    kernel_cache.uninstall_cache()
    tvm_ffi.register_global_func(CALLBACK, before, override=True)


@needs_nvrtc
def test_builds_are_for_the_targets_architecture_and_compiled_once(with_nvrtc):
    if not tvm.cuda(0).exist:
        pytest.skip("without a driver TVM compiles when a library is loaded")
    source, compiled = SOURCE, statistics.compiled
    for arch in ("sm_80", "sm_86"):
        target = cuda_target(arch)
        tvm_ffi.get_global_func("tvm_callback_cuda_postproc")(source, target)
        binary = bytes(tvm_ffi.get_global_func(CALLBACK)(source))
        with target:
            expected = bytes(nvcc.compile_cuda(source, target_format="cubin", compiler="nvrtc"))
        assert binary == expected, arch
    assert statistics.compiled == compiled + 2

    disk, memory = statistics.disk, statistics.memory
    module, target = scatter_module(), cuda_target("sm_80")
    tvm.compile(module, target)
    tvm.compile(module, target)
    assert (statistics.compiled, statistics.memory) == (compiled + 3, memory + 1)
    kernel_cache.forget()
    tvm.compile(module, target)
    assert (statistics.compiled, statistics.disk) == (compiled + 3, disk + 1)


def test_another_compiler_is_left_alone():
    before = tvm_ffi.get_global_func(CALLBACK)
    tvm_ffi.register_global_func(CALLBACK, lambda source: b"theirs", override=True)
    try:
        kernel_cache.install_cache()
        assert tvm_ffi.get_global_func(CALLBACK)(SOURCE) == b"theirs"
        kernel_cache.uninstall_cache()
        assert tvm_ffi.get_global_func(CALLBACK)(SOURCE) == b"theirs"
    finally:
        tvm_ffi.register_global_func(CALLBACK, before, override=True)


def test_uninstall_gives_tvms_compiler_back(with_nvrtc):
    postproc = "tvm_callback_cuda_postproc"
    assert not tvm_ffi.get_global_func(CALLBACK).same_as(nvcc.tvm_callback_cuda_compile)
    kernel_cache.uninstall_cache()
    assert tvm_ffi.get_global_func(CALLBACK).same_as(nvcc.tvm_callback_cuda_compile)
    assert tvm_ffi.get_global_func(postproc, allow_missing=True) is None
    tvm_ffi.register_global_func(postproc, lambda source, target: source + "// theirs")
    kernel_cache.install_cache()
    try:
        assert tvm_ffi.get_global_func(postproc)("", cuda_target("sm_80")) == "// theirs"
    finally:
        kernel_cache.uninstall_cache()
        assert tvm_ffi.get_global_func(postproc)("", cuda_target("sm_80")) == "// theirs"
        tvm_ffi.remove_global_func(postproc)


def test_equal_problems_of_a_module_are_one_kernel():
    with cuda_target("sm_90"):
        legal = relax.transform.LegalizeOps()(scatter_module(count=5))
    functions = [f for f in legal.functions.values() if isinstance(f, tvm.tirx.PrimFunc)]
    assert len(functions) == 1


def test_a_simulated_compiler_never_reaches_the_cache():
    assert importlib.util.find_spec("cuda_on_cpu") is not None
    from cuda_on_cpu import status

    if not status():
        pytest.skip(status().reason)
    before = statistics.compiled, statistics.passed
    tvm.compile(scatter_module(), cuda_target("sm_90"))
    assert (statistics.compiled, statistics.passed) == before
    assert tvm_scatter.is_installed()
    assert not settings.folder().exists()
