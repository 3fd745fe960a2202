"""Views are pure: numbers as text, columns by width, places by size, dots by value."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tui_runs import Shape, make_run

from kdwatch.tui.feed import RunFeed
from kdwatch.tui.fmt import UNIT_CYCLE, Units, duration, next_unit, ratio, scaled, three_digits, watts
from kdwatch.tui.frame import DeviceRow, Forecast
from kdwatch.tui.history import PlotView
from kdwatch.tui.layout import MIN_HEIGHT, MIN_WIDTH, arrange
from kdwatch.tui.raster import ASCII, BLOCK, BRAILLE, choose_glyphs, joined, nice_ceiling, paint, to_spans
from kdwatch.tui.times import parse_time
from kdwatch.tui.view.devices import device_lines, heat_cells
from kdwatch.tui.view.header import energy_line, header_line
from kdwatch.tui.view.line import cut, cut_middle, left, length, right, text_of, width_of, wrapped
from kdwatch.tui.view.logs import log_lines
from kdwatch.tui.view.plot import PlotSpec, plot_lines
from kdwatch.tui.view.stages import stage_lines, window
from kdwatch.tui.widgets.lines import changed_cells
from kdwatch.tui.widgets.plot import window_span


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0"),
        (1.0, "1.00"),
        (9.999, "10.0"),
        (99.96, "100"),
        (0.0123456, "0.0123"),
        (1234.5, "1234"),
        (5e-5, "5.00e-5"),
        (0.0009996, "0.00100"),
        (1.234e7, "1.23e7"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    """Three significant digits, no exponent where a person would write none."""
    assert three_digits(value) == text


def test_energy_in_every_unit() -> None:
    """1 kWh is 3.6 MJ; at 56 g/kWh, PUE 1.5 it is 84 g CO2e; at 0.30 EUR it costs 0.45 EUR."""
    joules = 3.6e6
    texts = [Units(name, 56.0, 1.5, 0.30, "EUR").energy(joules) for name in UNIT_CYCLE]
    assert texts == ["3.60 MJ", "1000 Wh", "1.00 kWh", "84.0 gCO2e", "0.450 EUR"]


def test_a_small_run_has_three_digits_in_every_unit() -> None:
    """1.24 kJ and 8.82 J are no `0.00 kWh`: the unit gets smaller, the digits stay."""
    for joules, texts in (
        (1240.0, ["1.24 kJ", "0.344 Wh", "0.344 Wh", "19.3 mgCO2e", "1.55e-4 EUR"]),
        (8.82, ["8.82 J", "0.00245 Wh", "0.00245 Wh", "137 ugCO2e", "1.10e-6 EUR"]),
        (0.5, ["0.500 J", "0.139 mWh", "0.139 mWh", "7.78 ugCO2e", "6.25e-8 EUR"]),
        (0.0, ["0 J", "0 Wh", "0 kWh", "0 gCO2e", "0 EUR"]),
    ):
        assert [Units(name, 56.0, 1.0, 0.45, "EUR").energy(joules) for name in UNIT_CYCLE] == texts


@pytest.mark.parametrize("name", UNIT_CYCLE)
def test_unknown_energy_is_never_zero(name: str) -> None:
    """None shows n/a in every unit; so does energy whose price or grid is unknown."""
    assert Units(name).energy(None) == "n/a"
    if name in ("co2e", "money"):
        assert Units(name).energy(1.0) == "n/a"
        assert "n/a" in Units(name).label()


def test_unit_key_walks_through_all_units_and_back() -> None:
    """J, Wh, kWh, CO2e, money, J."""
    walked = ["J"]
    for _ in UNIT_CYCLE:
        walked.append(next_unit(walked[-1]))
    assert walked == [*UNIT_CYCLE, "J"]


@given(st.just(0.0) | st.floats(min_value=1e-3, max_value=1e12))
def test_energy_fits_its_column(joules: float) -> None:
    """From 1 mJ to 278 MWh, the energy column is 12 cells: no number pushes another out of its place, mark included."""
    for name in UNIT_CYCLE:
        assert len("~" + Units(name, 500.0, 1.0, 0.3).energy(joules)) <= 12


@given(st.floats(min_value=0, max_value=99_999))
def test_power_fits_its_column(value: float) -> None:
    """Up to 99.9 kW in 7 cells with the mark."""
    assert len("~" + watts(value)) <= 7


def test_durations() -> None:
    """Hours up to 99, then days; unknown is n/a."""
    assert duration(0) == "0:00:00"
    assert duration(3 * 3600 + 14 * 60 + 55.9) == "3:14:55"
    assert duration(101 * 3600) == "4d05:00"
    assert duration(None) == duration(math.nan) == "n/a"


def test_shares_do_not_round_to_nothing_or_all() -> None:
    """0.1 % is <1%, 99.9 % is >99%."""
    assert [ratio(x) for x in (0.0, 0.001, 0.5, 0.999, 1.0, None)] == ["0%", "<1%", "50%", ">99%", "100%", "n/a"]


def test_scaled_steps_prefix_without_four_digits() -> None:
    """999.96 J is 1.00 kJ, not 1000 J."""
    assert scaled(999.96, "J") == "1.00 kJ"
    assert scaled(25.8e6, "J") == "25.8 MJ"


@given(st.text(max_size=60), st.integers(0, 40))
def test_texts_take_the_cells_they_are_given(text: str, width: int) -> None:
    """Wide and combining characters count as the terminal counts them."""
    text = "".join(c for c in text if c.isprintable())
    assert width_of(left(text, width)) == width
    assert width_of(right(text, width)) == width
    assert width_of(cut(text, width)) <= width


@given(st.text(alphabet="ab cd", max_size=80), st.integers(3, 30))
def test_wrapping_loses_no_word(text: str, width: int) -> None:
    """Lines fit, and joined they are the text."""
    lines = wrapped(text, width)
    assert all(width_of(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == text.replace(" ", "")


@given(st.integers(MIN_WIDTH, 240), st.integers(MIN_HEIGHT, 60), st.integers(1, 30), st.integers(0, 34))
def test_parts_lie_inside_and_never_on_each_other(width: int, height: int, stages: int, devices: int) -> None:
    """For each size from 40x10 to 240x60 and any number of stages and devices."""
    places = arrange(width, height, stages, devices)
    assert places is not None
    taken: set[tuple[int, int]] = set()
    for place in places.values():
        assert place.height >= 0 and place.x >= 0 and place.x + place.width <= width
        for y in range(place.y, place.y + place.height):
            for x in (place.x, place.x + place.width - 1):
                assert 0 <= y < height and (x, y) not in taken
                taken.add((x, y))
    assert places["stages"].height >= 2
    assert places["plot"].height >= 1


@pytest.mark.parametrize("size", [(39, 10), (40, 9), (20, 5), (1, 1)])
def test_too_small_is_said_not_drawn(size: tuple[int, int]) -> None:
    """Below 40x10 there is no arrangement."""
    assert arrange(*size, 5, 3) is None


@given(st.floats(min_value=1e-3, max_value=1e7))
def test_axis_ends_at_a_round_number_above_the_peak(peak: float) -> None:
    """Never below the peak, never more than 1.34 times it."""
    top = nice_ceiling(peak)
    assert peak <= top * (1 + 1e-12) and top <= peak * 1.34


WATTS = st.floats(0, 100)


@pytest.mark.parametrize("glyphs", [BRAILLE, BLOCK, ASCII], ids=lambda g: g.name)
@given(
    data=st.lists(st.none() | st.tuples(WATTS, WATTS), min_size=1, max_size=60),
    height=st.integers(1, 12),
)
def test_gaps_stay_gaps_and_values_leave_ink(glyphs, data, height: int) -> None:
    """A cell column is blank exactly where all its sub-columns are gaps."""
    data = data[: len(data) // glyphs.dots_x * glyphs.dots_x] or [None] * glyphs.dots_x
    ranges = [None if d is None else (min(d), max(d)) for d in data]
    rows, _ = paint(joined(to_spans(ranges, 0.0, 100.0, height * glyphs.dots_y)), glyphs, height, fill=True)
    for x in range(len(ranges) // glyphs.dots_x):
        empty = all(r is None for r in ranges[x * glyphs.dots_x : (x + 1) * glyphs.dots_x])
        assert all(row[x] == " " for row in rows) == empty


def test_braille_line_by_hand() -> None:
    """Two columns, one dot high at the bottom and four at the top: U+2840 | full right column."""
    rows, _ = paint([(0, 0), (0, 3)], BRAILLE, 1, fill=False)
    assert rows == [chr(0x2800 + 0x40 + 0x80 + 0x20 + 0x10 + 0x08)]


def test_half_blocks_and_ascii_by_hand() -> None:
    """Lower half, upper half, both."""
    spans = [(0, 0), (1, 1), (0, 1), None]
    assert paint(spans, BLOCK, 1, fill=False)[0] == ["▄▀█ "]
    assert paint(spans, ASCII, 1, fill=False)[0] == [".': "]


@pytest.mark.parametrize(
    ("encoding", "term", "name"),
    [
        ("UTF-8", "xterm-256color", "braille"),
        ("UTF-8", "linux", "block"),
        ("ascii", "xterm", "ascii"),
        ("latin-1", "tmux", "ascii"),
    ],
)
def test_glyphs_follow_locale_and_terminal(encoding: str, term: str, name: str) -> None:
    """Braille needs UTF-8 and a font; the Linux console has neither braille."""
    assert choose_glyphs("auto", encoding, term).name == name
    assert choose_glyphs("ascii", "UTF-8", "xterm").name == "ascii"


def test_plot_draws_gap_marks_budget_and_axis() -> None:
    """A gap in the middle stays empty; the stage's name stands at its start; the budget line crosses."""
    columns = [(100.0, 100.0)] * 60 + [None] * 20 + [(50.0, 50.0)] * 60
    view = PlotView(0.0, 140.0, tuple(columns), 100.0, 50.0)
    spec = PlotSpec("total", "all", ((40.0, "student"),), budget_w=110.0)
    lines = [text_of(line) for line in plot_lines(view, spec, 76, 10, BRAILLE)]
    assert all(width_of(line) <= 76 for line in lines) and len(lines) == 10
    assert "50.0 W" in lines[0] and "peak 100 W" in lines[0]
    assert lines[-1].index("student") == 6 + 20
    assert all(line[6 + 31 : 6 + 39].strip("┄ ") == "" for line in lines[1:-1])
    assert any("┄" in line for line in lines)


@given(st.floats(0, 1e6), st.sampled_from([60.0, 600.0, 3600.0, None]))
def test_window_holds_now_and_is_never_longer_than_asked(now: float, asked: float | None) -> None:
    """The right edge is at or just after now; a short run is shown from its start."""
    start, end = window_span(asked, now, 320)
    assert start >= -1e-6 and start <= now <= end + 1e-6
    if asked is not None:
        assert end - start <= asked * (1 + 1e-9)
        assert now >= asked or start == 0.0


@given(st.integers(1, 60), st.integers(1, 30), st.integers(0, 59))
def test_the_focused_row_is_among_those_shown(total: int, room: int, focus: int) -> None:
    """However many stages there are."""
    start, end = window(total, room, min(focus, total - 1))
    assert 0 <= start <= min(focus, total - 1) < end <= total and end - start == min(room, total)


@pytest.fixture(scope="module")
def sixteen(tmp_path_factory: pytest.TempPathFactory):
    """A frame of a run with 16 GPUs, CPU and DRAM, cut off in the student stage."""
    path = make_run(tmp_path_factory.mktemp("runs") / "sixteen", Shape(gpus=16, until=200.0, hz=1.0))
    return RunFeed(path).frame()


@pytest.mark.parametrize("width", [40, 57, 80, 100, 120, 240])
@pytest.mark.parametrize("glyphs", [BRAILLE, ASCII], ids=lambda g: g.name)
def test_no_line_is_wider_than_the_terminal(sixteen, width: int, glyphs) -> None:
    """Every view at every width, in every unit."""
    for name in UNIT_CYCLE:
        units = Units(name, 400.0, 1.2, 0.25)
        lines = [header_line(sixteen, width), energy_line(sixteen, width, units, glyphs)]
        lines += stage_lines(sixteen, width, units, 9) + device_lines(sixteen, width, units, glyphs, 6)
        lines += stage_lines(sixteen, width, units) + device_lines(sixteen, width, units, glyphs)
        assert max(length(line) for line in lines) <= width


def test_sixteen_gpus_fold_into_one_line_of_heat(sixteen) -> None:
    """In 6 rows: head, fold, one GPU, CPU, DRAM, at most; the sum is that of the rows."""
    lines = [text_of(line) for line in device_lines(sixteen, 80, Units(), BRAILLE, 6)]
    powers = [d.power_w for d in sixteen.devices if d.kind == "gpu"]
    assert len(lines) <= 6 and f"16 GPU {sum(powers):.0f} W" in lines[1]
    assert sum(c in "▁▂▃▄▅▆▇█" for c in lines[1]) == 16


def test_a_gpu_without_power_is_a_question_mark_not_a_zero() -> None:
    """Faults 24 to 28 of other monitors: missing power, missing limit, both."""

    def gpu(power, limit):
        return DeviceRow("g0", "GPU 0", "x", "gpu", power, limit, None, "counter", "gpu")

    assert heat_cells([gpu(None, 700.0), gpu(350.0, 700.0), gpu(100.0, None)], ASCII) == "?52"


def test_sums_of_the_table_are_those_of_the_ledger(tmp_path: Path) -> None:
    """Stages + unattributed = total on the screen too; shares add to one."""
    frame = RunFeed(make_run(tmp_path / "run", Shape(gpus=2))).frame()
    stages = sum(s.energy_j for s in frame.stages)
    assert stages + frame.unattributed_j == pytest.approx(frame.total_j, rel=1e-9)
    assert sum(s.share for s in frame.stages) == pytest.approx(1 - frame.unattributed_j / frame.total_j, rel=1e-6)


def test_a_total_that_lacks_a_device_says_so(tmp_path: Path) -> None:
    """GPUs without power and energy: the total is the CPU's and DRAM's, and names what it is without."""
    frame = RunFeed(make_run(tmp_path / "run", Shape(gpus=2, power_missing=True))).frame()
    assert frame.missing == ("gpu",)
    assert "without gpu" in text_of(energy_line(frame, 100, Units(), BRAILLE))


def test_estimated_numbers_carry_their_mark(tmp_path: Path) -> None:
    """A laptop without sensors: every watt and joule has the tilde, and the source says why."""
    frame = RunFeed(make_run(tmp_path / "run", Shape(gpus=0, estimated=True))).frame()
    units = Units()
    for line in (*stage_lines(frame, 100, units)[1:6], *device_lines(frame, 100, units, BRAILLE)[1:]):
        assert "~" in text_of(line)
    assert "~" in text_of(energy_line(frame, 100, units, BRAILLE))
    assert "estimated" in text_of(device_lines(frame, 100, units, BRAILLE)[1])


LINES = st.lists(st.tuples(st.text(alphabet="ab ─", max_size=8), st.sampled_from(["", "dim", "line"])), max_size=6)


@given(LINES, LINES, st.integers(1, 40))
def test_sending_only_the_changed_cells_gives_the_new_row(old, new, width: int) -> None:
    """The old row with the changed cells replaced is the new row, tones included."""

    def cells(line):
        flat = [(char, tone) for text, tone in line for char in text]
        return (flat + [(" ", "")] * width)[:width]

    start, end = changed_cells(tuple(old), tuple(new), width)
    assert 0 <= start < end <= width
    row = cells(old)
    row[start:end] = cells(new)[start:end]
    assert row == cells(new)


def test_as_much_of_the_forecast_as_fits(sixteen) -> None:
    """Time to come at 60 columns, energy with its interval at 140; never a cut number."""
    frame = replace(sixteen, budget_j=9e6, forecast=Forecast(270.0, 8.36e6, 7.69e6, 9.02e6, whole=False))
    found = {w: text_of(energy_line(frame, w, Units(), BRAILLE)) for w in (40, 60, 80, 140)}
    assert "to go" not in found[40]
    assert found[60].endswith("0:04:30 to go") and "?" not in found[60]
    assert found[80].endswith("stage ?8.36 MJ, 0:04:30 to go")
    assert found[140].endswith("stage ?8.36 MJ (7.69 MJ to 9.02 MJ), 0:04:30 to go")
    assert all(len(text) <= width for width, text in found.items())


def test_the_log_pane_names_step_and_loss_and_no_warning_that_marks_say(sixteen) -> None:
    """A warning about estimates is in the `~` of each number; another one is shown, and the step stays beside it."""
    row = replace(sixteen.stages[0], status="running", step=231, total_steps=3000, loss=0.01304)
    frame = replace(sixteen, stages=(row,), log_title="log prerun", warnings=(("estimated", "cpu: from a model"),))
    assert text_of(log_lines(frame, 60, 3)[0]).split("  ")[0] == "log prerun"
    assert text_of(log_lines(frame, 60, 3)[0]).endswith("step 231/3000  loss 0.0130")
    frame = replace(frame, warnings=(*frame.warnings, ("gap", "part of the time has no reading: " * 3)))
    title = text_of(log_lines(frame, 80, 3)[0])
    assert "warning: gap: part of" in title and title.endswith("loss 0.0130") and len(title) == 80


def test_a_stage_that_begins_under_the_time_is_named_beside_it() -> None:
    """Marks at 0, 5 and 30 s of 300 lie under `0:00:00`: the last of them is named; one that has no room is not."""
    view = PlotView(0.0, 300.0, ((1.0, 2.0),) * 60, 2.0, None)
    marks = ((0.0, "a"), (5.0, "b"), (30.0, "teacher"), (150.0, "student"))
    axis = text_of(plot_lines(view, PlotSpec("total", "all", marks), 66, 8, ASCII)[-1])
    assert axis.split() == ["0:00:00", "teacher", "student", "0:05:00"]
    near = ((30.0, "teacher"), (60.0, "student"))
    axis = text_of(plot_lines(view, PlotSpec("total", "all", near), 66, 8, ASCII)[-1])
    assert axis.split() == ["0:00:00", "student", "0:05:00"]


@given(st.text(alphabet="abc-日", max_size=60), st.integers(0, 40))
def test_ids_cut_in_the_middle_keep_beginning_and_end(text: str, width: int) -> None:
    """At most so many cells; what fits is whole; of ASCII the last quarter stays."""
    short = cut_middle(text, width)
    assert width_of(short) <= width
    if width_of(text) <= width:
        assert short == text
    elif text.isascii() and width >= 8:
        head, tail = short.split("…")
        assert text.startswith(head) and text.endswith(tail) and len(tail) == width // 4


@pytest.mark.parametrize(
    ("typed", "seconds"),
    [
        ("90", 90),
        ("90s", 90),
        ("2m", 120),
        ("1:30", 90),
        ("1:02:03", 3723),
        ("50%", 100),
        ("200%", 200),
        ("soon", None),
    ],
)
def test_times_as_people_type_them(typed: str, seconds: float | None) -> None:
    assert parse_time(typed, 200.0) == seconds
