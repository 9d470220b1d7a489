"""Judge the models of the zoo and write the table: ``cd tests && python -m models --help``."""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path
from typing import Any

import tvm

from .outcomes import Outcome, judged, kept_apart, on_device, on_gpu, on_llvm, tried
from .table import table

#: The file of outcomes in a folder.
ON_LLVM = "llvm.json"


def main() -> None:
    """Parse the arguments and do what they say."""
    parser = argparse.ArgumentParser(prog="python -m models", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("try", help="import each model, run it on llvm, and save it")
    command.add_argument("folder", type=Path)
    command.add_argument("names", nargs="*", help="parts of names; all models by default")
    command = commands.add_parser("run", help="run the saved models on the GPU of this machine")
    command.add_argument("folder", type=Path)
    command.add_argument("results", type=Path)
    command = commands.add_parser("again", help="run the saved models on llvm, several at a time")
    command.add_argument("folder", type=Path)
    command = commands.add_parser("table", help="write the table of outcomes as Markdown")
    command.add_argument("folder", type=Path)
    command.add_argument("results", type=Path)
    command.add_argument("output", type=Path)
    arguments = parser.parse_args()
    {"try": _try, "run": _run, "again": _again, "table": _table}[arguments.command](arguments)


def _try(arguments: Any) -> None:
    from .zoo import entries

    arguments.folder.mkdir(parents=True, exist_ok=True)
    file = arguments.folder / ON_LLVM
    found = json.loads(file.read_text()) if file.exists() else {}
    chosen = [
        entry
        for entry in entries()
        if not arguments.names or any(part in entry.name for part in arguments.names)
    ]
    for entry in chosen:
        path = arguments.folder / re.sub(r"\W+", "-", entry.name)
        outcome = kept_apart("fork", _saved_and_judged, entry, path)
        about = {"library": entry.library, "file": entry.file, "tolerance": entry.tolerance}
        found[entry.name] = about | outcome
        said = {k: v for k, v in outcome.items() if k != "scatters"}
        print(f"{entry.name}: {said}", flush=True)
        file.write_text(json.dumps(found, indent=1))


def _saved_and_judged(entry: Any, path: Path) -> Outcome:
    from .preparing import prepare

    prepared, failure = tried("export or import", lambda: prepare(entry))
    if failure:
        return failure
    _, failure = tried("save", lambda: prepared.save(path))
    return failure or judged(prepared, entry.tolerance, tvm.target.Target("llvm"), tvm.cpu())


def _run(arguments: Any) -> None:
    found = {}
    # A run that is ended leaves what it knows.
    for name, outcome in on_device(arguments.folder, _tolerances(arguments.folder), on_gpu):
        found[name] = outcome
        arguments.results.write_text(json.dumps(found, indent=1))
    _say(found, _machine())


def _again(arguments: Any) -> None:
    file = arguments.folder / ON_LLVM
    known = json.loads(file.read_text())
    found = dict(on_device(arguments.folder, _tolerances(arguments.folder), on_llvm))
    about = ("library", "file", "tolerance")
    known |= {name: {k: known[name][k] for k in about} | each for name, each in found.items()}
    file.write_text(json.dumps(known, indent=1))
    _say(found, "llvm")


def _tolerances(folder: Path) -> dict[str, float]:
    known = json.loads((folder / ON_LLVM).read_text())
    return {name: each["tolerance"] for name, each in known.items()}


def _say(found: dict[str, Outcome], where: str) -> None:
    for name, outcome in found.items():
        if "failed" in outcome:
            print(f"{name}: {outcome}")
    right = sum("failed" not in outcome for outcome in found.values())
    print(f"{right} of {len(found)} models are right on {where}")


def _machine() -> str:
    device = tvm.cuda(0)
    return f"{device.device_name}, compute capability {device.compute_version}"


def _table(arguments: Any) -> None:
    cpu = json.loads((arguments.folder / ON_LLVM).read_text())
    gpu = json.loads(arguments.results.read_text())
    arguments.output.write_text(table(cpu, gpu))


if __name__ == "__main__":
    main()
