"""The report of a run as tables and as a picture."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from tvm_scatter.tuning.bench.pyplot import pyplot, save_times
from tvm_scatter.tuning.bench.reports import machine_text, marks
from tvm_scatter.tuning.measure.time_shares import KINDS

from .figures import COMPILE, Figures, Report

_COLOURS = ("#2a6fbb", "#7fb2e5", "#1b4470")


def forms_of(report: Report) -> list[str]:
    """The forms of ours that were timed."""
    return list(dict.fromkeys(form for row in report.rows for form in row.ours))


def markdown(report: Report) -> str:
    """All of the report."""
    parts = [*_rows_table(report), "", *_models_table(report), *summary(report), ""]
    parts += [machine_text(report.machine), *marks(report.rows), *_failures(report)]
    return "\n".join(parts)


def headings(report: Report) -> list[str]:
    """Of the columns of a short table."""
    ours = [heading for form in forms_of(report) for heading in (form, "peer /")]
    return ["row", "floor", "best peer", "us", *ours]


def cells(report: Report, row: Figures) -> list[str]:
    """What a row of the short table says, in microseconds."""
    peer, best = row.best_peer
    parts = [row.label, _number(row.floor or None), peer, _number(best)]
    for form in forms_of(report):
        parts += [_number(row.ours.get(form)), _ratio(row.ratio(form))]
    return parts


def summary(report: Report) -> Iterator[str]:
    """What the rows come to, a sentence for each form of ours."""
    for form in forms_of(report):
        texts = []
        for name, peer in (("the best peer", None), (COMPILE, COMPILE)):
            least, ratio = report.worst(form, peer)
            if ratio == ratio:
                mean = report.geometric_mean(form, peer)
                texts.append(f"{mean:.2f}x of {name} (least {ratio:.2f}, {least})")
        within = [
            row.ours[form] / row.floor for row in report.rows if row.floor and form in row.ours
        ]
        if within:
            texts.append(f"at most {max(within):.2f}x the floor")
        yield f"{form}: {', '.join(texts) or 'nothing to compare with'}."


def _rows_table(report: Report) -> Iterator[str]:
    forms = forms_of(report)
    more = ["of that order", COMPILE, "MiB of the peer", *(f"MiB, {form}" for form in forms)]
    titles = [*headings(report), *more]
    yield f"| {' | '.join(titles)} |"
    yield f"|---|{''.join('---|' if each == 'best peer' else '--:|' for each in titles[1:])}"
    for row in report.rows:
        memory = [row.memory.get(name) for name in (row.best_peer[0], *forms)]
        parts = [*cells(report, row), _number(row.order or None)]
        parts.append(_number(row.peers.get(COMPILE)))
        yield f"| {' | '.join([*parts, *map(_mebibytes, memory)])} |"


def _models_table(report: Report) -> Iterator[str]:
    """What of the time of whole models goes where."""
    models = [row for row in report.rows if row.products]
    if not models:
        return
    yield "Whole models: microseconds, and of them what is no matrix product."
    yield ""
    yield f"| model | form | us | beside products | {' | '.join(KINDS)} |"
    yield f"|---|---|--:|--:|{'--:|' * len(KINDS)}"
    for row in models:
        for form, spent in {**row.peers, **row.ours}.items():
            shares = row.shares.get(form, {})
            parts = [row.label, form, _number(spent), _number(row.beside_products(form))]
            parts += [f"{shares[kind]:.0%}" if kind in shares else "" for kind in KINDS]
            yield f"| {' | '.join(parts)} |"
    yield ""


def _failures(report: Report) -> Iterator[str]:
    """What does not do which rows."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in report.rows:
        for name, text in row.failed.items():
            found.setdefault((name, text), []).append(row.name)
    for (name, text), names in found.items():
        rows = names[0] if len(names) == 1 else f"{names[0]} and {len(names) - 1} more"
        yield f"{name} fails on {rows}: {text}"


def plot(report: Report, path: Path) -> None:
    """Bars for each row on a logarithmic scale: best peer, ours, and the floor as a mark.

    Raises
    ------
    ScatterError
        If matplotlib is not installed.
    """
    plotting = pyplot("bench: --plot")
    rows = report.rows[::-1]
    names = forms_of(report)
    series: Sequence[tuple[str, list[float], str]] = [
        ("best peer", [row.best_peer[1] for row in rows], "#b0b7c3"),
        *(
            (f"tvm_scatter, {name}", [row.ours.get(name, float("nan")) for row in rows], colour)
            for name, colour in zip(names, _COLOURS, strict=False)
        ),
    ]
    height = 0.8 / len(series)
    figure, axes = plotting.subplots(figsize=(10, 0.14 * len(series) * len(rows) + 1.2))
    for at, (name, spent, colour) in enumerate(series):
        places = [place + 0.4 - (at + 0.5) * height for place in range(len(rows))]
        axes.barh(places, spent, height, label=name, color=colour)
    floors = [row.floor or float("nan") for row in rows]
    axes.scatter(floors, range(len(rows)), marker="|", s=160, color="#c0392b", label="floor")
    axes.set_yticks(list(range(len(rows))), [row.name for row in rows], fontsize=7)
    axes.set_xscale("log")
    axes.set_ylim(-0.6, len(rows) - 0.4)
    save_times(plotting, figure, axes, report.machine["device"], path)


def _number(value: float | None) -> str:
    return f"{value:,.0f}" if value is not None and value == value else ""


def _ratio(value: float) -> str:
    return f"{value:.2f}" if value == value else ""


def _mebibytes(value: int | None) -> str:
    return "" if value is None else f"{value / (1 << 20):,.1f}"
