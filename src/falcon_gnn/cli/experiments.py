"""The commands ``bench``, ``tables`` and ``tune``: options in, one call, text out. They decide nothing."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from falcon_gnn.benchmark.arguments import BenchOptions, SearchSpace, TuneOptions
from falcon_gnn.cli.fields import FieldOptions, chosen, described, given, takes_options
from falcon_gnn.cli.option_file import FileCommand
from falcon_gnn.cli.screen import show_log
from falcon_gnn.cli.sources import Source, load_source, make_training
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.errors import OptionError
from falcon_gnn.files import check_writable
from falcon_gnn.pipeline.options import BudgetOptions, RunConfig
from falcon_gnn.reduction.budgets import parse_budget
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.graph import Graph

app = typer.Typer(help="Experiments: run them, tabulate them, search for the best options.", no_args_is_help=True)


def _shipped() -> list[str]:
    """Return the names that a shell may complete; it completes paths by itself."""
    from falcon_gnn.benchmark.shipped import shipped_configs

    return list(shipped_configs())


_SEARCHED = ("gamma", "centrality", "num_clusters")


@app.command(cls=FileCommand)
@takes_options(FieldOptions(BenchOptions, "Benchmark", only=("data", "max_runs", "num_workers", "download", "quick")))
def bench(
    config: Annotated[
        Path,
        typer.Argument(
            help="A configuration file, or the name of one that comes with the package, such as main_result.",
            autocompletion=_shipped,
        ),
    ],
    records: Annotated[
        Path | None,
        typer.Option(help="Record file; by default results/NAME.jsonl for NAME.toml, with --quick NAME_quick.jsonl."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", help="key=value that wins over the file: seeds, datasets, num_epochs, collapse.gamma, ..."
        ),
    ] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(help="label=value[,value]: dataset, model, method, centrality, budget or seed of the runs to do."),
    ] = None,
    **options: Any,
) -> None:
    """Run the experiments of a configuration file that are not recorded yet."""
    from falcon_gnn.benchmark.overrides import parse_choice, parse_overrides
    from falcon_gnn.benchmark.records import name_failures
    from falcon_gnn.benchmark.runs import run_benchmark

    asked = chosen(
        BenchOptions,
        options["options"],
        overrides=parse_overrides(settings or []),
        only=parse_choice(only or []),
    )
    if records is None:
        records = Path("results") / f"{config.stem}{'_quick' if asked.quick else ''}.jsonl"
    with show_log():
        outcome = run_benchmark(config, records, asked)
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


@app.command(cls=FileCommand)
@takes_options()
def tables(
    records: Annotated[list[Path], typer.Argument(help="Record files that `falcon-gnn bench` wrote.")],
    form: Annotated[
        Literal["md", "csv", "latex"], typer.Option("--format", help="What is printed: md, csv or latex.")
    ] = "md",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder for the tables in all formats and the plots.")
    ] = None,
    check: Annotated[
        bool,
        typer.Option("--check", help="Print instead whether each figure lies within the paper's interval and ours."),
    ] = False,
    paper_page: Annotated[
        Path | None, typer.Option(help="Write one page (Markdown) with every figure of the paper, ours or the reason.")
    ] = None,
) -> None:
    """Print mean and 95 % interval beside the paper's figures; with --out write all formats and the plots."""
    from falcon_gnn.benchmark.agreement import render_agreements
    from falcon_gnn.benchmark.figures import write_figures
    from falcon_gnn.benchmark.paper_page import write_paper_page
    from falcon_gnn.benchmark.records import read_records
    from falcon_gnn.benchmark.summary import summarise
    from falcon_gnn.benchmark.tables import render, write_tables
    from falcon_gnn.errors import MissingDependencyError

    unread = [name for name, is_given in (("--out", out), ("--check", check), ("--format", form != "md")) if is_given]
    if paper_page is not None and unread:
        msg = f"--paper-page writes its page and nothing else, got {unread[0]} too. Leave one of the two out."
        raise OptionError(msg)
    if check and form != "md":
        msg = f"--check prints Markdown only, got --format {form}. Leave one of the two out."
        raise OptionError(msg)
    if out is not None:
        check_writable(out, option="--out")
    if paper_page is not None:
        check_writable(paper_page, is_folder=False, option="--paper-page")
    read = read_records(*records, must_exist=True)
    for path, num_lines in read.foreign.items():
        typer.echo(f"Left out of {path}: lines that no benchmark wrote ({num_lines}).", err=True)
    summaries = summarise(read)
    if paper_page is not None:
        write_paper_page(summaries, paper_page)
        typer.echo(f"Written: {paper_page}")
        return
    typer.echo(render_agreements(summaries) if check else render(summaries, form), nl=False)
    if out is None:
        return
    paths = write_tables(summaries, out)
    try:
        paths += write_figures(summaries, out)
    except MissingDependencyError as error:
        typer.echo(f"No plots: {error}", err=True)
    typer.echo(f"Written to {out}/: {', '.join(path.name for path in paths)}", err=True)


@app.command(cls=FileCommand)
@takes_options(
    FieldOptions(SearchSpace, "Search"),
    FieldOptions(TuneOptions, "Search", without=("space",)),
    FieldOptions(ModelConfig, "Model"),
    FieldOptions(TrainConfig, "Training", without=("model", "measure_memory")),
    FieldOptions(RunConfig, "Run", without=("training", "reduction", "scope")),
    FieldOptions(CollapseConfig, "Collapse", without=("node_budget", *_SEARCHED)),
    FieldOptions(LoadOptions, "Graph"),
)
def tune(
    context: typer.Context,
    source: Source,
    node_budget: Annotated[str, typer.Option(help=described(BudgetOptions)["node_budget"])],
    **options: Any,
) -> None:
    """Search gamma, hops, centrality and clusters by the validation score."""
    from falcon_gnn.benchmark.search import tune as search

    values = options["options"]
    space = SearchSpace.of(**{name: values[name] for name in vars(SearchSpace())})
    kept = {name: value for name, value in values.items() if name not in vars(space)}
    config = RunConfig.of(make_training(kept), parse_budget(node_budget), given(context, kept))
    graph = load_source(source, values)
    result = search(
        graph,
        config,
        chosen(TuneOptions, values, space=space),
        name=Path(source).stem,
        on_trial=lambda number, score, params: typer.echo(
            f"trial {number}: {'failed' if score is None else _as_text(graph, config, score)} with {params}", err=True
        ),
    )
    what = f"Best of {result.num_trials} trials ({result.num_failed} failed)"
    typer.echo(f"{what}: {_as_text(graph, config, result.score)}")
    for name, value in result.params.items():
        typer.echo(f"  {name} = {value}")


def _as_text(graph: "Graph", config: RunConfig, score: float) -> str:
    """Return a validation score with its name."""
    from falcon_gnn.evaluation import score_title, shown_score
    from falcon_gnn.labels import infer_task

    assert graph.y is not None
    task = infer_task(graph.y, config.training.task)
    title = score_title(config.training.validation_metric, task)
    return f"validation {title} {shown_score(score, task):.4f}"
