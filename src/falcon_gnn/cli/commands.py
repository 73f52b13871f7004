"""The command ``falcon-gnn``: options in, one call, tables out. It decides nothing."""

import signal
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from typer.core import TyperGroup

from falcon_gnn.cli.experiments import app as experiments
from falcon_gnn.cli.fields import FieldOptions, chosen, described, given, takes_options
from falcon_gnn.cli.option_file import FileCommand, file_commands, show_options
from falcon_gnn.cli.screen import (
    print_collapse,
    print_runs,
    print_table,
    say_compiled,
    say_written,
    show_stages,
    show_warnings,
)
from falcon_gnn.cli.sources import Source, check_not_read, load_source, make_budget, make_training
from falcon_gnn.datasets.options import LoadOptions
from falcon_gnn.devices.place import DeviceOptions, is_launched, read_place
from falcon_gnn.errors import BudgetError, FalconError, FalconWarning, OptionError, naming_extras
from falcon_gnn.files import check_writable
from falcon_gnn.pipeline.options import BudgetOptions, RunConfig
from falcon_gnn.planning.budget_text import Prefer
from falcon_gnn.progress import telling_time_left
from falcon_gnn.reduction.config import CollapseConfig
from falcon_gnn.training.config import ModelConfig, TrainConfig

if TYPE_CHECKING:
    from falcon_gnn.pipeline.outcome import RunOutcome

Out = Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")]

_BUDGET, _GRAPH = FieldOptions(BudgetOptions, "Budget"), FieldOptions(LoadOptions, "Graph")


_FITTED = ("num_batches", "precision", "device", "num_epochs")
_ONLY_WITH_MEMORY = {*vars(ModelConfig()), *_FITTED} - {*vars(CollapseConfig(1))}


@contextmanager
def _interrupted_by_sigterm() -> Iterator[None]:
    """Let SIGTERM, by which job schedulers and containers end a process, do what Ctrl-C does; what is handled stays."""
    try:
        is_ours = signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        if is_ours:
            signal.signal(signal.SIGTERM, _interrupt)
    except ValueError:  # Only the main thread may say what a signal does.
        is_ours = False
    try:
        yield
    finally:
        if is_ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _interrupt(number: int, frame: FrameType | None) -> None:
    on_interrupt = signal.getsignal(signal.SIGINT)
    # What a shell starts in the background ignores Ctrl-C.
    if not callable(on_interrupt):
        raise KeyboardInterrupt
    on_interrupt(number, frame)


def _is_first() -> bool:
    """Whether this is no other than the first of several processes that train together, which speaks for them."""
    return not is_launched() or read_place().rank == 0


class _Commands(TyperGroup):
    """The commands; on Ctrl-C and SIGTERM they say what is left, where Typer would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            with _interrupted_by_sigterm():
                return super().invoke(ctx)
        except KeyboardInterrupt as stop:
            if _is_first():
                typer.secho(f"falcon-gnn: {str(stop) or 'interrupted; no half-written file is left'}", err=True)
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


@app.command(cls=FileCommand)
@takes_options(
    _BUDGET,
    FieldOptions(CollapseConfig, "Collapse", without=("node_budget",)),
    _GRAPH,
    FieldOptions(ModelConfig, "With --memory: the model"),
    FieldOptions(TrainConfig, "With --memory: the model", only=_FITTED),
)
def collapse(
    context: typer.Context,
    source: Source,
    out: Out,
    engine: Annotated[
        Literal["local", "spark"], typer.Option(help="Where the collapse runs: local or spark (needs Java 17).")
    ] = "local",
    master: Annotated[
        str | None, typer.Option(help="Spark's master, local[2] or spark://host:7077; by default Spark's own setting.")
    ] = None,
    **options: Any,
) -> None:
    """Collapse a graph to a node budget; write graph.npz, mapping.npz, report.json and report.html.

    With --memory the budget is the largest on which a training step of --model fits. With --engine spark the tables
    nodes.parquet, edges.parquet and assignment.parquet are written, and report.json.
    """
    values = options["options"]
    if "://" not in str(out):
        check_writable(out, option="--out")
        names = ("nodes.parquet", "edges.parquet") if engine == "spark" else ("graph.npz",)
        check_not_read([out / name for name in names], "--out", source, values)
    budget, was_given = make_budget(values), given(context, values)
    if engine == "spark" and budget.memory is not None:
        msg = f"memory is not known to --engine spark, got {budget.memory!r}. Use --node-budget, or --engine local."
        raise OptionError(msg)
    if engine != "spark" and master is not None:
        msg = f"--master is Spark's, got {master!r} with --engine {engine}. Add --engine spark, or leave it out."
        raise OptionError(msg)
    is_read = budget.memory is not None or budget.preset == "recommended"
    ignored = [name for name in was_given if name in _ONLY_WITH_MEMORY and not is_read]
    if ignored:
        msg = (
            f"{ignored[0]} says what must fit a memory budget, or what a preset is for: it needs --memory or --preset "
            "recommended, got neither. Leave it out."
        )
        raise BudgetError(msg)
    training = make_training(values)
    amount = budget.required()
    config = RunConfig.of(training, amount, was_given, budget.preset).reduction
    assert isinstance(config, CollapseConfig)
    if engine == "spark":
        _collapse_on_spark(source, values, config, out, master)
        return
    from falcon_gnn.pipeline.outputs import COLLAPSE_FILES, write_collapse
    from falcon_gnn.pipeline.training_graph import fit_collapse
    from falcon_gnn.reduction.falcon import collapse as run_collapse

    with show_stages() as on_stage:
        graph = load_source(source, values, on_stage)
        if budget.memory is None:
            result = run_collapse(graph, config, on_stage=on_stage)
        else:
            fit = fit_collapse(graph, config, training, budget.memory, on_stage=on_stage, prefer=budget.prefer)
            typer.echo(fit.plan.describe())
            if fit.result is None:
                typer.echo("Nothing was written.")
                return
            result = fit.result
        on_stage("writing files")
        with telling_time_left("writing files", on_stage):
            has_page = write_collapse(graph, result, out, title=f"{Path(source).name} collapsed")
    print_collapse(result.report)
    say_compiled()
    say_written(out, COLLAPSE_FILES, has_page)


@app.command(cls=FileCommand)
@takes_options(
    _BUDGET,
    FieldOptions(ModelConfig, "Model"),
    FieldOptions(TrainConfig, "Training", without=("model", "measure_memory"), negatable=("normalize_hops",)),
    FieldOptions(RunConfig, "Run", without=("training", "reduction", "scope")),
    FieldOptions(CollapseConfig, "Collapse", without=("node_budget",)),
    FieldOptions(DeviceOptions, "Training"),
    _GRAPH,
)
def train(
    context: typer.Context,
    source: Source,
    out: Out,
    resume: Annotated[bool, typer.Option("--resume", help="Go on from the checkpoint in --out.")] = False,
    log_dir: Annotated[Path | None, typer.Option(help="Folder for TensorBoard curves.")] = None,
    **options: Any,
) -> None:
    """Collapse (with --node-budget or --memory), train, score on the original graph; write record, weights, plots."""
    if _is_first():
        # Several at once would find each other's trial folders.
        check_writable(out, option="--out")
    values = options["options"]
    budget = make_budget(values)
    config = RunConfig.of(make_training(values), budget.nodes, given(context, values), budget.preset)
    devices = chosen(DeviceOptions, values)
    if resume:
        from falcon_gnn.pipeline.outputs import check_resumable

        check_resumable(out)
    job = _TrainJob(source, out, values, config, budget, resume, log_dir, devices)
    if devices.devices > 1 and not is_launched():
        raise typer.Exit(job.launch())
    outcome = job.run_in_team() if is_launched() else job.run()
    if outcome is not None:
        job.show(outcome)


@app.command(cls=FileCommand)
@takes_options(FieldOptions(LoadOptions, "Graph", without=("split", "split_index", "threshold")))
def predict(
    run: Annotated[Path, typer.Argument(help="Folder that `falcon-gnn train` wrote.")],
    source: Source,
    out: Annotated[Path, typer.Option("--out", "-o", help="Table to write, .parquet or .csv.")],
    **options: Any,
) -> None:
    """Label the nodes of a graph with a trained model."""
    from falcon_gnn.pipeline.outputs import check_table_name, predict_to_file

    check_writable(out, is_folder=False, option="--out")
    check_table_name(out)
    check_not_read([out], "--out", source, options["options"])
    with show_stages() as on_stage:
        graph = load_source(source, options["options"], on_stage)
        on_stage("prediction")
        count = predict_to_file(run, graph, out)
    typer.echo(f"{count:,} nodes labelled in {out}")


@app.command(cls=FileCommand)
@takes_options(
    FieldOptions(ModelConfig, "Model", without=("model", "bits", "concat_self")),
    FieldOptions(TrainConfig, "Training", only=("num_batches", "num_epochs", "precision", "seed", "device")),
    FieldOptions(RunConfig, "Graph", only=("scope",)),
    FieldOptions(LoadOptions, "Graph"),
)
def plan(
    source: Source,
    memory: Annotated[str, typer.Option(help=described(BudgetOptions)["memory"])],
    out: Annotated[Path | None, typer.Option("--out", "-o", help="File for a plot of peak over budget.")] = None,
    prefer: Annotated[Prefer, typer.Option(help=described(BudgetOptions)["prefer"])] = "nodes",
    **options: Any,
) -> None:
    """Say what fits a memory budget: per model the nodes, the batches and the predicted peak.

    Cluster-GCN and GAS have at least 10 batches, whatever --num-batches says.
    """
    from falcon_gnn.pipeline.outputs import write_peak_curves
    from falcon_gnn.planning.fit import plan_models, standard_configs
    from falcon_gnn.reporting.style import check_can_save
    from falcon_gnn.reporting.terminal import plans_table

    if out is not None:
        check_writable(out, is_folder=False, option="--out")
        check_can_save(out)
    values = options["options"]
    training = make_training({**values, "num_batches": 1})
    configs, scope = standard_configs(training, values["num_batches"]), values["scope"]
    with show_stages() as on_stage:
        graph = load_source(source, values, on_stage)
        on_stage("planning")
        plans = plan_models(graph, configs, memory, scope=scope, prefer=prefer)
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


@app.command(cls=FileCommand)
@takes_options()
def demo(out: Annotated[Path, typer.Option("--out", "-o", help="Folder to write to.")] = Path("reduced")) -> None:
    """Collapse the embedded digits graph, train on all of it and on what is left, and compare."""
    from falcon_gnn.pipeline.demo import DEMO_FILES, run_demo

    check_writable(out, option="--out")
    with show_stages() as on_stage:
        shown = run_demo(out, on_stage)
    print_collapse(shown.report)
    print_runs(shown.outcomes)
    say_compiled()
    say_written(out, DEMO_FILES, shown.has_page)


app.registered_commands += experiments.registered_commands


@app.command(context_settings={"ignore_unknown_options": True, "allow_extra_args": True})
def config(
    context: typer.Context,
    command: Annotated[str | None, typer.Argument(help="The command; by default all of them.")] = None,
) -> None:
    """Print every option, its default and where its value comes from, as TOML that --config FILE reads.

    Flags that follow, --config among them, are taken as the command's own: falcon-gnn config train --model sign.
    """
    typer.echo(show_options(context.find_root(), _file_commands(command, context.args), context.args), nl=False)


def main() -> NoReturn:
    """Run the command; an error of ours is one line on standard error and exit code 2."""
    try:
        with naming_extras(), show_warnings():
            app()
    except FalconError as error:
        typer.secho(f"falcon-gnn: {error}", err=True, fg=typer.colors.RED)
        sys.exit(2)
    sys.exit(0)


def _file_commands(name: str | None, words: list[str]) -> list[Any]:
    """Return the command of a name, or all, made anew."""
    commands = file_commands(typer.main.get_command(app))
    if name is None and not words:
        return list(commands.values())
    if name not in commands:
        msg = f"config needs one of {', '.join(commands)}, got {name!r}. Name it before its flags."
        raise OptionError(msg)
    return [commands[name]]


def _collapse_on_spark(
    source: str, values: Mapping[str, Any], config: CollapseConfig, out: Path,
    master: str | None,
) -> None:  # fmt: skip
    from falcon_gnn.reporting.terminal import spark_table
    from falcon_gnn.spark.engine import check_options
    from falcon_gnn.spark.engine import collapse as run_on_spark
    from falcon_gnn.spark.frames import open_session
    from falcon_gnn.spark.table_source import TableSource

    told = {name: values[name] for name in vars(LoadOptions()) if name != "nodes"}
    told["download"] = told["download"] or None
    tables_of = TableSource(source, values["nodes"], partial(load_source, source, values), told)
    check_options(config)
    tables_of.check()
    with show_stages() as on_stage:
        on_stage("starting Spark")
        spark = open_session(master)
        tables = tables_of.open(spark, on_stage)
        on_stage("collapsing on Spark")
        result = run_on_spark(*tables, config, spark=spark)
        on_stage("writing files")
        result.save(out.absolute().as_uri())
    print_table(spark_table(result.report))
    typer.echo(f"Written to {out}/: assignment.parquet, edges.parquet, nodes.parquet, report.json")


@dataclass(frozen=True)
class _TrainJob:
    """What ``train`` was asked to do, and the three ways to do it."""

    source: str
    out: Path
    values: Mapping[str, Any]
    config: RunConfig
    budget: BudgetOptions
    resume: bool
    log_dir: Path | None
    devices: DeviceOptions

    def run(self) -> "RunOutcome":
        """Train in this process."""
        from falcon_gnn.pipeline.run import run

        with show_stages() as on_stage:
            graph = load_source(self.source, self.values, on_stage)
            return run(graph, self.config, prefer=self.budget.prefer, on_stage=on_stage, **self._told())

    def run_in_team(self) -> "RunOutcome | None":
        """Do this process's part of what a launcher started."""
        from falcon_gnn.devices.jobs import run_on_team
        from falcon_gnn.devices.team import fit_config, join_team

        place, synchronize = read_place(), self.devices.synchronize_batch_norm
        fit_config(self.config.training, place.num_devices)
        device = self.config.training.device
        with (
            warnings.catch_warnings(),
            join_team(place, device=device, synchronize_batch_norm=synchronize) as team,
        ):
            if not team.is_writer:
                # It would warn of what the first process warns of.
                warnings.simplefilter("ignore", FalconWarning)
            return run_on_team(load_source(self.source, self.values), self.config, team, **self._told())

    def launch(self) -> int:
        """Start one process per device, each with this command, and return the exit code."""
        from falcon_gnn.devices.launch import launch
        from falcon_gnn.devices.team import fit_config
        from falcon_gnn.pipeline.outputs import CHECKPOINT_FILE

        fit_config(self.config.training, self.devices.devices)
        code = launch(
            _run_command,
            sys.argv[1:],
            num_devices=self.devices.devices,
            checkpoint=self.out / CHECKPOINT_FILE,
        )
        return int(code)

    def show(self, outcome: "RunOutcome") -> None:
        """Print what came out."""
        from falcon_gnn.pipeline.comparison import describe_correction
        from falcon_gnn.pipeline.outputs import CURVE_FILE, run_files

        if outcome.reduction is not None:
            print_collapse(outcome.reduction.report)
        elif outcome.plan is not None:
            batches = outcome.plan.describe_batches()
            typer.echo(f"All nodes fit {self.budget.memory} in {batches}; none was removed.")
        print_runs({self.config.training.model.model: outcome})
        say_compiled()
        if self.config.correct_and_smooth:
            typer.echo(describe_correction(outcome.correction))
        say_written(self.out, run_files(outcome), has_plots=(self.out / CURVE_FILE).exists())

    def _told(self) -> dict[str, Any]:
        return {
            "name": self.source, "memory": self.budget.memory, "out": self.out, "resume": self.resume,
            "log_dir": self.log_dir,
        }  # fmt: skip


def _run_command(words: list[str]) -> int:
    """Be the command with these words, in a process that a launcher started, and return the exit code."""
    with show_warnings():
        # None where the command came to its end.
        return app(words, standalone_mode=False) or 0
