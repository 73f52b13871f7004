"""PyTorch Geometric: graphs from and to ``Data``, and the collapse as a transform."""

import copy
import warnings
from collections.abc import Sequence
from dataclasses import MISSING, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from falcon_gnn.checks import as_names, check_whole
from falcon_gnn.errors import FalconWarning, MissingDependencyError, OptionError
from falcon_gnn.graph import MASK_NAMES, ROW_NAMES, SOFT_NAMES, Graph
from falcon_gnn.graph_checks import as_scipy, check_attribute_names, is_sparse, require_graph
from falcon_gnn.interop.pyg_attributes import (
    EDGE_KEYS,
    AttributeKeys,
    attribute_array,
    count_nodes,
    pick_masks,
    sort_keys,
    split_column,
    warn_about,
)
from falcon_gnn.interop.tensors import (
    edge_weights_to_tensor,
    features_to_tensor,
    labels_to_tensor,
    to_array,
    to_tensor,
)
from falcon_gnn.reduction.config import CollapseConfig, with_options
from falcon_gnn.reduction.falcon import collapse
from falcon_gnn.reduction.result import CollapseResult
from falcon_gnn.resources import require_memory

try:
    import torch
    from torch_geometric.data import Batch, Data
    from torch_geometric.data.datapipes import functional_transform
    from torch_geometric.transforms import BaseTransform
except ImportError as error:
    _MESSAGE = (
        f"torch and torch_geometric are needed here ({error}). Install them with: pip install 'falcon-gnn[train]'"
    )
    raise MissingDependencyError(_MESSAGE) from error


_DENSE_PURPOSE = "make sparse features dense (to_pyg(dense_features=False) keeps them sparse)"


def from_pyg(
    data: Data,
    split_index: int | None = None,
    *,
    node_attrs: str | Sequence[str] = (),
    edge_attrs: str | Sequence[str] = (),
) -> Graph:
    """Return the graph of a PyG ``Data``; CPU tensors are viewed, not copied.

    ``edge_weight``, ``node_weight``, ``self_weight`` and ``label_distribution`` are kept; other edge attributes are
    left out with a warning. Any other attribute with one row per node becomes a node attribute. Masks of several
    splits, shape ``(N, S)``, are kept whole as ``train_masks`` etc. Without masks, node ids are read: ``train_idx``,
    ``val_idx``, ``test_idx``, or a dictionary ``split_idx`` as OGB's.

    Args:
        data: Edges as ``edge_index`` (also an ``EdgeIndex``), ``adj_t`` or ``adj``; ``x`` dense or sparse.
        split_index: Which split the masks are, where there are several; None means split 0.
        node_attrs: Attributes that are of nodes, where their length does not tell: with as many edges as nodes. One
            name, or several.
        edge_attrs: Attributes that are not of nodes though they have N rows, but of edges or of the graph; likewise.

    Raises:
        GraphError: If ``data`` is heterogeneous or no ``Data``, does not tell its number of nodes, or holds what
            :meth:`falcon_gnn.graph.Graph.from_edges` refuses.
        OptionError: If there is no such split, or an attribute is named that is not there.

    Example:
        >>> data = Data(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=4)
        >>> from_pyg(data)
        Graph(num_nodes=4, num_edges=2, num_features=0)
    """
    check_whole("split_index", split_index, 0, or_none=True)
    return _read(data, split_index, as_names("node_attrs", node_attrs), as_names("edge_attrs", edge_attrs))[0]


def _read(
    data: Data, split_index: int | None, node_attrs: Sequence[str], edge_attrs: Sequence[str]
) -> tuple[Graph, AttributeKeys]:
    """Return the graph of a ``Data``, and what each of its attributes belongs to."""
    num_nodes = count_nodes(data)
    keys = sort_keys(data, num_nodes, node_attrs, edge_attrs)
    warn_about(keys, stacklevel=3)
    masks, attributes = pick_masks(data, split_index, num_nodes, keys.ids)
    for key in keys.nodes:
        if key not in ROW_NAMES:
            attributes[key] = attribute_array(data[key])
    x, y = (data.get(key) if key in keys.nodes else None for key in ("x", "y"))
    node_arrays = {
        "x": x if x is None else as_scipy(x) if is_sparse(x) else to_array(x),
        "y": None if y is None else to_array(y),
        **{key: to_array(data[key]) for key in SOFT_NAMES if key in keys.nodes},
        "node_attributes": attributes,
        **masks,
    }
    adjacency = data.get("edge_index", data.get("adj_t", data.get("adj")))
    weight = data.get("edge_weight")
    if adjacency is not None and is_sparse(adjacency):
        if weight is not None:
            msg = (
                "edge_weight left out: a sparse matrix of edges holds their weights as its values, and does not tell "
                "which edge a further one is of. Store the weights in the matrix, or give the edges as edge_index."
            )
            warnings.warn(msg, FalconWarning, stacklevel=3)
        return Graph.from_scipy(as_scipy(adjacency), warn_one_way="always", **node_arrays), keys
    edges = np.zeros((2, 0), np.int64) if adjacency is None else to_array(adjacency)
    weight = None if weight is None else to_array(weight)
    return Graph.from_edges(edges, num_nodes, edge_weight=weight, warn_one_way="always", **node_arrays), keys


def to_pyg(graph: Graph, *, dense_features: bool = True) -> Data:
    """Return a PyG ``Data`` with copies of everything a graph holds, ready for PyG's layers and losses.

    Features become floats, classes int64, multi-label targets float32; weights of edges are as precise as the features.
    Every edge stands in both directions.

    Args:
        graph: The graph; strings among the node attributes become lists.
        dense_features: Turn sparse features into a dense tensor (N·F values), which PyG's transforms need. False
            makes a sparse CSR one, which PyG's linear layers take and most of its transforms do not.

    Raises:
        GraphError: If ``graph`` is no ``Graph``, or a node attribute bears the name of another attribute of the data.
        BudgetError: If dense features exceed the memory.

    Example:
        >>> to_pyg(Graph.from_edges([[0, 1], [1, 2]], num_nodes=3, y=[0, 1, 0]))
        Data(edge_index=[2, 4], y=[3], num_nodes=3)
    """
    require_graph(graph, Graph)
    taken = [name for name in ROW_NAMES if getattr(graph, name) is not None]
    check_attribute_names(graph.node_attributes, (*taken, "edge_index", "edge_weight", "num_nodes"), "a PyG Data")
    data = Data(edge_index=torch.from_numpy(graph.edge_index))
    if graph.x is not None:
        if dense_features and not isinstance(graph.x, np.ndarray):
            require_memory(graph.x.dtype.itemsize * graph.x.shape[0] * graph.x.shape[1], _DENSE_PURPOSE)
        data.x = features_to_tensor(graph.x, dense_features)
    if graph.edge_weight is not None:
        data.edge_weight = edge_weights_to_tensor(graph.edge_weight, data.get("x"))
    if graph.y is not None:
        data.y = labels_to_tensor(graph.y)
    for name in (*MASK_NAMES, *SOFT_NAMES):
        if getattr(graph, name) is not None:
            data[name] = to_tensor(getattr(graph, name))
    for name, value in graph.node_attributes.items():
        if not isinstance(value, np.ndarray):
            data[name] = features_to_tensor(value, dense=False)
        else:
            data[name] = value.tolist() if value.dtype.kind in "OUST" else to_tensor(value)
    data.num_nodes = graph.num_nodes
    return data


@functional_transform("falcon_collapse")
class FalconCollapse(BaseTransform):  # type: ignore[misc]
    """Collapses a ``Data`` to a node budget (functional name: ``falcon_collapse``).

    The result has the survivors' rows of every node-level attribute, whatever their dtype and device, the edges of the
    reduced graph, and the map: ``falcon_kept`` (input id of each survivor) and ``falcon_assignment`` (survivor of each
    input node, -1 where there is none). A second collapse composes both. The input is never changed.
    Under ``scope="train"`` the result holds training nodes only: evaluate on the input.

    Args:
        config: The options; or give them as keywords, which override those of ``config``.
        split_index: Which split, where masks have shape ``(N, S)``; None means split 0.
        centrality_attr: Node-level attribute of the data with scores to use instead of a computed centrality.
        clusters_attr: Node-level attribute with clusters to use.
        protect_attr: Boolean node-level attribute with nodes that must survive, for example ``"train_mask"``; of shape
            ``(N, S)`` the column that ``split_index`` says.
        node_attrs: As in :func:`from_pyg`.
        edge_attrs: As in :func:`from_pyg`.
        options: Fields of :class:`falcon_gnn.CollapseConfig`.

    Raises:
        OptionError: If an option is unknown or of another kind, or an attribute is missing (on call).

    Example:
        >>> data = Data(edge_index=torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]]), num_nodes=5, score=torch.arange(5.0))
        >>> FalconCollapse(node_budget=2, centrality_attr="score", num_clusters=1)
        FalconCollapse(node_budget=2, num_clusters=1, centrality_attr='score')
    """

    def __init__(
        self,
        config: CollapseConfig | None = None,
        *,
        split_index: int | None = None,
        centrality_attr: str | None = None,
        clusters_attr: str | None = None,
        protect_attr: str | None = None,
        node_attrs: str | Sequence[str] = (),
        edge_attrs: str | Sequence[str] = (),
        **options: Any,
    ) -> None:
        self.config = with_options(CollapseConfig, config, options, "FalconCollapse")
        check_whole("split_index", split_index, 0, or_none=True)
        self.split_index = split_index
        told = {"node_attrs": node_attrs, "edge_attrs": edge_attrs}
        self.told = {name: as_names(name, keys) for name, keys in told.items()}
        self.attributes = {"centrality": centrality_attr, "clusters": clusters_attr, "protect": protect_attr}

    def forward(self, data: Data) -> Data:
        """Return the collapsed data.

        Args:
            data: A homogeneous ``Data``.

        Raises:
            GraphError: As :func:`from_pyg` and :func:`falcon_gnn.collapse`.
        """
        graph, keys = _read(data, self.split_index, **self.told)
        given: dict[str, Any] = {
            name: self._given(data, key) for name, key in self.attributes.items() if key is not None
        }
        return _collapsed_data(data, keys, collapse(graph, self.config, **given), self.split_index or 0)

    def _given(self, data: Data, key: str) -> NDArray[Any]:
        if data.get(key) is None:
            msg = (
                f"data must have the attribute {key!r} that this FalconCollapse uses; it has {', '.join(data.keys())}."
            )
            raise OptionError(msg)
        array = to_array(data[key])
        return split_column(key, array, self.split_index) if array.dtype == np.bool_ else array

    def __repr__(self) -> str:
        """Show the arguments that differ from the defaults; by this text PyG knows whether its cache fits."""
        shown = {
            field.name: getattr(self.config, field.name)
            for field in fields(self.config)
            if field.default is MISSING or getattr(self.config, field.name) != field.default
        }
        shown |= {f"{name}_attr": key for name, key in self.attributes.items() if key is not None}
        shown |= {name: keys for name, keys in self.told.items() if keys}
        if self.split_index is not None:
            shown["split_index"] = self.split_index
        plain = {name: value.item() if isinstance(value, np.generic) else value for name, value in shown.items()}
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in plain.items())})"


def _falcon_collapse(self: Data, *args: Any, **kwargs: Any) -> Data:
    """Return this data collapsed; the arguments are those of :class:`FalconCollapse`."""
    return FalconCollapse(*args, **kwargs)(self)


Data.falcon_collapse = _falcon_collapse


def _collapsed_data(data: Data, keys: AttributeKeys, result: CollapseResult, split: int) -> Data:
    """Return the survivors' attributes under the edges of the reduced graph; a split told by ids becomes masks."""
    out = Data.from_dict(data.to_dict()) if isinstance(data, Batch) else copy.copy(data)
    for key in {*keys.unfit, *keys.ids, *EDGE_KEYS, "ptr"} & set(out.keys()):
        del out[key]
    kept = torch.from_numpy(result.kept.copy())
    for key in keys.nodes:
        out[key] = _rows(data[key], kept)
    device = _device(data)
    if result.config.merge == "mean":
        _set_features(out, result.graph)
    if result.config.merge == "mean" or result.teacher is not None:
        _set_labels(out, result.graph)
    for name in MASK_NAMES:
        _set_mask(out, name, getattr(result.graph, name), split, device)
    for key in SOFT_NAMES:
        if getattr(result.graph, key) is not None:
            out[key] = to_tensor(getattr(result.graph, key)).to(device)
        elif key in out:
            del out[key]
    out.edge_index = torch.from_numpy(result.graph.edge_index).to(device)
    if result.graph.edge_weight is not None:
        out.edge_weight = _edge_weights(data, out, result.graph.edge_weight).to(device)
    out.num_nodes = result.graph.num_nodes
    assignment = result.assignment
    if data.get("falcon_assignment") is not None:
        assignment = _composed(to_array(data.falcon_assignment), assignment)
    out.falcon_assignment = torch.from_numpy(assignment.copy()).to(device)
    if data.get("falcon_kept") is None:
        out.falcon_kept = kept.to(device)
    return out


def _set_features(out: Data, reduced: Graph) -> None:
    """Write the groups' means over the survivors' own features, in the dtype that the data had."""
    if reduced.x is not None:
        mean = features_to_tensor(reduced.x, dense=not is_sparse(out.x))
        out.x = mean.to(out.x.dtype if out.x.is_floating_point() else mean.dtype).to(out.x.device)


def _set_labels(out: Data, reduced: Graph) -> None:
    """Write the groups' or the teacher's labels over the survivors' own, in the dtype that the data had."""
    if reduced.y is not None:
        target = to_tensor(reduced.y)
        keeps_dtype = out.y.is_floating_point() or not target.is_floating_point()
        out.y = target.to(out.y.dtype if keeps_dtype else target.dtype).to(out.y.device).reshape(out.y.shape)


def _edge_weights(data: Data, out: Data, weight: NDArray[Any]) -> Any:
    """Return weights in the dtype that those of the data had, else as precise as the features."""
    given, x = data.get("edge_weight"), out.get("x")
    if given is not None and given.is_floating_point():
        return to_tensor(weight).to(given.dtype)
    has_floats = isinstance(x, torch.Tensor) and x.is_floating_point()
    return edge_weights_to_tensor(weight, x if has_floats else None)


def _set_mask(out: Data, name: str, mask: NDArray[np.bool_] | None, split: int, device: Any) -> None:
    """Write a mask of the reduced graph over the survivors' own; a mask that selects none is left out.

    Args:
        out: The data.
        name: The mask.
        mask: Shape ``(n,)``; None where it selects none.
        split: Which column it is where the data has several splits; the others stay as they are.
        device: Where the data lies.
    """
    if name in out and out[name].dim() == 2:
        column = split if out[name].shape[1] > 1 else 0
        out[name][:, column] = False if mask is None else to_tensor(mask).to(out[name].device)
    elif mask is not None:
        out[name] = to_tensor(mask).to(device)
    elif name in out:
        del out[name]
    if name in out and not bool(out[name].any()):
        del out[name]


def _composed(first: NDArray[Any], second: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where nodes end that two collapses move one after the other."""
    return np.where(first >= 0, second[np.maximum(first, 0)], -1)


def _rows(value: Any, kept: Any) -> Any:
    if isinstance(value, torch.Tensor):
        if is_sparse(value):
            return value.to_sparse().index_select(0, kept.to(value.device)).to_sparse(layout=value.layout)
        return value[kept.to(value.device)]
    if isinstance(value, np.ndarray) or hasattr(value, "sparse_sizes"):
        return value[kept.numpy() if isinstance(value, np.ndarray) else kept]
    return [value[i] for i in kept.tolist()]


def _device(data: Data) -> Any:
    return next((value.device for value in data.to_dict().values() if isinstance(value, torch.Tensor)), "cpu")
