from pathlib import Path
from xml.etree import ElementTree

import matplotlib
import pytest

from falcon_gnn.errors import MissingDependencyError, OptionError
from falcon_gnn.reporting.plots import LineAxes, lines_figure
from falcon_gnn.reporting.style import PALETTE, figure_style, inline_svg, new_figure, save_figure


def _line_figure(name: str = "a"):
    return lines_figure({name: ([1, 2], [3, 4])}, LineAxes("x", "y"))


def _contrast(color: str, ground: str) -> float:
    """WCAG's contrast ratio of two colours."""

    def luminance(code: str) -> float:
        parts = [int(code[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(color), luminance(ground)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("mode", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize("name", sorted(set(PALETTE) - {"card", "grid", "removed"}))
def test_what_carries_meaning_stands_out_from_the_card(name: str, mode: int) -> None:
    needed = 4.5 if name in ("ink", "muted") else 2.9
    assert _contrast(PALETTE[name][mode], PALETTE["card"][mode]) >= needed


def test_every_colour_of_the_light_palette_is_unique() -> None:
    assert len({light for light, _ in PALETTE.values()}) == len(PALETTE)


@pytest.mark.parametrize("suffix", [".png", ".svg"])
def test_a_saved_figure_has_the_same_bytes_each_time(tmp_path: Path, suffix: str) -> None:
    first, second = tmp_path / f"first{suffix}", tmp_path / f"second{suffix}"
    save_figure(_line_figure(), first)
    save_figure(_line_figure(), second)
    assert first.read_bytes() == second.read_bytes()


def test_a_saved_png_is_a_png(tmp_path: Path) -> None:
    save_figure(_line_figure(), tmp_path / "plot.PNG")
    assert (tmp_path / "plot.PNG").read_bytes().startswith(b"\x89PNG")


def test_another_suffix_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match=r"must end in \.png or \.svg, got .*plot\.gif"):
        save_figure(_line_figure(), tmp_path / "plot.gif")
    assert list(tmp_path.iterdir()) == []


def test_a_failed_save_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "plot.svg"
    path.write_text("old")
    figure = _line_figure()

    def fail_halfway(file: Path, **_: object) -> None:
        Path(file).write_text("half")
        raise OSError

    monkeypatch.setattr(figure, "savefig", fail_halfway)
    with pytest.raises(OSError):  # noqa: PT011
        save_figure(figure, path)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("plot.svg", "old")]


def test_an_inline_figure_names_its_colours() -> None:
    svg = inline_svg(_line_figure(), "f1-", "words")
    assert "var(--after)" in svg
    assert not [name for name, (light, _) in PALETTE.items() if light in svg]


def test_an_inline_figure_refers_only_to_ids_of_its_own() -> None:
    root = ElementTree.fromstring(inline_svg(_line_figure(), "f7-", "words"))
    ids = {element.get("id") for element in root.iter() if element.get("id")}
    used = {element.get("href") for element in root.iter() if element.get("href")}
    clips = {element.get("clip-path") for element in root.iter() if element.get("clip-path")}
    assert all(name.startswith("f7-") for name in ids)
    assert used
    assert {name.removeprefix("#") for name in used} <= ids
    assert {name.removeprefix("url(#").removesuffix(")") for name in clips} <= ids


def test_an_inline_figure_says_in_words_what_it_shows() -> None:
    root = ElementTree.fromstring(inline_svg(_line_figure(), "f-", 'kept & "removed"'))
    assert (root.get("role"), root.get("aria-label")) == ("img", 'kept & "removed"')


def test_the_text_of_an_inline_figure_stays_text() -> None:
    assert ">budget $x_1$ &lt;b&gt;</text>" in inline_svg(_line_figure("budget $x_1$ <b>"), "f-", "words")


def test_the_settings_of_matplotlib_are_as_before() -> None:
    before = dict(matplotlib.rcParams)
    with figure_style():
        assert matplotlib.rcParams["svg.fonttype"] == "none"
    assert dict(matplotlib.rcParams) == before


def test_the_look_does_not_depend_on_the_users_settings() -> None:
    with matplotlib.rc_context({"axes.facecolor": "red", "font.size": 30, "text.color": "red"}):
        changed = inline_svg(_line_figure(), "f-", "words")
    assert changed == inline_svg(_line_figure(), "f-", "words")


def test_a_figure_without_matplotlib_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'falcon-gnn\[report\]'"):
        new_figure()
