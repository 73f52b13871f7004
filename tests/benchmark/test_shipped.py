"""The configurations that come with the package are found by name."""

from pathlib import Path

import pytest

from falcon_gnn.benchmark.plan import make_plan
from falcon_gnn.benchmark.shipped import find_config, shipped_configs
from falcon_gnn.errors import OptionError

CONFIGS = Path(__file__).resolve().parents[2] / "configs"


def test_every_file_but_the_table_of_data_sets_has_a_name_of_its_own():
    files = {path for path in CONFIGS.rglob("*.toml") if path.name != "datasets.toml"}
    assert set(shipped_configs().values()) == files
    assert {name: path.stem for name, path in shipped_configs().items()} == {path.stem: path.stem for path in files}


def test_a_name_plans_the_runs_of_its_file():
    plan = make_plan("label_error")
    assert plan.config.name == "label_error"
    assert plan.runs == make_plan(CONFIGS / "paper" / "label_error.toml").runs


def test_a_file_of_the_working_folder_wins_over_a_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert find_config("main_result") == CONFIGS / "paper" / "main_result.toml"
    Path("main_result").touch()
    assert find_config("main_result") == Path("main_result")


def test_a_name_that_is_none_is_told_with_the_nearest():
    with pytest.raises(OptionError, match=r"one of alike, .*, got 'main_results'\. Did you mean 'main_result'"):
        make_plan("main_results")
    with pytest.raises(OptionError, match=r"main_results\.toml is not"):
        make_plan("main_results.toml")
