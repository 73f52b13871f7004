"""The configuration files: every key is checked, later layers win."""

from pathlib import Path

import pytest
from tests.benchmark.conftest import FALCON, NONE

from falcon_gnn.benchmark.config import read_config
from falcon_gnn.benchmark.plan import make_plan
from falcon_gnn.errors import OptionError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("[methods.FALCON]\ncentralitys = ['PR']", "has no key 'centralitys'. Did you mean 'centralities'"),
        ("[methods.FALCON]\ncollapse.gama = 0.4", "has no key 'gama'. Did you mean 'gamma'"),
        ("[methods.FALCON]\n[trainings]\nnum_epochs = 3", "has no key 'trainings'. Did you mean 'training'"),
        ("[methods.FALCON]\n[datasets.other]\nsorce = 'x'", "has no key 'sorce'. Did you mean 'source'"),
        ("[methods.FALCON]\n[figure]\nmetric = 'acuracy'", "has no key 'acuracy'. Did you mean 'accuracy'"),
        ("[methods.FALCON]\n[figure]\nmethods = ['falcon']", "has no key 'falcon'. Did you mean 'FALCON'"),
        ("[methods.FALCON]\nmodels = ['sgn']", "has no key 'sgn'. Did you mean 'sign'"),
    ],
)
def test_an_unknown_key_is_an_error_that_names_the_nearest_one(write_config, table, message):
    with pytest.raises(OptionError) as caught:
        read_config(write_config(table))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("", r"at least one table \[methods.NAME\]"),
        (f"{FALCON}\n[datasets.other]\nnote = 'x'", "either source or synthetic"),
        ("[methods.FALCON]\nreduction = 'falcn'", "reduction must be one of none, falcon, coarsen, got 'falcn'"),
        ("[methods.c]\nreduction = 'coarsen'\ncentralities = ['PR']", "centralities are for reduction='falcon'"),
        (f"{FALCON}\n[datasets.other]\nsource = 'x'\nbudgets = ['many']", "budgets must be node counts"),
        (f"{FALCON}\n[datasets.other]\nsource = 3", "source must be a text, got "),
        (f"{FALCON}\n[datasets.other]\nsource = 'x'\nnote = 3", "note must be a text, got "),
        (f"{FALCON}\n[datasets.other]\nsource = 'x'\nnormalize_rows = 'no'", "normalize_rows must be True or False"),
        (f"{FALCON}\n[datasets.other]\nsource = 'x'\nsplit_shares = 3", "split_shares must be a list, got "),
        (
            f"{FALCON}\n[datasets.other]\nsource = 'x'\nseeds = 12345",
            r"seeds must be at most 10,000, got 12345.*\[12345\]",
        ),
        (f"{FALCON}\n[datasets.other]\nsynthetic = 3", "synthetic must be a table, got "),
        (
            f"{FALCON}\n[datasets.other]\nsynthetic.num_nodes = 50",
            "needs num_nodes and num_edges, and num_edges is missing",
        ),
        (f"{FALCON}\n[datasets.other.synthetic]\nnum_nodes = 'a'\nnum_edges = 9", "num_nodes must be a whole number"),
        (f"{FALCON}\n[figure]\nmetric = ['accuracy']", "figure.metric must be a text, got "),
        (
            f"{FALCON}\n[datasets.other]\nsource = 'x'\nsplit_index = 2020-01-01",
            "datasets, other, split_index must be text, a finite number, .* got 2020-01-01",
        ),
        (f"{FALCON}\n[coarsen]\nmethod = nan", "coarsen, method must be text, a finite number, .* got nan"),
    ],
)
def test_a_wrong_value_is_an_error_that_says_what_is_allowed(write_config, table, message):
    with pytest.raises(OptionError, match=message):
        read_config(write_config(table))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("table = 3", "table must be a table, got "),
        ("extends = 3", "extends must be a text, got "),
        ("title = 3", "title must be a text, got "),
        ("table.paper = 'main_reslt'", "table.paper must be one of .* Did you mean 'main_result'"),
        ("table.metrics = []", "table.metrics must name at least one metric, got none"),
    ],
)
def test_a_key_of_another_kind_is_named(tmp_path, line, message):
    (tmp_path / "file.toml").write_text(f"{line}\n{FALCON}\n[datasets.G]\nsource = 'x'\n", encoding="utf-8")
    with pytest.raises(OptionError, match=rf"file\.toml: {message}"):
        read_config(tmp_path / "file.toml")


def test_a_benchmark_that_trains_needs_models(write_config):
    with pytest.raises(OptionError, match="kind='train' needs models"):
        read_config(write_config(FALCON, models="[]"))


def test_a_benchmark_of_label_errors_needs_a_reduction(write_config):
    with pytest.raises(OptionError, match="the method 'none' has none"):
        read_config(write_config(FALCON, NONE, kind="label_error"))


def test_a_file_that_is_no_toml_is_named(tmp_path):
    (tmp_path / "bad.toml").write_text("title = ", encoding="utf-8")
    with pytest.raises(OptionError, match=r"bad\.toml is not"):
        read_config(tmp_path / "bad.toml")


def test_a_file_lies_over_the_one_it_extends_and_chooses_its_data_sets(write_config, tmp_path):
    base = write_config(FALCON, "[datasets.second]\nsource = 'digits'")
    top = tmp_path / "top.toml"
    top.write_text(f"extends = '{base.name}'\nuse = ['second']\n[training]\nnum_epochs = 7", encoding="utf-8")
    config = read_config(top)
    assert [dataset.name for dataset in config.datasets] == ["second"]
    assert config.options["training"] == {"num_epochs": 7, "patience": "none", "learning_rate": 0.01}
    assert config.name == "top"


def test_two_files_that_extend_each_other_are_refused(tmp_path):
    (tmp_path / "a.toml").write_text("extends = 'b.toml'", encoding="utf-8")
    (tmp_path / "b.toml").write_text("extends = 'a.toml'", encoding="utf-8")
    with pytest.raises(OptionError, match="extends it again"):
        read_config(tmp_path / "a.toml")


def test_a_number_of_seeds_stands_for_the_first_ones(write_config):
    assert read_config(write_config(FALCON, seeds=3)).seeds == (0, 1, 2)
    assert read_config(write_config(FALCON), {"seeds": [4, 9]}).seeds == (4, 9)
    with pytest.raises(OptionError, match="seeds must be"):
        read_config(write_config(FALCON), {"seeds": []})


@pytest.mark.parametrize(
    "path",
    [path for path in sorted(CONFIGS.rglob("*.toml")) if path.name != "datasets.toml"],
    ids=lambda path: f"{path.parent.name}-{path.stem}",
)
def test_every_file_that_is_shipped_can_be_planned(path):
    plan = make_plan(path)
    assert plan.runs
    assert not any(Path(dataset.source).is_absolute() for dataset in plan.config.datasets)
