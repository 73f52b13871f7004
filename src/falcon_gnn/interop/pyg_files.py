"""PyG's `.pt` files, read without running code that someone may have put into them."""

import codecs
import pickle
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from falcon_gnn.checks import pick_name, pick_names
from falcon_gnn.errors import FalconError, GraphError, MissingDependencyError, OptionError
from falcon_gnn.graph import Graph
from falcon_gnn.interop.pyg import from_pyg

try:
    import torch
    from torch_geometric.data import Batch, Data
except ImportError as error:
    _MESSAGE = (
        f"torch and torch_geometric are needed here ({error}). Install them with: pip install 'falcon-gnn[train]'"
    )
    raise MissingDependencyError(_MESSAGE) from error

_SAFE_CLASSES = {
    "torch_geometric.data.data": ("Data", "DataEdgeAttr", "DataTensorAttr"),
    "torch_geometric.data.hetero_data": ("HeteroData",),
    "torch_geometric.data.storage": ("AttrType", "BaseStorage", "EdgeStorage", "GlobalStorage", "NodeStorage"),
    "torch_geometric.data.feature_store": ("TensorAttr",),
    "torch_geometric.data.graph_store": ("EdgeAttr", "EdgeLayout"),
    "torch_geometric.edge_index": ("CatMetadata", "EdgeIndex", "SortOrder"),
    "torch_geometric.index": ("CatMetadata", "Index"),
    "torch_geometric.typing": ("SparseStorage", "SparseTensor"),
}
_FIX = (
    "Load it where it comes from, and write it there with "
    "falcon_gnn.datasets.archive.write_npz(falcon_gnn.from_pyg(data), 'graph.npz')."
)


def read_pt(
    path: str | Path,
    split_index: int | None = None,
    *,
    label_attr: str | None = None,
    feature_attrs: Sequence[str] | None = None,
) -> Graph:
    """Return the graph in a `.pt` file that PyG or its users saved.

    The file may hold a ``Data``, a dictionary of tensors, a list of ``Data``, or what ``InMemoryDataset`` stores under
    ``processed``. Several graphs become one, with the node attribute ``graph_id``. Only tensors, plain containers and
    PyG's own data classes are rebuilt; whatever else the file asks for is refused before it runs.

    Args:
        path: The file.
        split_index: Which split, where masks have shape ``(N, S)``.
        label_attr: Attribute with the labels, where it is called otherwise than ``y``.
        feature_attrs: Attributes with the features, side by side, where these are not ``x``.

    Raises:
        OptionError: If the file is missing, damaged, asks for other classes, or holds no graph.
        GraphError: If its graph is unusable.
    """
    source = Path(path)
    try:
        return from_pyg(_with_names(_only_data(_load(source)), label_attr, feature_attrs), split_index)
    except (GraphError, OptionError) as error:
        msg = f"{source}: {error}"
        raise type(error)(msg) from error
    except FalconError:
        raise
    except Exception as error:
        # What a file calls a Data may hold anything under the names of its attributes.
        msg = (
            f"{source}: holds no graph that can be read ({type(error).__name__}: {str(error).splitlines()[:1]}). {_FIX}"
        )
        raise OptionError(msg) from error


def _load(path: Path) -> Any:
    try:
        with _only_safe_classes():
            return torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as error:
        msg = "the file does not exist."
        raise OptionError(msg) from error
    except pickle.UnpicklingError as error:
        reason = next((line for line in str(error).splitlines() if "WeightsUnpickler" in line), "")
        msg = f"refused, since it holds more than tensors and PyG's own data classes ({reason.strip()[:160]}). {_FIX}"
        raise OptionError(msg) from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        msg = f"cannot be read as a .pt file ({reason}). {_FIX}"
        raise OptionError(msg) from error


@contextmanager
def _only_safe_classes() -> Iterator[None]:
    """Let torch rebuild PyG's containers and nothing else, whatever other code has allowed.

    ``torch.serialization.safe_globals`` would take PyG's own permissions away when it ends.
    """
    allowed_before = torch.serialization.get_safe_globals()
    torch.serialization.clear_safe_globals()
    torch.serialization.add_safe_globals(_safe_classes())
    try:
        yield
    finally:
        torch.serialization.clear_safe_globals()
        torch.serialization.add_safe_globals(allowed_before)


def _safe_classes() -> list[Any]:
    found = [
        getattr(import_module(module), name)
        for module, names in _SAFE_CLASSES.items()
        for name in names
        if hasattr(import_module(module), name)
    ]
    # PyG caches which attribute is of nodes in a defaultdict, which torch does not fill; nobody reads it here.
    return [*found, *_numpy_globals(), set, (_plain_dict, "collections.defaultdict")]


def _numpy_globals() -> list[Any]:
    """Return what rebuilds NumPy's numbers and arrays, under the names of NumPy 1 and 2; none of it runs other code."""
    scalar, reconstruct = np.float64(0).__reduce__()[0], np.zeros(0).__reduce__()[0]
    dtypes = {type(np.dtype(code)) for code in "?bBhHiIlLqQefdgFDSUMmO"}
    named = [
        (function, f"numpy.{core}.multiarray.{name}")
        for function, name in ((scalar, "scalar"), (reconstruct, "_reconstruct"))
        for core in ("core", "_core")
    ]
    return [*named, np.ndarray, np.dtype, *dtypes, (codecs.encode, "_codecs.encode")]


def _plain_dict(*_: object) -> dict[Any, Any]:
    return {}


def _only_data(stored: Any) -> Data:
    """Return one ``Data`` from any of the forms a file may have."""
    if isinstance(stored, tuple) and len(stored) in (2, 3) and isinstance(stored[0], dict | Data):
        data = Data.from_dict(stored[0]) if isinstance(stored[0], dict) else _modern(stored[0])
        return data if not stored[1] else _union(_separated(data, stored[1]))
    if isinstance(stored, list) and stored and all(type(item) is Data for item in stored):
        return _union([_modern(data) for data in stored])
    if isinstance(stored, dict) and {"edge_index", "adj_t"} & set(stored):
        return Data.from_dict(stored)
    if isinstance(stored, Data):
        return _modern(stored)
    if type(stored).__name__ == "HeteroData":
        return stored
    msg = f"holds no graph, but {type(stored).__name__}. {_FIX}"
    raise OptionError(msg)


def _modern(data: Data) -> Data:
    """Return a ``Data`` as PyG 2 has it; that of PyG 1 keeps its attributes in its ``__dict__``."""
    if "_store" in data.__dict__:
        return data
    old = {name.removeprefix("__").removesuffix("__"): value for name, value in data.__dict__.items()}
    return Data.from_dict({name: value for name, value in old.items() if value is not None})


def _with_names(data: Data, label: str | None, features: Sequence[str] | None) -> Data:
    """Return the data with the labels and features that were told as ``y`` and ``x``."""
    if not isinstance(data, Data) or (label is None and not features):
        return data
    known = [name for name, value in data if value is not None]
    names = pick_names("feature_columns", features or (), known)
    label = None if label is None else pick_name("label_column", label, known)
    if label is not None:
        data.y = data[label]
    if names:
        columns = [torch.as_tensor(data[name]) for name in names]
        data.x = torch.cat([column.reshape(len(column), -1) for column in columns], dim=1)
    for name in {*names, label} - {"x", "y", None}:
        del data[name]
    return data


def _separated(data: Data, slices: dict[str, Any]) -> list[Data]:
    separate = import_module("torch_geometric.data.separate").separate
    num_graphs = len(next(iter(slices.values()))) - 1
    return [separate(Data, data, index, slice_dict=slices, decrement=False) for index in range(num_graphs)]


def _union(graphs: list[Data]) -> Data:
    if len(graphs) == 1:
        return graphs[0]
    batch = Batch.from_data_list(graphs)
    union = Data.from_dict({key: value for key, value in batch.to_dict().items() if key not in ("batch", "ptr")})
    union.graph_id = batch.batch
    union.num_nodes = batch.num_nodes
    return union
