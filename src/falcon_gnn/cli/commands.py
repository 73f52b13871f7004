"""The command ``falcon-gnn``: options in, one call, tables out. It decides nothing."""

import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from falcon_gnn.benchmark.commands import app as experiments
from falcon_gnn.cli import options as opt
from falcon_gnn.cli.screen import print_collapse, print_table, say_written, show_stages
from falcon_gnn.errors import BudgetError, FalconError, OptionError
from falcon_gnn.files import check_writable
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.configs import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.distributed.table_source import TableSource


class _Commands(TyperGroup):
    """The commands; on Ctrl-C they say what is left, where Typer would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            typer.secho(f"falcon-gnn: {stop or 'interrupted; no half-written file is left'}", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    name="falcon-gnn",
    cls=_Commands,
    help="Collapse a graph that is too big to train on, train on what is left, and map every node back.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


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


@app.command()
def collapse(
    context: typer.Context,
    source: opt.Source,
    out: opt.Out,
    node_budget: opt.NodeBudget = None,
    memory: opt.Memory = None,
    preset: opt.PresetOption = "paper",
    model: opt.Model = "gcn",
    hidden: opt.Hidden = 256,
    layers: opt.Layers = 3,
    hops: opt.Hops = 2,
    batch_norm: opt.BatchNorm = False,
    bits: opt.Bits = None,
    concat_self: opt.ConcatSelf = False,
    parts: opt.Parts = None,
    batches: opt.Batches = 1,
    device: opt.Device = "auto",
    centrality: opt.Centrality = "eigenvector",
    num_clusters: opt.NumClusters = 100,
    gamma: opt.Gamma = 0.5,
    scope: opt.ScopeOption = None,
    selection: opt.SelectionOption = "lowest",
    order: opt.OrderOption = "cluster",
    merge: opt.MergeOption = "hub",
    edge_weights: opt.EdgeWeightsOption = "none",
    seed: opt.Seed = 0,
    root: opt.Root = None,
    split: opt.SplitOption = None,
    split_index: opt.SplitIndex = None,
    threshold: opt.Threshold = None,
    num_nodes: opt.NumNodes = None,
    nodes: opt.Nodes = None,
    label_column: opt.LabelColumn = None,
    feature_columns: opt.FeatureColumns = None,
    id_column: opt.IdColumn = None,
    engine: opt.EngineOption = "local",
    master: opt.Master = None,
) -> None:
    """Collapse a graph to a node budget; write graph.npz, mapping.npz, report.json and report.html.

    With --memory the budget is the largest on which a training step of --model fits. With --engine spark the tables
    nodes.parquet, edges.parquet and assignment.parquet are written, and report.json.
    """
    from falcon_gnn.outputs import write_collapse
    from falcon_gnn.pipeline import fit_collapse, recommended_collapse
    from falcon_gnn.reduction.falcon import collapse as run_collapse

    if "://" not in str(out):
        check_writable(out, option="--out")
    training = TrainConfig(
        ModelConfig(
            model, hidden_channels=hidden, num_layers=layers, batch_norm=batch_norm, num_hops=hops, bits=bits,
            concat_self=concat_self, num_parts=parts,
        ),
        num_batches=batches, seed=seed, device=device,
    )  # fmt: skip
    if engine == "spark" and memory is not None:
        msg = f"--memory is not known to --engine spark, got {memory!r}. Use --node-budget, or --engine local."
        raise OptionError(msg)
    budget, given = opt.parse_budget(node_budget, memory), opt.given_options(context, opt.COLLAPSE_OPTIONS)
    if preset == "paper":
        config = CollapseConfig(budget, **given)
    else:
        config = recommended_collapse(training, budget, **given)
        if engine == "spark" and "merge" not in given and config.merge == "mean":
            msg = (
                f"--preset recommended averages groups for --model {model}, which --engine spark does not. Add --merge "
                "hub, or --model sign for what is recommended where hops come from the original graph."
            )
            raise OptionError(msg)
    columns = {"label_column": label_column, "feature_columns": feature_columns, "id_column": id_column}
    load = partial(opt.load_source, source, root, split, split_index, threshold, num_nodes, nodes, seed, **columns)
    if engine == "spark":
        from falcon_gnn.distributed.table_source import TableSource

        told = {"root": root, "split": split, "split_index": split_index, "threshold": threshold, **columns}
        _collapse_on_spark(TableSource(source, nodes, load, {**told, "num_nodes": num_nodes}), config, out, master)
        return
    if master is not None:
        msg = f"--master is Spark's, got {master!r} with --engine {engine}. Add --engine spark, or leave it out."
        raise OptionError(msg)
    with show_stages() as on_stage:
        on_stage("loading")
        graph = load()
        if memory is None:
            result = run_collapse(graph, config, on_stage=on_stage)
        else:
            fit = fit_collapse(graph, config, training, memory, on_stage=on_stage)
            typer.echo(fit.plan.describe())
            if fit.result is None:
                typer.echo("Nothing was written.")
                return
            result = fit.result
        on_stage("writing files")
        has_page = write_collapse(result, out, title=f"{Path(source).name} collapsed")
    print_collapse(result.report)
    say_written(out, has_page)


@app.command()
def train(
    context: typer.Context,
    source: opt.Source,
    out: opt.Out,
    model: opt.Model = "qsign",
    node_budget: opt.NodeBudget = None,
    memory: opt.Memory = None,
    preset: opt.PresetOption = "paper",
    centrality: opt.Centrality = "eigenvector",
    num_clusters: opt.NumClusters = 100,
    gamma: opt.Gamma = 0.5,
    scope: opt.ScopeOption = None,
    selection: opt.SelectionOption = "lowest",
    order: opt.OrderOption = "cluster",
    merge: opt.MergeOption = "hub",
    edge_weights: opt.EdgeWeightsOption = "none",
    hops_from: opt.HopsFromOption = "reduced",
    correct_and_smooth: opt.CorrectAndSmooth = False,
    hidden: opt.Hidden = 256,
    layers: opt.Layers = 3,
    dropout: opt.Dropout = 0.5,
    batch_norm: opt.BatchNorm = False,
    hops: opt.Hops = 2,
    bits: opt.Bits = None,
    concat_self: opt.ConcatSelf = False,
    parts: opt.Parts = None,
    batches: opt.Batches = 1,
    epochs: opt.Epochs = 200,
    patience: opt.Patience = 50,
    eval_every: opt.EvalEvery = 1,
    learning_rate: opt.LearningRate = 0.001,
    weight_decay: opt.WeightDecay = 0.0,
    precision: opt.PrecisionOption = "float32",
    metric: opt.Metric = "accuracy",
    device: opt.Device = "auto",
    deterministic: opt.Deterministic = False,
    devices: opt.Devices = 1,
    seed: opt.Seed = 0,
    resume: opt.Resume = False,
    log_dir: opt.LogDir = None,
    root: opt.Root = None,
    split: opt.SplitOption = None,
    split_index: opt.SplitIndex = None,
    threshold: opt.Threshold = None,
    num_nodes: opt.NumNodes = None,
    nodes: opt.Nodes = None,
    label_column: opt.LabelColumn = None,
    feature_columns: opt.FeatureColumns = None,
    id_column: opt.IdColumn = None,
) -> None:
    """Collapse (with --node-budget or --memory), train, score on the original graph; write record, weights, plots."""
    from falcon_gnn.pipeline import RunConfig, run
    from falcon_gnn.reporting.terminal import correction_line, runs_table

    check_writable(out, option="--out")
    training = TrainConfig(
        model=ModelConfig(
            model=model, hidden_channels=hidden, num_layers=layers, dropout=dropout, batch_norm=batch_norm,
            num_hops=hops, bits=bits, concat_self=concat_self, num_parts=parts,
        ),
        learning_rate=learning_rate, weight_decay=weight_decay, num_epochs=epochs, num_batches=batches,
        patience=patience, eval_every=eval_every, seed=seed, precision=precision, deterministic=deterministic,
        validation_metric=metric, device=device, measure_memory=True,
    )  # fmt: skip
    given = opt.given_options(context, opt.COLLAPSE_OPTIONS)
    if node_budget is None and memory is None:
        opt.refuse_without_budget(context)
        config = RunConfig(training, scope=scope, correct_and_smooth=correct_and_smooth)
    elif preset == "recommended":
        told = opt.given_options(context, ("hops_from", "correct_and_smooth"))
        config = RunConfig.recommended(training, opt.parse_budget(node_budget, memory), **told, **given)
    else:
        reduction = CollapseConfig(opt.parse_budget(node_budget, memory), **given)
        config = RunConfig(training, reduction, scope=scope, hops_from=hops_from, correct_and_smooth=correct_and_smooth)
    train_with = None
    if devices > 1:
        from falcon_gnn.distributed.data_parallel import train_on_devices

        train_with = partial(train_on_devices, num_devices=devices)
    with show_stages() as on_stage:
        on_stage("loading")
        graph = opt.load_source(
            source,
            root,
            split,
            split_index,
            threshold,
            num_nodes,
            nodes,
            seed,
            label_column=label_column,
            feature_columns=feature_columns,
            id_column=id_column,
        )
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
        print_collapse(outcome.reduction.report)
    elif memory is not None:
        num_batches = outcome.record["config"]["training"]["num_batches"]
        typer.echo(f"All nodes fit {memory} in {num_batches} batch{'es' if num_batches > 1 else ''}; none was removed.")
    print_table(runs_table({model: outcome.record}))
    if config.correct_and_smooth:
        typer.echo(correction_line(outcome.record["correction"]))
    say_written(out, has_plots=(out / "learning_curve.png").exists())


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Folder that `falcon-gnn train` wrote.")],
    source: opt.Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, .parquet or .csv.")],
    root: opt.Root = None,
    num_nodes: opt.NumNodes = None,
    nodes: opt.Nodes = None,
    label_column: opt.LabelColumn = None,
    feature_columns: opt.FeatureColumns = None,
    id_column: opt.IdColumn = None,
) -> None:
    """Label the nodes of a graph with a trained model."""
    from falcon_gnn.outputs import predict_to_file

    check_writable(out, is_folder=False, option="--out")
    with show_stages() as on_stage:
        on_stage("loading")
        graph = opt.load_source(
            source,
            root=root,
            num_nodes=num_nodes,
            nodes=nodes,
            label_column=label_column,
            feature_columns=feature_columns,
            id_column=id_column,
        )
        on_stage("prediction")
        count = predict_to_file(run, graph, out)
    typer.echo(f"{count:,} nodes labelled in {out}")


@app.command()
def plan(
    source: opt.Source,
    memory: Annotated[str, typer.Option(help="Bytes a training step may take, such as 2GiB, 900MB or 80%.")],
    hidden: opt.Hidden = 256,
    layers: opt.Layers = 3,
    dropout: opt.Dropout = 0.5,
    batch_norm: opt.BatchNorm = False,
    hops: opt.Hops = 2,
    batches: opt.Batches = 1,
    device: opt.Device = "auto",
    scope: opt.ScopeOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for a plot of peak over budget.")] = None,
    root: opt.Root = None,
    split: opt.SplitOption = None,
    split_index: opt.SplitIndex = None,
    threshold: opt.Threshold = None,
    num_nodes: opt.NumNodes = None,
    nodes: opt.Nodes = None,
    label_column: opt.LabelColumn = None,
    feature_columns: opt.FeatureColumns = None,
    id_column: opt.IdColumn = None,
) -> None:
    """Say what fits a memory budget: per model the nodes, the batches and the predicted peak."""
    from falcon_gnn.outputs import write_peak_curves
    from falcon_gnn.planning import plan_models, standard_configs
    from falcon_gnn.reporting.terminal import plans_table

    if out is not None:
        check_writable(out, is_folder=False, option="--out")
    model = ModelConfig(
        hidden_channels=hidden, num_layers=layers, dropout=dropout, batch_norm=batch_norm, num_hops=hops
    )
    configs = standard_configs(TrainConfig(model, num_batches=1, device=device), batches)
    with show_stages() as on_stage:
        on_stage("loading")
        graph = opt.load_source(
            source,
            root,
            split,
            split_index,
            threshold,
            num_nodes,
            nodes,
            label_column=label_column,
            feature_columns=feature_columns,
            id_column=id_column,
        )
        on_stage("planning")
        plans = plan_models(graph, configs, memory, scope=scope)
        if out is not None:
            write_peak_curves(graph, configs, memory, out, scope=scope)
    print_table(plans_table(plans, memory))
    refused: dict[str, list[str]] = {}
    for name, outcome in plans.items():
        if isinstance(outcome, BudgetError):
            refused.setdefault(str(outcome), []).append(name)
    for why, names in refused.items():
        typer.echo(f"{'; '.join(names)}: {why}")
    if sum(map(len, refused.values())) == len(plans):
        raise typer.Exit(2)


@app.command()
def demo(out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("reduced")) -> None:
    """Collapse the embedded digits graph, train on all of it and on what is left, and compare."""
    from falcon_gnn.demo import run_demo
    from falcon_gnn.reporting.terminal import runs_table

    check_writable(out, option="--out")
    with show_stages() as on_stage:
        shown = run_demo(out, on_stage)
    print_collapse(shown.report)
    print_table(runs_table(shown.records))
    say_written(out, shown.has_page)


app.registered_commands += experiments.registered_commands


def main() -> NoReturn:
    """Run the command; an error of ours is one line on standard error and exit code 2."""
    try:
        app()
    except FalconError as error:
        typer.secho(f"falcon-gnn: {error}", err=True, fg=typer.colors.RED)
        sys.exit(2)
    sys.exit(0)


def _collapse_on_spark(source: "TableSource", config: CollapseConfig, out: Path, master: str | None) -> None:
    from falcon_gnn.distributed.spark import check_options
    from falcon_gnn.distributed.spark import collapse as run_on_spark
    from falcon_gnn.distributed.spark_frames import open_session
    from falcon_gnn.reporting.terminal import spark_table

    check_options(config)
    source.check()
    with show_stages() as on_stage:
        on_stage("starting Spark")
        spark = open_session(master)
        on_stage("loading")
        tables = source.open(spark)
        on_stage("collapsing on Spark")
        result = run_on_spark(*tables, config, spark=spark)
        on_stage("writing files")
        result.save(out.absolute().as_uri())
    print_table(spark_table(result.report))
    typer.echo(f"Written to {out}/: assignment.parquet, edges.parquet, nodes.parquet, report.json")
