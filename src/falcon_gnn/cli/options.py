"""The options of the commands, and what their values mean."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from falcon_gnn.datasets.splits import Split
from falcon_gnn.errors import BudgetError
from falcon_gnn.evaluation import ScoreName
from falcon_gnn.reduction.budgets import Selection
from falcon_gnn.reduction.config import Merge, Scope
from falcon_gnn.reduction.contraction import EdgeWeights, Order
from falcon_gnn.training.configs import ModelName, Precision

if TYPE_CHECKING:
    from falcon_gnn.graph import Graph

HopsFrom = Literal["reduced", "original"]
Preset = Literal["paper", "recommended"]
COLLAPSE_OPTIONS = (
    "centrality", "num_clusters", "gamma", "scope", "selection", "order", "merge", "edge_weights", "seed",
)  # fmt: skip
Engine = Literal["local", "spark"]

Source = Annotated[str, typer.Argument(help="A data set's name, or the path of a graph file or folder.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
NodeBudget = Annotated[
    str | None, typer.Option(help="Nodes to keep: a whole number, or a share with a decimal point (0.34).")
]
PresetOption = Annotated[
    Preset,
    typer.Option(
        help="How to collapse where no option says so: as the paper, or as we recommend: by PageRank, for SIGN models "
        "stratified survivors with the original's hops, for other models group means. train also corrects predictions."
    ),
]
Centrality = Annotated[str, typer.Option(help="degree, betweenness, closeness, pagerank, eigenvector or random.")]
NumClusters = Annotated[int, typer.Option(help="Feature-label clusters; 1 is the pure centrality collapse.")]
Gamma = Annotated[float, typer.Option(help="Weight of features against labels in the clusters, 0 to 1.")]
ScopeOption = Annotated[Scope | None, typer.Option(help="train or full; by default train where there is a train mask.")]
SelectionOption = Annotated[
    Selection, typer.Option(help="Which nodes of a cluster survive: lowest, stratified or random.")
]
OrderOption = Annotated[Order, typer.Option(help="Order of the merges: cluster or global.")]
MergeOption = Annotated[Merge, typer.Option(help="What a survivor carries: hub, mean or drop.")]
EdgeWeightsOption = Annotated[EdgeWeights, typer.Option(help="Weights of the reduced graph: none, count or sum.")]
Memory = Annotated[
    str | None, typer.Option(help="In place of --node-budget: bytes a training step may take, such as 2GiB or 80%.")
]
Seed = Annotated[int, typer.Option(help="Draws ties, clusters, samples, weights and batches.")]
Root = Annotated[Path | None, typer.Option(help="Folder with the raw files of a named data set.")]
SplitOption = Annotated[Split | None, typer.Option(help="public, full or random.")]
SplitIndex = Annotated[int | None, typer.Option(help="Which split, where the source holds several.")]
Threshold = Annotated[float | None, typer.Option(help="Cosine above which two images are linked.")]
NumNodes = Annotated[int | None, typer.Option(help="Number of nodes, for an edge list without a node table.")]
Nodes = Annotated[Path | None, typer.Option(help="Node table of an edge list.")]
LabelColumn = Annotated[
    str | None,
    typer.Option(help="Column or array with the labels, if not y or label; several with commas: multi-label."),
]
FeatureColumns = Annotated[
    str | None, typer.Option(help="Columns or arrays with the features, with commas; v* is all that begin with v.")
]
IdColumn = Annotated[str | None, typer.Option(help="Column of the node table with the edges' ids, if not node_id.")]
EngineOption = Annotated[Engine, typer.Option(help="Where the collapse runs: local or spark (needs Java 17).")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master, local[2] or spark://host:7077; by default Spark's own setting.")
]

Model = Annotated[ModelName, typer.Option(help="gcn, sign, qsign, sign-original, cluster-gcn or gas.")]
Hidden = Annotated[int, typer.Option(help="Width of the hidden layers.")]
Layers = Annotated[int, typer.Option(help="Layers from input to output.")]
Dropout = Annotated[float, typer.Option(help="Share of hidden values dropped in training.")]
BatchNorm = Annotated[bool, typer.Option(help="Batch-normalise the hidden layers.")]
Hops = Annotated[int, typer.Option(help="Hops of the SIGN models' features.")]
HopsFromOption = Annotated[
    HopsFrom, typer.Option(help="Where the survivors' hop features come from: reduced or original.")
]
CorrectAndSmooth = Annotated[
    bool, typer.Option(help="Mend predictions with the labels of all training nodes; in the recommended preset.")
]
Bits = Annotated[int | None, typer.Option(help="Bits per activation kept for backward: 1, 2, 4 or 8.")]
ConcatSelf = Annotated[bool, typer.Option(help="GCN layers see [AH, H] in place of AH.")]
Parts = Annotated[int | None, typer.Option(help="METIS parts of cluster-gcn and gas.")]
Batches = Annotated[int, typer.Option(help="Batches per epoch.")]
Epochs = Annotated[int, typer.Option(help="Passes over the training nodes.")]
Patience = Annotated[int | None, typer.Option(help="Stop after so many evaluations without a better score.")]
EvalEvery = Annotated[int, typer.Option(help="Epochs between two evaluations.")]
LearningRate = Annotated[float, typer.Option(help="Adam's step size.")]
WeightDecay = Annotated[float, typer.Option(help="L2 penalty.")]
PrecisionOption = Annotated[Precision, typer.Option(help="float32 or bf16.")]
Metric = Annotated[ScoreName, typer.Option(help="Score that picks the best epoch: accuracy or micro_f1.")]
Device = Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:1, ...")]
Deterministic = Annotated[bool, typer.Option(help="Deterministic algorithms only.")]
Devices = Annotated[
    int, typer.Option(help="Processes of one device each; more than 1 for the SIGN models, cluster-gcn.")
]
Resume = Annotated[bool, typer.Option(help="Go on from the checkpoint in --out.")]
LogDir = Annotated[Path | None, typer.Option(help="Folder for TensorBoard curves.")]


def given_options(context: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """Return the options that the user gave."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {name: context.params[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def refuse_without_budget(context: typer.Context) -> None:
    """Refuse options that say how to collapse where nothing says how far."""
    names = [name for name in ("preset", *COLLAPSE_OPTIONS, "hops_from") if name not in ("scope", "seed")]
    for name in given_options(context, names):
        option = f"--{name.replace('_', '-')}"
        msg = f"{option} says how to collapse: it needs --node-budget or --memory, got neither."
        raise BudgetError(msg)


def parse_budget(text: str | None, memory: str | None) -> int | float:
    """Return a budget as given on the command: with a decimal point a share, else a number of nodes."""
    if (text is None) == (memory is None):
        msg = (
            "one of --node-budget (a whole number of nodes, or a share with a decimal point, such as 0.34) and "
            f"--memory (bytes, such as 2GiB) is needed, got {'neither' if text is None else 'both'}."
        )
        raise BudgetError(msg)
    if text is None:
        return 1.0
    try:
        return float(text) if "." in text else int(text)
    except ValueError:
        msg = f"--node-budget must be a whole number of nodes or a share with a decimal point, got {text!r}."
        raise BudgetError(msg) from None


def load_source(
    source: str,
    root: Path | None = None,
    split: Split | None = None,
    split_index: int | None = None,
    threshold: float | None = None,
    num_nodes: int | None = None,
    nodes: Path | None = None,
    seed: int = 0,
    label_column: str | None = None,
    feature_columns: str | None = None,
    id_column: str | None = None,
) -> "Graph":
    """Return the graph that a source names; arguments as in ``load_graph``."""
    from falcon_gnn.datasets import load_graph

    return load_graph(
        source, root=root, split=split, split_index=split_index, seed=seed, threshold=threshold,
        num_nodes=num_nodes, nodes=nodes, label_column=label_column,
        feature_columns=feature_columns, id_column=id_column,
    )  # fmt: skip
