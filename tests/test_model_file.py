"""Which files of ``torch.export.save`` the command line reads, and what it says of the others."""

from __future__ import annotations

import io
import stat
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from model_files import changed

from tvm_scatter import ScatterError
from tvm_scatter.cli.model import load
from tvm_scatter.cli.model_file import readable

torch = pytest.importorskip("torch")

WEIGHT, CONFIG = "data/weights/weight_0", "data/weights/model_weights_config.json"


class Model(torch.nn.Module):
    """One of everything that a file holds."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(3, 3)
        self.register_buffer("state", torch.ones(3))
        self.register_buffer("scratch", torch.ones(3), persistent=False)
        self.constant = torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x, index, *, scale):
        out = self.linear(x).index_add(0, index, x * scale)
        return {"sum": out + self.state + self.scratch, "most": (x + self.constant).max(1)[0]}


def exported():
    arguments = (torch.ones(4, 3), torch.tensor([0, 1, 1, 3]))
    rows = torch.export.Dim("rows", min=2)
    shapes = {"x": {0: rows}, "index": {0: rows}, "scale": None}
    return torch.export.export(
        Model().eval(), arguments, {"scale": torch.ones(3)}, dynamic_shapes=shapes
    )


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("models") / "model (1).pt2"
    torch.export.save(exported(), path, extra_files={"notes/read me.txt": "anything"})
    return path


def test_what_pytorch_saves_is_read(model: Path) -> None:
    assert len(load(str(model))["main"].params) == 3


def pickled(value: object) -> bytes:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return buffer.getvalue()


def legacy(path: Path) -> Path:
    """As PyTorch 2.6 and 2.7 wrote it."""
    from torch._export.serde.schema import SCHEMA_VERSION
    from torch._export.serde.serialize import serialize

    artifact = serialize(exported())
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("serialized_exported_program.json", artifact.exported_program)
        file.writestr("serialized_state_dict.pt", artifact.state_dict)
        file.writestr("serialized_constants.pt", artifact.constants)
        file.writestr("serialized_example_inputs.pt", artifact.example_inputs)
        file.writestr("version", ".".join(map(str, SCHEMA_VERSION)))
        file.writestr("extra_files/notes", "anything")
    return path


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_pytorch_2_6_is_read(tmp_path: Path) -> None:
    try:
        path = legacy(tmp_path / "model.pt2")
        torch.export.load(path)
    except Exception as error:
        pytest.skip(f"this PyTorch does not read such files: {error}")
    assert len(load(str(path))["main"].params) == 3


@pytest.mark.filterwarnings("ignore")
def test_a_file_of_pytorch_2_8_is_read(model: Path, tmp_path: Path) -> None:
    """Its weights and constants are one pickle each."""
    program = exported()
    constants = {**program.constants}
    path = changed(
        model,
        tmp_path / "model.pt2",
        {},
        **{
            "data/weights/model.pt": pickled(dict(program.state_dict)),
            "data/constants/model.pt": pickled(constants),
        },
    )
    assert len(load(str(path))["main"].params) == 3


def refusal(path: Path) -> str:
    """What is said of a file that is refused."""
    with pytest.raises(ScatterError) as raised:
        load(str(path))
    text = str(raised.value)
    assert path.name in text and "\n" not in text and text.endswith(".")
    return text


@pytest.mark.parametrize(
    "name",
    [
        "data/aotinductor/model/x.so",
        "data/AOTInductor/model/x.so",
        "data/constants/custom_obj_0",
        "data/constants/Opaque_obj_0",
        "data/weights/weight_0x",
        "models/second.json",
        "../models/model.json",
        "/etc/passwd",
        "data\\aotinductor\\x.so",
    ],
)
def test_other_entries_are_refused(model: Path, tmp_path: Path, name: str) -> None:
    assert repr(name) in refusal(changed(model, tmp_path / "bad.pt2", {}, **{name: b"x"}))


Writer = Callable[[zipfile.ZipFile, str], None]


def again(file: zipfile.ZipFile, folder: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        file.writestr(f"{folder}/{WEIGHT}", b"x")


def in_capitals(file: zipfile.ZipFile, folder: str) -> None:
    file.writestr(f"{folder}/{WEIGHT.upper()}", b"x")


def compressed(file: zipfile.ZipFile, folder: str) -> None:
    file.writestr(f"{folder}/data/weights/weight_9", bytes(1 << 24), zipfile.ZIP_DEFLATED)


def folder_entry(file: zipfile.ZipFile, folder: str) -> None:
    file.writestr(f"{folder}/data/", b"")


def link(file: zipfile.ZipFile, folder: str) -> None:
    entry = zipfile.ZipInfo(f"{folder}/data/weights/weight_9")
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    file.writestr(entry, "/etc/passwd")


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (again, "twice"),
        (in_capitals, "twice"),
        (compressed, "compressed"),
        (folder_entry, "no file"),
        (link, "no file"),
    ],
)
def test_odd_entries_are_refused(model: Path, tmp_path: Path, write: Writer, said: str) -> None:
    bad = changed(model, tmp_path / "bad.pt2", {})
    with zipfile.ZipFile(bad, "a") as file:
        write(file, file.namelist()[0].partition("/")[0])
    assert said in refusal(bad)


def directory_entries(content: bytes, count: int) -> list[int]:
    """Where the last entries of the central directory are."""
    found = [at for at in range(len(content)) if content.startswith(b"PK\x01\x02", at)]
    return found[-count:]


def encrypted(content: bytearray) -> None:
    content[directory_entries(content, 1)[0] + 8] |= 1


def overlapping(content: bytearray) -> None:
    """Every entry is the largest one: what a bomb without compression does."""
    places = directory_entries(content, 14)
    largest = max(places, key=lambda at: int.from_bytes(content[at + 24 : at + 28], "little"))
    for at in places:
        content[at + 16 : at + 28] = content[largest + 16 : largest + 28]
        content[at + 42 : at + 46] = content[largest + 42 : largest + 46]


def other_name(content: bytearray) -> None:
    """The directory and the entry disagree about the name."""
    at = content.index(b"data/weights/weight_1")
    content[at : at + 21] = b"data/weights/weight_9"


def other_content(content: bytearray) -> None:
    at = content.index(b"TRAINING") if b"TRAINING" in content else content.index(b"graph_module")
    content[at] ^= 1


def cut(content: bytearray) -> None:
    del content[: len(content) // 2]


@pytest.mark.parametrize("damage", [encrypted, overlapping, other_name, other_content, cut])
def test_damaged_archives_are_refused(
    model: Path, tmp_path: Path, damage: Callable[[bytearray], None]
) -> None:
    content = bytearray(model.read_bytes())
    damage(content)
    bad = tmp_path / "bad.pt2"
    bad.write_bytes(content)
    refusal(bad)


def test_pickles_in_the_file_are_looked_into(model: Path, tmp_path: Path) -> None:
    """PyTorch reads an archive in an archive, and that may be a bomb, too."""
    inner = io.BytesIO()
    with zipfile.ZipFile(inner, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("archive/data.pkl", b"x")
        file.writestr("archive/data/0", bytes(1 << 24))
    bad = changed(model, tmp_path / "bad.pt2", {}, **{"data/weights/model.pt": inner.getvalue()})
    assert "compressed" in refusal(bad)


def test_the_file_itself_is_not_read_twice(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever replaces it after the check changes nothing."""
    path, seen = tmp_path / "model.pt2", []
    path.write_bytes(model.read_bytes())
    read = torch.export.load

    def replaced(file):
        path.write_bytes(b"something else")
        seen.append(file)
        return read(file)

    monkeypatch.setattr(torch.export, "load", replaced)
    assert load(str(path))["main"] is not None
    assert seen and not isinstance(seen[0], (str, Path))


class Named(torch.nn.Module):
    """A name wherever a user may choose one."""

    def __init__(self, *, key="key", module="module", buffer="buffer", output="output"):
        super().__init__()
        self.inner = torch.nn.ModuleDict({module: torch.nn.Linear(2, 2)})
        self.register_buffer(buffer, torch.ones(2))
        self.register_buffer(f"{buffer} 2", torch.ones(2), persistent=False)
        self.names = key, buffer, output

    def forward(self, given, **more):
        key, buffer, output = self.names
        (inner,) = self.inner.values()
        getattr(self, buffer).add_(1)
        total = inner(given[key]) + getattr(self, buffer) + sum(more.values())
        return {output: total + getattr(self, f"{buffer} 2")}


def named(path: Path, keyword: str = "more", **names: str) -> Path:
    model = Named(**names)
    arguments = ({model.names[0]: torch.ones(2)},)
    torch.export.save(torch.export.export(model, arguments, {keyword: torch.ones(2)}), path)
    return path


@pytest.mark.parametrize("where", ["key", "module", "buffer", "output"])
def test_names_are_free(tmp_path: Path, where: str) -> None:
    name = "user:item, top 5% {größe} [0] \N{CAT FACE}"
    assert load(str(named(tmp_path / "model.pt2", **{where: name})))["main"] is not None


def test_names_of_outputs_are_any_text(tmp_path: Path) -> None:
    name = 'it\'s "a\\b"\n\u2028'
    assert load(str(named(tmp_path / "model.pt2", output=name)))["main"] is not None


@pytest.mark.parametrize("where", ["key", "buffer", "module"])
@pytest.mark.parametrize("name", ["it's", '"', "a\\"])
def test_names_that_end_a_quotation_are_refused(tmp_path: Path, where: str, name: str) -> None:
    """PyTorch writes them into Python that it executes, between quotes."""
    said = refusal(named(tmp_path / "model.pt2", **{where: name}))
    assert repr(name)[1:-1] in said and "torch.export.save" not in said


def test_keywords_are_identifiers_to_pytorch(tmp_path: Path) -> None:
    assert "'a:b'" in refusal(named(tmp_path / "model.pt2", keyword="a:b"))


class Sizes(torch.nn.Module):
    """Expressions of sizes, checks, texts, a branch, and arguments of every nesting."""

    def forward(self, x, target, *, metadata):
        rows = x.shape[0] // 2 + max(x.shape[0], target.shape[0]) % 3
        with torch.no_grad():
            out = torch.nn.functional.gelu(x, approximate="tanh").sum() * rows
        number = metadata["a key"][0].sum().to(torch.int64).item()
        torch._check(number >= 2)
        torch._check(number < 100)
        out = out + torch.zeros(number).sum() + target.sum().item()
        return torch.cond(x.sum() > 0, lambda a: a + 1, lambda a: a - 1, (out,))


def test_programs_of_many_kinds_are_taken(tmp_path: Path) -> None:
    size = torch.export.Dim("size", min=3, max=100)
    program = torch.export.export(
        Sizes(),
        (torch.ones(6, 2), torch.ones(12)),
        {"metadata": {"a key": (torch.ones(5),)}},
        dynamic_shapes={
            "x": {0: size},
            "target": {0: 2 * size},
            "metadata": {"a key": ({0: torch.export.Dim.DYNAMIC},)},
        },
    )
    path = tmp_path / "model.pt2"
    torch.export.save(program, path)
    with readable(path) as file:
        again = torch.export.load(file)
    assert len(list(again.graph.nodes)) == len(list(program.graph.nodes))
    assert set(map(str, again.range_constraints)) == set(map(str, program.range_constraints))
