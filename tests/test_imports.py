import json
import subprocess
import sys

import pytest

import falcon_gnn

_SLOW = {
    "torch", "torch_geometric", "sklearn", "numba", "scipy", "matplotlib", "pandas", "pyarrow", "rich", "typer",
    "networkx", "pyspark", "optuna", "pymetis", "dgl", "jinja2",
}  # fmt: skip


def _modules_after(statement):
    """Return the top-level packages that a fresh process has loaded after a statement."""
    script = f"{statement}\nimport sys, json\nprint(json.dumps(sorted({{name.split('.')[0] for name in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_the_package_loads_nothing_slow():
    assert not _modules_after("import falcon_gnn") & (_SLOW | {"numpy"})


def test_reaching_the_collapse_loads_neither_torch_nor_scikit_learn_nor_the_compiler():
    loaded = _modules_after("import falcon_gnn\nfalcon_gnn.collapse, falcon_gnn.CollapseConfig, falcon_gnn.Graph")
    assert "numpy" in loaded
    assert not loaded & (_SLOW - {"scipy"})


def test_a_whole_collapse_never_loads_torch():
    script = (
        "import numpy as np, falcon_gnn as fg\n"
        "graph = fg.Graph.from_edges([[0, 1, 2], [1, 2, 3]], 4, x=np.eye(4), y=[0, 1, 0, 1])\n"
        "fg.collapse(graph, node_budget=2, num_clusters=2)"
    )
    loaded = _modules_after(script)
    assert "sklearn" in loaded
    assert not loaded & {"torch", "torch_geometric", "networkx", "matplotlib"}


@pytest.mark.parametrize(
    "name",
    ["BudgetError", "CollapseConfig", "CollapseReport", "CollapseResult", "ConvergenceError", "FalconError",
     "FalconWarning", "Graph", "GraphError", "MissingDependencyError", "collapse"],
)  # fmt: skip
def test_every_name_of_the_collapse_can_be_reached_from_the_top(name):
    assert name in falcon_gnn.__all__
    assert getattr(falcon_gnn, name).__name__ == name


def test_every_exported_name_is_listed_by_dir():
    assert set(falcon_gnn.__all__) == set(dir(falcon_gnn))


def test_a_name_that_is_not_there_is_an_attribute_error():
    with pytest.raises(AttributeError, match="module 'falcon_gnn' has no attribute 'reduce_graph'"):
        _ = falcon_gnn.reduce_graph
