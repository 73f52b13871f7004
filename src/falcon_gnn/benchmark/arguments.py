"""What a benchmark and a search can be told; light, since the command describes its options by them."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal, Self, get_args

from falcon_gnn.checks import check_choice, check_whole
from falcon_gnn.errors import OptionError

DATA_VARIABLE = "FALCON_DATA"
Sampler = Literal["tpe", "grid"]
Choice = Mapping[str, frozenset[str]]
"""Lower-case values to keep, by the name of a label."""

QUICK: Mapping[str, Any] = {
    "seeds": 1, "centralities": ["eigenvector"], "training.num_epochs": 20, "training.patience": "none",
}  # fmt: skip
"""What ``quick`` overrides."""


@dataclass(frozen=True)
class BenchOptions:
    """How a benchmark is run.

    Attributes:
        data: Folder of the graph files; by default the environment's ``FALCON_DATA``, else ``data``.
        overrides: Values that win over the file's, as
            :func:`falcon_gnn.benchmark.overrides.parse_overrides` returns them.
        only: Labels of the runs to do; as :func:`falcon_gnn.benchmark.overrides.parse_choice` returns them.
        max_runs: Runs to do at most; by default all.
        num_workers: Processes at the same time, of one thread each; 1: this process, with its threads.
        download: Fetch the missing raw files of named data sets from their publishers, into the data folder.
        quick: Do a table in minutes: one seed, at most 20 epochs, eigenvector centrality where there are several. It is
            recorded like other overrides, which win over it.
    """

    data: Path | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)
    only: Choice = field(default_factory=dict)
    max_runs: int | None = None
    num_workers: int = 1
    download: bool = False
    quick: bool = False

    def __post_init__(self) -> None:
        """Check the counts."""
        check_whole("num_workers", self.num_workers, 1)
        check_whole("max_runs", self.max_runs, 0, or_none=True)

    @property
    def settings(self) -> dict[str, Any]:
        """The overrides, with those of ``quick``."""
        return {**(QUICK if self.quick else {}), **self.overrides}

    @property
    def data_folder(self) -> Path:
        """The folder of the graph files."""
        return Path(os.environ.get(DATA_VARIABLE, "data")) if self.data is None else self.data


@dataclass(frozen=True)
class SearchSpace:
    """What is searched; the ranges of γ and of the hops are the paper's.

    Attributes:
        gammas: Values of γ for the grid; TPE draws from their whole range.
        num_hops: Hops of the SIGN models; other models keep the configuration's.
        centralities: Names of centralities.
        num_clusters: Feature-label clusters.
    """

    gammas: tuple[float, ...] = (0.4, 0.45, 0.5, 0.55, 0.6)
    num_hops: tuple[int, ...] = (1, 2, 3, 4, 5, 6)
    centralities: tuple[str, ...] = ("degree", "betweenness", "closeness", "pagerank", "eigenvector")
    num_clusters: tuple[int, ...] = (50, 100, 200)

    def __post_init__(self) -> None:
        """Check that there is something to choose from."""
        for name, values in asdict(self).items():
            if not values:
                msg = f"{name} must hold at least one value to try, got none."
                raise OptionError(msg)

    @classmethod
    def of(cls, **values: Sequence[Any] | None) -> Self:
        """Return a space with the values given; what is None or empty keeps its default."""
        return cls(**{name: tuple(given) for name, given in values.items() if given})

    def points(self, *, with_hops: bool) -> dict[str, list[Any]]:
        """Return the values of each searched option, each once."""
        points: dict[str, Sequence[Any]] = {"gamma": self.gammas}
        if with_hops:
            points["num_hops"] = self.num_hops
        points |= {"centrality": self.centralities, "num_clusters": self.num_clusters}
        return {name: list(dict.fromkeys(values)) for name, values in points.items()}


@dataclass(frozen=True)
class TuneOptions:
    """How the search goes.

    Attributes:
        space: What is searched.
        num_trials: Trials in all, those of earlier calls with the same storage included; a grid ends when it is full.
        sampler: ``tpe``, or ``grid``: every point of the space once, in random order.
        storage: A file that keeps the trials: a journal, or a database where its name ends in ``.db`` or ``.sqlite``.
            By default they are not kept.
        seed: Draws the trials; on the command also what the collapse and the training draw.
    """

    space: SearchSpace = field(default_factory=SearchSpace)
    num_trials: int = 50
    sampler: Sampler = "tpe"
    storage: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        """Check the choices."""
        check_choice("sampler", self.sampler, get_args(Sampler))
        check_whole("num_trials", self.num_trials, 1)
