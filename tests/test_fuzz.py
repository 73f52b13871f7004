"""Whatever comes in: success, one of our errors with a fix, or a warning; within time and memory.

``make fuzz`` runs 10,000 cases; the ordinary tests a few hundred, the same ones each time.
"""

import io
import os
import shutil
import time
import tracemalloc
import warnings
import zipfile
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from pyarrow import parquet
from scipy.sparse import csr_array, save_npz
from torch_geometric.data import Data

import falcon_gnn as fg
from falcon_gnn.datasets.archive import write_npz
from falcon_gnn.datasets.folders import write_folder
from falcon_gnn.datasets.load import load_graph
from falcon_gnn.datasets.synthetic import block_graph
from falcon_gnn.errors import FalconError
from falcon_gnn.training.config import ModelConfig, TrainConfig
from falcon_gnn.training.trainer import train

CASES = int(os.environ.get("FALCON_FUZZ", "0"))
_SHARES = {"bytes": 0.45, "tables": 0.15, "edges": 0.15, "pyg": 0.1, "networkx": 0.05, "collapse": 0.08, "train": 0.02}
_QUICK = {"bytes": 70, "tables": 40, "edges": 40, "pyg": 30, "networkx": 20, "collapse": 20, "train": 3}
_SECONDS = 10  # of the process: a busy machine is not the reader's fault
_BASE_BYTES = 64 << 20


def fuzzed(kind: str) -> Callable[[Any], Any]:
    """Return Hypothesis' settings of a kind of case; its share of ``FALCON_FUZZ``, else a few."""
    return settings(
        max_examples=max(1, int(CASES * _SHARES[kind])) if CASES else _QUICK[kind],
        deadline=None,
        derandomize=not CASES,
        database=None,
        suppress_health_check=list(HealthCheck),
    )


def survive(action: Callable[[], Any], held_bytes: int = 0, num_nodes: int = 0) -> Any:
    """Return what an action gives, or None where it is refused as it should be."""
    most = _BASE_BYTES + 20 * (held_bytes + 8 * num_nodes)
    result, seconds, peak = _measured(action)
    if seconds >= _SECONDS or peak > most:
        # It may have compiled a kernel, which it does not do a second time.
        result, seconds, peak = _measured(action)
    assert seconds < _SECONDS
    assert peak <= most, peak
    return result


def _measured(action: Callable[[], Any]) -> tuple[Any, float, int]:
    """Return what an action gives, the seconds of the process and the bytes at the peak."""
    tracemalloc.start()
    start, result = time.process_time(), None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = action()
    except FalconError as error:
        text = str(error)
        assert len(text) > 20, text
        assert "\n" not in text.strip(), text
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return result, time.process_time() - start, peak


@pytest.fixture(scope="session", autouse=True)
def _compiled():
    """Compile before the clock runs."""
    graph = block_graph(num_nodes=60, num_edges=150, num_classes=2)
    fg.collapse(graph, node_budget=20, num_clusters=2)


@pytest.fixture(scope="session")
def samples(tmp_path_factory) -> dict[str, bytes]:
    """One small file of every format, by its name."""
    folder = tmp_path_factory.mktemp("samples")
    graph = block_graph(num_nodes=12, num_edges=20, num_classes=2)
    text = np.array(["a", "b" * 2000, *"cdefghijkl"], np.dtypes.StringDType())
    full = graph.replace(node_attributes={"text": text, "id": np.arange(12)})
    write_npz(full, folder / "graph.npz")
    write_npz(graph.replace(x=csr_array(graph.x)), folder / "sparse.npz")
    save_npz(folder / "matrix.npz", graph.to_scipy())
    images = {f"{p}_images": np.zeros((4, 5, 5), np.uint8) for p in ("train", "val")}
    np.savez(folder / "images.npz", **images, **{f"{p}_labels": np.arange(4) for p in ("train", "val")})
    torch.save(fg.to_pyg(graph), folder / "graph.pt")
    source, target = graph.edge_index
    (folder / "edges.csv").write_text(
        "source,target\n" + "".join(f"{u},{v}\n" for u, v in zip(source, target, strict=True))
    )
    parquet.write_table(pa.table({"source": source, "target": target}), folder / "edges.parquet")
    nodes = {"node_id": np.arange(12), "y": graph.y, "x_0": graph.x[:, 0], "name": list("abcdefghijkl")}
    parquet.write_table(pa.table(nodes), folder / "nodes.parquet")
    (folder / "nodes.csv").write_text(
        "node_id,y,x_0,name\n" + "".join(f"{i},{i % 2},{i / 2},n{i}\n" for i in range(12))
    )
    write_folder(full, folder / "arrays")
    found = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    return found | {f"arrays/{path.name}": path.read_bytes() for path in (folder / "arrays").iterdir()}


@st.composite
def mutations(draw: st.DrawFn) -> Callable[[bytes], bytes]:
    """Draw what is done to a file: bytes changed, cut out, doubled, or the end cut off."""
    edits = draw(
        st.lists(st.tuples(st.floats(0, 1), st.sampled_from("fficdt"), st.binary(min_size=1, max_size=8)), max_size=6)
    )

    def apply(content: bytes) -> bytes:
        data = bytearray(content)
        for place, kind, new in edits:
            at = int(place * max(len(data) - 1, 0))
            if kind == "f":
                data[at : at + len(new)] = new
            elif kind == "i":
                data[at:at] = new
            elif kind == "c":
                del data[at : at + 16 * len(new)]
            elif kind == "d":
                data[at:at] = data[at : at + 64]
            else:
                del data[at:]
        return bytes(data)

    return apply


def _unpacked(content: bytes) -> int:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return len(content) + sum(min(entry.file_size, 1 << 30) for entry in archive.infolist())
    except (zipfile.BadZipFile, ValueError, NotImplementedError, OSError, UnicodeDecodeError):
        return len(content)


_FORMATS = [
    "graph.npz",
    "sparse.npz",
    "matrix.npz",
    "images.npz",
    "graph.pt",
    "edges.csv",
    "edges.parquet",
    "nodes.parquet",
]
_FORMATS += ["nodes.csv", "arrays/edges.npy", "arrays/x.npy", "arrays/text.starts.npy", "arrays/train_mask.npy"]


@fuzzed("bytes")
@given(st.sampled_from(_FORMATS), mutations(), st.booleans())
def test_files_of_changed_bytes(samples, tmp_path_factory, name, mutate, inside):
    content = samples[name]
    content = _change_inside(content, mutate) if name.endswith(".npz") and inside else mutate(content)
    folder = tmp_path_factory.mktemp("case")
    options: dict[str, Any] = {}
    if name.startswith("arrays/"):
        for other in (key for key in samples if key.startswith("arrays/")):
            (folder / Path(other).name).write_bytes(samples[other])
        source = folder
    else:
        source = folder / name
        if name.startswith("edges"):
            options = {"num_nodes": 12}
        if name.startswith("nodes"):
            source, options = folder / "edges.csv", {"nodes": folder / name}
            source.write_bytes(samples["edges.csv"])
    (folder / Path(name).name).write_bytes(content)
    survive(lambda: load_graph(source, **options), _unpacked(content) + sum(map(len, samples.values())), 12)
    shutil.rmtree(folder)


def _change_inside(content: bytes, mutate: Callable[[bytes], bytes]) -> bytes:
    """Return an archive whose arrays are changed and whose checksums are right."""
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(content)) as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.namelist():
            new.writestr(entry, mutate(old.read(entry)))
    return changed.getvalue()


_cells = st.one_of(
    st.integers(-3, 12).map(str),
    st.text(max_size=6),
    st.floats().map(str),
    st.sampled_from(
        ["", "NA", "007", "true", "2021-01-02", '"a,b"', '"x\ny"', "1e400", "0,5", "[1 2]", "18446744073709551616"]
    ),
)
_headers = st.sampled_from(
    [
        "node_id",
        "id",
        "x",
        "y",
        "x_0",
        "x_1",
        "y_0",
        "label",
        "feat",
        "features",
        "train_mask",
        "val_mask",
        "split",
        "0",
        "1",
        "",
        "source",
        "weight",
        "train_masks",
    ]
)


@fuzzed("tables")
@given(
    st.lists(_headers, min_size=1, max_size=5),
    st.lists(st.lists(_cells, min_size=1, max_size=5), max_size=5),
    st.lists(st.tuples(_cells, _cells), max_size=5),
    st.sampled_from(",;\t"),
    st.fixed_dictionaries({}, optional={"label_column": _headers, "feature_columns": _headers, "id_column": _headers}),
)
def test_tables_of_any_cells(tmp_path_factory, headers, rows, edges, delimiter, options):
    folder = tmp_path_factory.mktemp("case")
    lines = [headers, *([*row, *[""] * len(headers)][: len(headers)] for row in rows)]
    texts = {"nodes": lines, "edges": [("source", "target"), *edges]}
    for name, table in texts.items():
        (folder / f"{name}.csv").write_text("".join(delimiter.join(line) + "\n" for line in table), encoding="utf-8")
    survive(lambda: load_graph(folder, **options), 1000, 10)
    shutil.rmtree(folder)


_dtypes = st.sampled_from([np.int64, np.int8, np.uint64, np.float32, np.float64, np.bool_, np.complex64, "U3", object])
_values = st.one_of(
    st.none(),
    st.integers(-5, 2**65),
    st.floats(),
    st.text(max_size=3),
    st.lists(st.integers(-2, 6), max_size=8),
    _dtypes.flatmap(
        lambda kind: arrays.arrays(
            kind,
            arrays.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=7),
            elements=None if kind is not object else st.none(),
        )
    ),
)
_ends = st.one_of(
    _values,
    arrays.arrays(
        st.sampled_from([np.int32, np.int64, np.uint8]),
        st.tuples(st.just(2), st.integers(0, 9)),
        elements=st.integers(0, 6),
    ),
)
_node_arrays = st.fixed_dictionaries(
    {},
    optional={
        "edge_weight": _values,
        "x": _values,
        "y": _values,
        "train_mask": _values,
        "val_mask": _values,
        "test_mask": _values,
        "node_attributes": st.dictionaries(st.text(max_size=3), _values, max_size=2),
        "warn_one_way": st.sampled_from(["never", "always", "sometimes"]),
    },
)


@fuzzed("edges")
@given(
    _ends,
    st.one_of(st.integers(-1, 9), st.sampled_from([10**5, 2**31, 2**40, 2**63, 2**70, 1.5, None, "3", True])),
    _node_arrays,
)
def test_edges_and_node_arrays_of_any_kind(edges, num_nodes, node_arrays):
    size = num_nodes if isinstance(num_nodes, int) and 0 < num_nodes < 2**32 else 0
    survive(lambda: fg.Graph.from_edges(edges, num_nodes, **node_arrays), 2000, size)


_tensors = st.one_of(
    _values,
    st.builds(
        lambda shape, seed: torch.from_numpy(np.random.default_rng(seed).integers(0, 4, shape)),
        st.lists(st.integers(0, 6), max_size=3),
        st.integers(0, 9),
    ),
)
_keys = st.sampled_from(
    [
        "edge_index",
        "adj_t",
        "x",
        "y",
        "train_mask",
        "val_mask",
        "num_nodes",
        "edge_weight",
        "edge_attr",
        "train_idx",
        "split_idx",
        "pos",
        "batch",
        "age",
        "ptr",
        "falcon_kept",
        "index",
    ]
)


@fuzzed("pyg")
@given(
    st.dictionaries(_keys, _tensors, max_size=6),
    st.booleans(),
    st.lists(_keys, max_size=1),
    st.lists(_keys, max_size=1),
)
def test_pyg_data_of_any_kind(attributes, has_edges, node_attrs, edge_attrs):
    if has_edges:
        attributes["edge_index"] = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]])
        attributes.setdefault("num_nodes", 4)

    def act() -> None:
        data = Data()
        for key, value in attributes.items():
            data[key] = value
        fg.to_pyg(fg.from_pyg(data, node_attrs=node_attrs, edge_attrs=edge_attrs))

    survive(act, 2000, 20)


@fuzzed("networkx")
@given(
    st.lists(
        st.one_of(st.integers(-2, 2**65), st.text(max_size=2), st.floats(allow_nan=False), st.tuples(st.integers())),
        max_size=6,
    ),
    st.lists(
        st.dictionaries(st.sampled_from(["x", "y", "lat", "train_mask", "a", 7]), _values, max_size=3), max_size=6
    ),
    st.dictionaries(st.sampled_from(["weight", "b"]), _values, max_size=2),
    st.booleans(),
    st.dictionaries(st.sampled_from(["split_idx", "train_idx", "crs"]), _values, max_size=1),
)
def test_networkx_graphs_of_any_kind(nodes, attributes, of_edges, is_directed, of_graph):
    graph = nx.MultiDiGraph() if is_directed else nx.Graph()
    graph.graph.update(of_graph)
    for node in nodes:
        graph.add_node(node)
    for node, values in zip(list(graph), attributes, strict=False):
        graph.nodes[node].update(values)
    names = list(graph)
    graph.add_edges_from([(u, v, of_edges) for u, v in pairwise(names)])
    survive(lambda: fg.to_networkx(fg.from_networkx(graph)), 2000, 20)


_numbers = st.one_of(st.none(), st.integers(-2, 70), st.floats(), st.sampled_from(["", "0.5", True, 2**70]))
_collapse_options = st.fixed_dictionaries(
    {"node_budget": st.one_of(st.integers(-1, 61), st.floats(), _numbers)},
    optional={
        "centrality": st.one_of(
            st.sampled_from(["degree", "pagerank", "EC", "closeness", "betweenness", "random", "PC"]), _values
        ),
        "num_clusters": _numbers,
        "gamma": st.one_of(st.floats(-0.1, 1.1), _numbers),
        "seed": _numbers,
        "scope": st.sampled_from([None, "train", "full", "all"]),
        "order": st.sampled_from(["cluster", "global", 3]),
        "selection": st.sampled_from(["lowest", "stratified", "random", ""]),
        "merge": st.sampled_from(["hub", "mean", "drop", None]),
        "edge_weights": st.sampled_from(["none", "count", "sum", True]),
        "task": st.sampled_from([None, "classes", "multilabel", "regression", "x"]),
        "num_classes": _numbers,
        "num_samples": _numbers,
        "closeness_samples": _numbers,
        "clusters": _values,
        "protect": _values,
    },
)


@pytest.fixture(scope="session")
def small_graph() -> fg.Graph:
    graph = block_graph(num_nodes=60, num_edges=150, num_classes=2)
    ids = np.arange(60)
    return graph.replace(train_mask=ids < 40, val_mask=(ids >= 40) & (ids < 50), test_mask=ids >= 50)


@fuzzed("collapse")
@given(_collapse_options)
def test_options_of_a_collapse(small_graph, options):
    survive(lambda: fg.collapse(small_graph, **options), 1 << 16, 60)


_sizes = st.one_of(st.integers(-1, 5), st.sampled_from([None, 2.5, True, "3", float("nan")]))
_rates = st.one_of(st.floats(-0.5, 1.5), st.sampled_from([None, float("nan"), "0.5"]))


@fuzzed("train")
@given(
    st.fixed_dictionaries(
        {},
        optional={
            "model": st.sampled_from(["gcn", "sign", "qsign", "sign-original", "cluster-gcn", "gas", "gat"]),
            "hidden_channels": _sizes,
            "num_layers": _sizes,
            "num_hops": _sizes,
            "bits": st.sampled_from([None, 1, 2, 3, 4, 8, "8"]),
            "num_parts": _sizes,
            "dropout": _rates,
            "batch_norm": st.booleans(),
            "concat_self": st.booleans(),
        },
    ),
    st.fixed_dictionaries(
        {},
        optional={
            "num_batches": _sizes,
            "patience": _sizes,
            "eval_every": _sizes,
            "learning_rate": _rates,
            "weight_decay": _rates,
            "seed": _numbers,
            "task": st.sampled_from([None, "classes", "multilabel", "regression"]),
            "num_classes": _sizes,
            "device": st.sampled_from(["cpu", "auto", "quantum"]),
            "validation_metric": st.sampled_from(["accuracy", "micro_f1", "auc"]),
        },
    ),
)
def test_options_of_a_training(small_graph, model, options):
    def act() -> None:
        train(small_graph, TrainConfig(ModelConfig(**model), num_epochs=2, **options), progress=False)

    survive(act, 1 << 20, 60)
