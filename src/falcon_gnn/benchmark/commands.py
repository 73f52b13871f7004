"""The commands ``bench``, ``tables`` and ``tune``: options in, one call, text out. They decide nothing."""

from pathlib import Path
from typing import Annotated, Literal

import typer

app = typer.Typer(help="Experiments: run them, tabulate them, search for the best options.", no_args_is_help=True)

Data = Annotated[
    Path | None, typer.Option(help="Folder of the graph files; by default $FALCON_DATA, else the folder data.")
]
Records = Annotated[Path | None, typer.Option(help="Record file; by default results/NAME.jsonl for NAME.toml.")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", help="key=value that wins over the file: seeds, datasets, num_epochs, collapse.gamma, ..."),
]
Only = Annotated[
    list[str] | None,
    typer.Option(help="label=value[,value]: dataset, model, method, centrality, budget or seed of the runs to do."),
]
MaxRuns = Annotated[int | None, typer.Option(help="Runs to do at most.")]
Workers = Annotated[int, typer.Option(help="Processes at the same time, of one thread each.")]
RecordFiles = Annotated[list[Path], typer.Argument(help="Record files that `falcon-gnn bench` wrote.")]
FormatOption = Annotated[
    Literal["md", "csv", "latex"], typer.Option("--format", help="What is printed: md, csv or latex.")
]
OutFolder = Annotated[
    Path | None, typer.Option("--out", "-o", help="Folder for the tables in all formats and the plots.")
]


@app.command()
def bench(
    config: Annotated[Path, typer.Argument(help="A configuration file, such as one of configs/paper.")],
    records: Records = None,
    data: Data = None,
    settings: Settings = None,
    only: Only = None,
    max_runs: MaxRuns = None,
    workers: Workers = 1,
) -> None:
    """Run the experiments of a configuration file that are not recorded yet."""
    from falcon_gnn.benchmark.overrides import parse_choice, parse_overrides
    from falcon_gnn.benchmark.records import name_failures
    from falcon_gnn.benchmark.runs import BenchOptions, run_benchmark

    options = BenchOptions(data, parse_overrides(settings or []), parse_choice(only or []), max_runs, workers)
    records = Path("results") / f"{config.stem}.jsonl" if records is None else records
    outcome = run_benchmark(config, records, options)
    typer.echo(
        f"{outcome.num_done} runs done, {outcome.num_skipped} were recorded, {outcome.num_left} are left. "
        f"Records: {records}"
    )
    for name, error in outcome.missing_data.items():
        typer.echo(f"No data for {name}: {error}", err=True)
    for text in name_failures(outcome.failed):
        typer.echo(text, err=True)
    if not outcome.is_complete:
        raise typer.Exit(1)


@app.command()
def tables(records: RecordFiles, form: FormatOption = "md", out: OutFolder = None) -> None:
    """Print mean and 95 % interval beside the paper's figures; with --out write all formats and the plots."""
    from falcon_gnn.benchmark.figures import write_figures
    from falcon_gnn.benchmark.records import read_records
    from falcon_gnn.benchmark.summary import summarise
    from falcon_gnn.benchmark.tables import render, write_tables
    from falcon_gnn.errors import MissingDependencyError
    from falcon_gnn.files import check_writable

    if out is not None:
        check_writable(out, option="--out")
    summaries = summarise(read_records(*records))
    typer.echo(render(summaries, form), nl=False)
    if out is None:
        return
    paths = write_tables(summaries, out)
    try:
        paths += write_figures(summaries, out)
    except MissingDependencyError as error:
        typer.echo(f"No plots: {error}", err=True)
    typer.echo(f"Written to {out}/: {', '.join(path.name for path in paths)}", err=True)


@app.command()
def tune(
    source: Annotated[str, typer.Argument(help="A data set's name, or the path of a graph file or folder.")],
    node_budget: Annotated[
        str, typer.Option(help="Nodes to keep: a whole number, or a share with a decimal point (0.34).")
    ],
    trials: Annotated[int, typer.Option(help="Trials in all, earlier ones included.")] = 50,
    storage: Annotated[Path | None, typer.Option(help="File that keeps the trials; the same file resumes.")] = None,
    sampler: Annotated[Literal["tpe", "grid"], typer.Option(help="How points are chosen.")] = "tpe",
    model: Annotated[str, typer.Option(help="gcn, sign, qsign, sign-original, cluster-gcn or gas.")] = "qsign",
    gammas: Annotated[list[float] | None, typer.Option("--gamma", help="Values of gamma; repeat.")] = None,
    hops: Annotated[list[int] | None, typer.Option("--hops", help="Numbers of hops; repeat.")] = None,
    centralities: Annotated[list[str] | None, typer.Option("--centrality", help="Centralities; repeat.")] = None,
    clusters: Annotated[list[int] | None, typer.Option("--clusters", help="Numbers of clusters; repeat.")] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", help="key=value of the training, such as num_epochs=100.")
    ] = None,
    root: Annotated[Path | None, typer.Option(help="Folder with the raw files of a named data set.")] = None,
    split: Annotated[
        Literal["public", "full", "random"] | None,
        typer.Option(help="Which nodes train; the source's own if not given."),
    ] = None,
    seed: Annotated[int, typer.Option(help="Seed of the runs and of the search.")] = 0,
) -> None:
    """Search gamma, hops, centrality and clusters by the validation score."""
    from falcon_gnn.benchmark.overrides import parse_overrides
    from falcon_gnn.benchmark.search import SearchSpace, TuneOptions, search_config
    from falcon_gnn.benchmark.search import tune as search
    from falcon_gnn.datasets import load_graph

    space = SearchSpace.of(gammas=gammas, num_hops=hops, centralities=centralities, num_clusters=clusters)
    options = TuneOptions(space, trials, sampler, storage, seed)
    config = search_config(model, parse_overrides([f"node_budget={node_budget}", *(settings or [])]), seed)
    graph = load_graph(source, root=root, split=split, seed=seed)
    result = search(
        graph,
        config,
        options,
        name=Path(source).stem,
        on_trial=lambda number, score, params: typer.echo(f"trial {number}: {score} with {params}", err=True),
    )
    typer.echo(f"Best validation score of {result.num_trials} trials ({result.num_failed} failed): {result.score:.4f}")
    for name, value in result.params.items():
        typer.echo(f"  {name} = {value}")
