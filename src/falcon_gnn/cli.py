"""The command ``falcon-gnn``: options in, one call, tables out. It decides nothing."""

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from falcon_gnn.benchmark.commands import app as experiments
from falcon_gnn.datasets.splits import Split
from falcon_gnn.errors import BudgetError, FalconError, GraphError
from falcon_gnn.evaluation import ScoreName
from falcon_gnn.reduction.budgets import Selection
from falcon_gnn.reduction.config import CollapseConfig, Merge, Scope
from falcon_gnn.reduction.contraction import EdgeWeights, Order
from falcon_gnn.training.configs import ModelConfig, ModelName, Precision, TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.distributed.table_source import TableSource
    from falcon_gnn.graph import Graph

HopsFrom = Literal["reduced", "original"]
Preset = Literal["paper", "recommended"]
_COLLAPSE_OPTIONS = (
    "centrality", "num_clusters", "gamma", "scope", "selection", "order", "merge", "edge_weights", "seed",
)  # fmt: skip
Engine = Literal["local", "spark"]

app = typer.Typer(
    name="falcon-gnn",
    help="Collapse a graph that is too big to train on, train on what is left, and map every node back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Source = Annotated[str, typer.Argument(help="A data set's name, or the path of a graph file or folder.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]
NodeBudget = Annotated[
    str | None, typer.Option(help="Nodes to keep: a whole number, or a share with a decimal point (0.34).")
]
PresetOption = Annotated[
    Preset, typer.Option(help="Where the options below come from unless given: the paper, or what we recommend.")
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
EngineOption = Annotated[Engine, typer.Option(help="Where the collapse runs: local or spark (needs Java 17).")]
Master = Annotated[
    str | None, typer.Option(help="Spark's master, local[2] or spark://host:7077; by default Spark's own setting.")
]


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        from falcon_gnn import __version__

        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    pass


Model = Annotated[ModelName, typer.Option(help="gcn, sign, qsign, sign-original, cluster-gcn or gas.")]
Hidden = Annotated[int, typer.Option(help="Width of the hidden layers.")]
Layers = Annotated[int, typer.Option(help="Layers from input to output.")]
Dropout = Annotated[float, typer.Option(help="Share of hidden values dropped in training.")]
BatchNorm = Annotated[bool, typer.Option(help="Batch-normalise the hidden layers.")]
Hops = Annotated[int, typer.Option(help="Hops of the SIGN models' features.")]
HopsFromOption = Annotated[
    HopsFrom, typer.Option(help="Where the survivors' hop features come from: reduced or original.")
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


@app.command()
def collapse(
    context: typer.Context,
    source: Source,
    out: Out,
    node_budget: NodeBudget = None,
    memory: Memory = None,
    preset: PresetOption = "paper",
    model: Model = "gcn",
    hidden: Hidden = 256,
    layers: Layers = 3,
    hops: Hops = 2,
    batch_norm: BatchNorm = False,
    bits: Bits = None,
    concat_self: ConcatSelf = False,
    parts: Parts = None,
    batches: Batches = 1,
    device: Device = "auto",
    centrality: Centrality = "eigenvector",
    num_clusters: NumClusters = 100,
    gamma: Gamma = 0.5,
    scope: ScopeOption = None,
    selection: SelectionOption = "lowest",
    order: OrderOption = "cluster",
    merge: MergeOption = "hub",
    edge_weights: EdgeWeightsOption = "none",
    seed: Seed = 0,
    root: Root = None,
    split: SplitOption = None,
    split_index: SplitIndex = None,
    threshold: Threshold = None,
    num_nodes: NumNodes = None,
    nodes: Nodes = None,
    engine: EngineOption = "local",
    master: Master = None,
) -> None:
    """Collapse a graph to a node budget; write graph.npz, mapping.npz, report.json and report.html.

    With --memory the budget is the largest on which a training step of --model fits. With --engine spark the tables
    nodes.parquet, edges.parquet and assignment.parquet are written, and report.json.
    """
    from falcon_gnn.outputs import write_collapse
    from falcon_gnn.pipeline import fit_collapse
    from falcon_gnn.reduction.falcon import collapse as run_collapse
    from falcon_gnn.reporting.terminal import collapse_table

    make = CollapseConfig.recommended if preset == "recommended" else CollapseConfig
    config = make(node_budget=_parse_budget(node_budget, memory), **_given(context, _COLLAPSE_OPTIONS))
    load = partial(_load, source, root, split, split_index, threshold, num_nodes, nodes, seed)
    if engine == "spark":
        from falcon_gnn.distributed.table_source import TableSource

        told = {"root": root, "split": split, "split_index": split_index, "threshold": threshold}
        _collapse_on_spark(
            TableSource(source, nodes, load, {**told, "num_nodes": num_nodes}), config, out, master, memory
        )
        return
    if master is not None:
        msg = f"--master is Spark's, got {master!r} with --engine {engine}. Add --engine spark, or leave it out."
        raise GraphError(msg)
    with _stages() as on_stage:
        on_stage("loading")
        graph = load()
        if memory is None:
            result = run_collapse(graph, config, on_stage=on_stage)
        else:
            training = TrainConfig(
                ModelConfig(
                    model, hidden_channels=hidden, num_layers=layers, batch_norm=batch_norm, num_hops=hops, bits=bits,
                    concat_self=concat_self, num_parts=parts,
                ),
                num_batches=batches, seed=seed, device=device,
            )  # fmt: skip
            fit = fit_collapse(graph, config, training, memory, on_stage=on_stage)
            typer.echo(fit.plan.describe())
            if fit.result is None:
                return
            result = fit.result
        on_stage("writing files")
        has_page = write_collapse(result, out, title=f"{Path(source).name} collapsed")
    _print(collapse_table(result.report))
    _say_written(out, has_page)


@app.command()
def train(
    context: typer.Context,
    source: Source,
    out: Out,
    model: Model = "qsign",
    node_budget: NodeBudget = None,
    memory: Memory = None,
    preset: PresetOption = "paper",
    centrality: Centrality = "eigenvector",
    num_clusters: NumClusters = 100,
    gamma: Gamma = 0.5,
    scope: ScopeOption = None,
    selection: SelectionOption = "lowest",
    order: OrderOption = "cluster",
    merge: MergeOption = "hub",
    edge_weights: EdgeWeightsOption = "none",
    hops_from: HopsFromOption = "reduced",
    hidden: Hidden = 256,
    layers: Layers = 3,
    dropout: Dropout = 0.5,
    batch_norm: BatchNorm = False,
    hops: Hops = 2,
    bits: Bits = None,
    concat_self: ConcatSelf = False,
    parts: Parts = None,
    batches: Batches = 1,
    epochs: Epochs = 200,
    patience: Patience = 50,
    eval_every: EvalEvery = 1,
    learning_rate: LearningRate = 0.001,
    weight_decay: WeightDecay = 0.0,
    precision: PrecisionOption = "float32",
    metric: Metric = "accuracy",
    device: Device = "auto",
    deterministic: Deterministic = False,
    devices: Devices = 1,
    seed: Seed = 0,
    resume: Resume = False,
    log_dir: LogDir = None,
    root: Root = None,
    split: SplitOption = None,
    split_index: SplitIndex = None,
    threshold: Threshold = None,
    num_nodes: NumNodes = None,
    nodes: Nodes = None,
) -> None:
    """Collapse (with --node-budget or --memory), train, score on the original graph; write record, weights, plots."""
    from falcon_gnn.pipeline import RunConfig, run
    from falcon_gnn.reporting.terminal import collapse_table, runs_table

    training = TrainConfig(
        model=ModelConfig(
            model=model, hidden_channels=hidden, num_layers=layers, dropout=dropout, batch_norm=batch_norm,
            num_hops=hops, bits=bits, concat_self=concat_self, num_parts=parts,
        ),
        learning_rate=learning_rate, weight_decay=weight_decay, num_epochs=epochs, num_batches=batches,
        patience=patience, eval_every=eval_every, seed=seed, precision=precision, deterministic=deterministic,
        validation_metric=metric, device=device, measure_memory=True,
    )  # fmt: skip
    config = RunConfig(training, scope=scope, hops_from=hops_from)
    if node_budget is not None or memory is not None:
        budget, given = _parse_budget(node_budget, memory), _given(context, _COLLAPSE_OPTIONS)
        if preset == "recommended":
            config = RunConfig.recommended(training, budget, **given)
        else:
            config = RunConfig(training, CollapseConfig(budget, **given))
        config = replace(config, **_given(context, ("scope", "hops_from")))
    elif preset == "recommended":
        msg = "--preset recommended says how to collapse: it needs --node-budget or --memory, got neither."
        raise BudgetError(msg)
    train_with = None
    if devices > 1:
        from falcon_gnn.distributed.data_parallel import train_on_devices

        train_with = partial(train_on_devices, num_devices=devices)
    with _stages() as on_stage:
        on_stage("loading")
        graph = _load(source, root, split, split_index, threshold, num_nodes, nodes, seed)
        outcome = run(
            graph,
            config,
            name=source,
            memory=memory,
            out=out,
            resume=resume,
            on_stage=on_stage,
            log_dir=log_dir,
            train_with=train_with,
        )
    if outcome.reduction is not None:
        _print(collapse_table(outcome.reduction.report))
    elif memory is not None:
        num_batches = outcome.record["config"]["training"]["num_batches"]
        typer.echo(f"All nodes fit {memory} in {num_batches} batch{'es' if num_batches > 1 else ''}; none was removed.")
    _print(runs_table({model: outcome.record}))
    _say_written(out, has_plots=(out / "learning_curve.png").exists())


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder that `falcon-gnn train` wrote.")],
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, .parquet or .csv.")],
    root: Root = None,
    num_nodes: NumNodes = None,
    nodes: Nodes = None,
) -> None:
    """Label the nodes of a graph with a trained model."""
    from falcon_gnn.outputs import predict_to_file

    with _stages() as on_stage:
        on_stage("loading")
        graph = _load(source, root=root, num_nodes=num_nodes, nodes=nodes)
        on_stage("prediction")
        count = predict_to_file(run, graph, out)
    typer.echo(f"{count:,} nodes labelled in {out}")


@app.command()
def plan(
    source: Source,
    memory: Annotated[str, typer.Option(help="Bytes a training step may take, such as 2GiB, 900MB or 80%.")],
    hidden: Hidden = 256,
    layers: Layers = 3,
    dropout: Dropout = 0.5,
    batch_norm: BatchNorm = False,
    hops: Hops = 2,
    batches: Batches = 1,
    device: Device = "auto",
    scope: ScopeOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for a plot of peak over budget.")] = None,
    root: Root = None,
    split: SplitOption = None,
    split_index: SplitIndex = None,
    threshold: Threshold = None,
    num_nodes: NumNodes = None,
    nodes: Nodes = None,
) -> None:
    """Say what fits a memory budget: per model the nodes, the batches and the predicted peak."""
    from falcon_gnn.outputs import write_peak_curves
    from falcon_gnn.planning import plan_models, standard_configs
    from falcon_gnn.reporting.terminal import plans_table

    model = ModelConfig(
        hidden_channels=hidden, num_layers=layers, dropout=dropout, batch_norm=batch_norm, num_hops=hops
    )
    configs = standard_configs(TrainConfig(model, num_batches=1, device=device), batches)
    with _stages() as on_stage:
        on_stage("loading")
        graph = _load(source, root, split, split_index, threshold, num_nodes, nodes)
        on_stage("planning")
        plans = plan_models(graph, configs, memory, scope=scope)
        if out is not None:
            write_peak_curves(graph, configs, memory, out, scope=scope)
    _print(plans_table(plans, memory))
    for name, outcome in plans.items():
        if isinstance(outcome, BudgetError):
            typer.echo(f"{name}: {outcome}")


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("reduced")) -> None:
    """Collapse the embedded digits graph, train on all of it and on what is left, and compare."""
    from falcon_gnn.demo import run_demo
    from falcon_gnn.reporting.terminal import collapse_table, runs_table

    with _stages() as on_stage:
        shown = run_demo(out, on_stage)
    _print(collapse_table(shown.report))
    _print(runs_table(shown.records))
    _say_written(out, shown.has_page)


app.registered_commands += experiments.registered_commands


def main() -> NoReturn:
    """Run the command; an error of ours is one line on standard error and exit code 2."""
    try:
        app()
    except FalconError as error:
        typer.secho(f"falcon-gnn: {error}", err=True, fg=typer.colors.RED)
        sys.exit(2)
    except KeyboardInterrupt as stop:
        typer.secho(f"falcon-gnn: {stop or 'interrupted; no half-written file is left'}", err=True)
        sys.exit(130)
    sys.exit(0)


def _given(context: typer.Context, names: Iterable[str]) -> dict[str, Any]:
    """Return the options that the user gave."""
    sources = {name: context.get_parameter_source(name) for name in names}
    return {name: context.params[name] for name, source in sources.items() if source and source.name != "DEFAULT"}


def _collapse_on_spark(
    source: "TableSource", config: CollapseConfig, out: Path, master: str | None, memory: str | None
) -> None:
    from falcon_gnn.distributed.spark import check_options
    from falcon_gnn.distributed.spark import collapse as run_on_spark
    from falcon_gnn.distributed.spark_frames import open_session
    from falcon_gnn.reporting.terminal import spark_table

    if memory is not None:
        msg = f"--memory is not known to --engine spark, got {memory!r}. Use --node-budget, or --engine local."
        raise GraphError(msg)
    check_options(config)
    with _stages() as on_stage:
        on_stage("starting Spark")
        spark = open_session(master)
        on_stage("loading")
        tables = source.open(spark)
        on_stage("collapsing on Spark")
        result = run_on_spark(*tables, config, spark=spark)
        on_stage("writing files")
        result.save(out.absolute().as_uri())
    _print(spark_table(result.report))
    typer.echo(f"Written to {out}/: assignment.parquet, edges.parquet, nodes.parquet, report.json")


def _parse_budget(text: str | None, memory: str | None) -> int | float:
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


def _load(
    source: str,
    root: Path | None = None,
    split: Split | None = None,
    split_index: int | None = None,
    threshold: float | None = None,
    num_nodes: int | None = None,
    nodes: Path | None = None,
    seed: int = 0,
) -> "Graph":
    from falcon_gnn.datasets import load_graph

    return load_graph(
        source, root=root, split=split, split_index=split_index, seed=seed, threshold=threshold,
        num_nodes=num_nodes, nodes=nodes,
    )  # fmt: skip


@contextmanager
def _stages() -> Iterator[Callable[[str], None]]:
    """Yield a function that shows the stage now running, on standard error, while there is a terminal."""
    from rich.console import Console

    console = Console(stderr=True)
    status = console.status("starting")
    status.start()

    def show(stage: str) -> None:
        # The training draws its own bar; two live displays cannot share a terminal.
        if stage == "training":
            status.stop()
        else:
            status.update(stage)
            status.start()

    try:
        yield show
    finally:
        status.stop()


def _print(table: object) -> None:
    from rich.console import Console

    console = Console()
    # Where the output is a file or a pipe there is no width to fit.
    if not console.is_terminal:
        console = Console(width=160)
    console.print(table)


def _say_written(folder: Path, has_plots: bool) -> None:
    typer.echo(f"Written to {folder}/: {', '.join(sorted(path.name for path in folder.iterdir() if path.is_file()))}")
    if not has_plots:
        typer.echo("Plots and report.html need the extra report: pip install 'falcon-gnn[report]'")
