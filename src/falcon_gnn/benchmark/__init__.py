"""Experiments from configuration files: run, record, tabulate beside the paper, and search for the best options."""

from typing import TYPE_CHECKING

from falcon_gnn._lazy import lazy_exports

if TYPE_CHECKING:
    from falcon_gnn.benchmark.figures import make_figures, write_figures
    from falcon_gnn.benchmark.overrides import parse_choice, parse_overrides
    from falcon_gnn.benchmark.plan import make_plan
    from falcon_gnn.benchmark.records import Records, read_records
    from falcon_gnn.benchmark.runs import BenchOptions, BenchOutcome, run_benchmark
    from falcon_gnn.benchmark.search import SearchSpace, TuneOptions, TuneResult, search_config, tune
    from falcon_gnn.benchmark.summary import Summary, summarise
    from falcon_gnn.benchmark.tables import make_tables, render, write_tables

_SOURCES = {
    "figures": ("make_figures", "write_figures"),
    "overrides": ("parse_choice", "parse_overrides"),
    "plan": ("make_plan",),
    "records": ("Records", "read_records"),
    "runs": ("BenchOptions", "BenchOutcome", "run_benchmark"),
    "summary": ("Summary", "summarise"),
    "tables": ("make_tables", "render", "write_tables"),
    "search": ("SearchSpace", "TuneOptions", "TuneResult", "search_config", "tune"),
}

__all__ = [
    "BenchOptions",
    "BenchOutcome",
    "Records",
    "SearchSpace",
    "Summary",
    "TuneOptions",
    "TuneResult",
    "make_figures",
    "make_plan",
    "make_tables",
    "parse_choice",
    "parse_overrides",
    "read_records",
    "render",
    "run_benchmark",
    "search_config",
    "summarise",
    "tune",
    "write_figures",
    "write_tables",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {name: f"{__name__}.{module}" for module, names in _SOURCES.items() for name in names},
)
