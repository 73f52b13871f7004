"""The gallery: what was measured as two interactive plots, drawn from the records by Vega-Lite."""

import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import vl_convert

from falcon_gnn.benchmark.metrics import metric_of
from falcon_gnn.benchmark.plan import Cell
from falcon_gnn.benchmark.records import read_records
from falcon_gnn.benchmark.summary import Summary, summarise

_RECORDS = Path(__file__).resolve().parents[2] / "results"
_EXPERIMENTS = ("judged", "alike", "budgets", "transductive")
_FIRST = "Groups of alike nodes: Cora, SIGN, Accuracy"
_LEAST_RUNS = 3
_MORE_METRICS = ("roc_auc_alone",)
_SETS = {
    "het_chameleon_filtered": "Chameleon", "het_minesweeper": "Minesweeper", "het_tolokers": "Tolokers",
    "amazon_photo": "Amazon Photo", "amazon_computers": "Amazon Computers", "dblp_citationfull": "DBLP",
    "twitch_de": "Twitch", "flickr_attr": "Flickr (attributes)", "coauthor_cs": "Coauthor CS", "cora": "Cora",
    "citeseer": "CiteSeer", "pubmed": "PubMed", "ppi": "PPI (re-derived labels)",
}  # fmt: skip
_MODELS = {"gcn": "GCN", "sign": "SIGN", "qsign": "QSIGN", "cluster-gcn": "Cluster-GCN", "gas": "GAS"}


def write_bundle() -> str:
    """Return Vega, Vega-Lite and Vega-Embed as one file of JavaScript."""
    bundle: str = vl_convert.javascript_bundle()
    return bundle


def write_gallery() -> str:
    """Return the two plots as a piece of a page, data included."""
    accuracy, memory = list(_accuracy_rows()), list(_memory_rows())
    specs = {"accuracy": _accuracy_spec(accuracy), "memory": _memory_spec(memory)}
    text = json.dumps(specs, separators=(",", ":"), allow_nan=False).replace("</", "<\\/")
    data = f'<script type="application/json" id="plots">{text}</script>'
    return f'{data}\n<script type="module" src="../gallery.js"></script>'


def _accuracy_rows() -> Iterator[dict[str, Any]]:
    for name in _EXPERIMENTS:
        path = _RECORDS / f"{name}.jsonl"
        if path.is_file():
            for summary in summarise(read_records(path)):
                yield from _summary_rows(summary)


def _summary_rows(summary: Summary) -> Iterator[dict[str, Any]]:
    """Yield a row per cell that has a figure: what was trained on, and the score with its interval."""
    for dataset in summary.datasets:
        shown = summary.metrics[dataset]
        for name in (shown[0], *(metric for metric in _MORE_METRICS if metric in shown)):
            metric = metric_of(name)
            for cell in _drawn_cells(summary, dataset):
                found = summary.figures[cell, name]
                if found.mean is None or (cell.budget is not None and found.kept is None):
                    continue
                kept = 100.0 if found.kept is None else 100 * found.kept.num_nodes / found.kept.num_in_scope
                half = found.half_width
                half = 0.0 if half is None or math.isnan(half) or found.num_runs < _LEAST_RUNS else half
                yield {
                    "plot": f"{summary.title}: {_SETS.get(dataset, dataset)}, {_MODELS.get(cell.model, cell.model)}, "
                    f"{metric.title}",
                    "method": _name_method(cell.method, cell.centrality, cell.budget is None),
                    "is_full": cell.budget is None,
                    "kept": round(kept, 2),
                    "score": round(found.mean, 2),
                    "low": round(found.mean - half, 2),
                    "high": round(found.mean + half, 2),
                    "runs": found.num_runs,
                }


def _drawn_cells(summary: Summary, dataset: str) -> Iterator[Cell]:
    """Yield the cells whose methods the experiment draws, of a model that has none of these all, and full graphs."""
    cells = summary.cells(dataset)
    for cell in cells:
        methods = {other.method for other in cells if other.model == cell.model and other.budget is not None}
        if cell.budget is None or cell.method in (methods & set(summary.drawn_methods) or methods):
            yield cell


def _name_method(method: str, centrality: str, is_full: bool) -> str:
    if is_full:
        return method.replace("none", "full graph")
    return f"{method}, {centrality}" if centrality else method


def _memory_rows() -> Iterator[dict[str, Any]]:
    """Yield a row per measured way to take a step; of those measured twice the later."""
    found = {}
    for line in (_RECORDS / "pieces.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        if "times_unsplit" in row:
            way = (
                row["table"],
                row["model"],
                row["bits"],
                row["micro_batches"],
                row["column_blocks"],
                row["keep_matrix"],
            )
            found[way] = row
    for row in found.values():
        pieces = max(row["micro_batches"], row["column_blocks"])
        kind = "blocks of columns" if row["column_blocks"] > 1 else "micro-batches"
        name = _MODELS.get(row["model"], row["model"])
        has_bits = row["bits"] < 32 and row["model"] != "qsign"
        yield {
            "graph": {"rows": "PPI, rows", "rows, batch norm": "PPI, rows, batch norm"}.get(row["table"], row["table"]),
            "model": f"{name}, {row['bits']} bits" if has_bits else name,
            "step": "unsplit" if pieces == 1 else f"{pieces} {kind}{'' if row['keep_matrix'] else ', no matrix kept'}",
            "pieces": pieces,
            "mib": row["peak_mib"],
            "times": row["times_unsplit"],
            "seconds": row["seconds"],
        }
    yield from _choice_rows()


def _choice_rows() -> Iterator[dict[str, Any]]:
    """Yield a row per way to train a model on PPI: blocks, bits, fewer nodes."""
    for line in (_RECORDS / "choices.jsonl").read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        name, way = _MODELS.get(row["model"], row["model"]), row["way"]
        has_bits, is_smaller = way.startswith("2 bits"), way.endswith("of the nodes")
        pieces = 1 if way in ("all", "2 bits") else int(re.findall(r"\d+", way)[-1])
        yield {
            "graph": "PPI, every model (of fewer nodes their share in %)",
            "model": f"{name}, {'2 bits' if has_bits else 'fewer nodes'}" if has_bits or is_smaller else name,
            "step": "unsplit" if way == "all" else way,
            "pieces": pieces,
            "mib": row["peak_mib"],
            "times": row["times"],
            "seconds": row["seconds"],
        }


def _accuracy_spec(rows: list[dict[str, Any]]) -> dict[str, Any]:
    plots = sorted({row["plot"] for row in rows})
    x = {
        "field": "kept",
        "type": "quantitative",
        "scale": {"type": "log", "nice": False},
        "title": "Training nodes kept (%)",
        "axis": {"values": [0.5, 1, 2, 5, 10, 20, 30, 50, 100]},
    }
    y = {"field": "score", "type": "quantitative", "scale": {"zero": False}, "title": "Test score (%)"}
    color = {
        "field": "method",
        "type": "nominal",
        "title": None,
        "legend": {"orient": "bottom", "columns": 2, "labelLimit": 320},
    }
    opacity = {"condition": {"param": "highlight", "value": 1}, "value": 0.12}
    tooltip = [
        {"field": "method", "title": "reduction"},
        {"field": "kept", "title": "kept (%)"},
        {"field": "score", "title": "score (%)"},
        {"field": "low", "title": "95 % interval, low"},
        {"field": "high", "title": "high"},
        {"field": "runs", "title": "runs"},
    ]
    shared = {"x": x, "color": color, "opacity": opacity}
    reduced = [{"filter": "!datum.is_full"}]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": rows},
        "width": "container",
        "height": 380,
        "params": [{"name": "plot", "value": _FIRST, "bind": {"input": "select", "options": plots, "name": "Show "}}],
        "transform": [{"filter": "datum.plot == plot"}],
        "layer": [
            {
                "transform": reduced,
                "params": [{"name": "highlight", "select": {"type": "point", "fields": ["method"]}, "bind": "legend"}],
                "mark": {"type": "line", "strokeWidth": 2},
                "encoding": {**shared, "y": y},
            },
            {
                "transform": reduced,
                "mark": {"type": "rule", "strokeWidth": 1.5},
                "encoding": {**shared, "y": {**y, "field": "low"}, "y2": {"field": "high"}},
            },
            {
                "transform": reduced,
                "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1},
                "encoding": {**shared, "y": y, "tooltip": tooltip},
            },
            {
                "transform": [{"filter": "datum.is_full"}],
                "mark": {"type": "rule", "strokeDash": [6, 4], "strokeWidth": 2},
                "encoding": {"y": y, "color": color, "opacity": opacity, "tooltip": tooltip},
            },
        ],
    }


def _memory_spec(rows: list[dict[str, Any]]) -> dict[str, Any]:
    graphs = list(dict.fromkeys(row["graph"] for row in rows))
    color = {"field": "model", "type": "nominal", "title": None, "legend": {"orient": "bottom", "symbolOpacity": 1}}
    x = {
        "field": "times",
        "type": "quantitative",
        "scale": {"zero": False},
        "title": "Time of a step (unsplit, 32 bits: 1)",
    }
    y = {"field": "mib", "type": "quantitative", "title": "Peak of a step (MiB)"}
    tooltip = [
        {"field": "model"},
        {"field": "step"},
        {"field": "mib", "title": "MiB"},
        {"field": "times", "title": "times as long"},
        {"field": "seconds", "title": "seconds"},
    ]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": rows},
        "width": "container",
        "height": 340,
        "params": [
            {"name": "graph", "value": graphs[0], "bind": {"input": "select", "options": graphs, "name": "Show "}}
        ],
        "transform": [{"filter": "datum.graph == graph"}],
        "layer": [
            {
                "mark": {"type": "line", "strokeWidth": 1, "opacity": 0.5},
                "encoding": {"x": x, "y": y, "color": color, "order": {"field": "pieces"}},
            },
            {
                "mark": {"type": "point", "filled": True, "size": 90, "opacity": 1},
                "encoding": {"x": x, "y": y, "color": color, "tooltip": tooltip},
            },
            {
                "mark": {"type": "text", "align": "left", "dx": 8, "dy": -6, "fontSize": 11},
                "encoding": {"x": x, "y": y, "text": {"field": "pieces"}, "color": color},
            },
        ],
    }
