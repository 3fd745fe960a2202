"""Settings: file, screen, environment, command line in that order of rank; faults in one line; keys remapped."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from tui_pilot import part, running
from tui_runs import make_run

from kdwatch.cli.config import config
from kdwatch.rundir.errors import UsageProblem
from kdwatch.settings import SETTINGS, load, save_state
from kdwatch.tui import keys


@pytest.fixture
def write(tmp_path: Path):
    """Write the config file."""
    return lambda text: (tmp_path / "config.toml").write_text(text)


def test_each_layer_outranks_the_one_before(write, monkeypatch: pytest.MonkeyPatch) -> None:
    """default, file, choice on the screen, environment, command line."""
    assert load()["units"] == "J"
    write('units = "Wh"')
    assert load()["units"] == "Wh"
    save_state(units="kWh")
    assert load()["units"] == "kWh"
    monkeypatch.setenv("KDWATCH_UNITS", "co2e")
    assert load()["units"] == "co2e" and load().sources["units"] == "$KDWATCH_UNITS"
    found = load({"units": "money", "theme": None})
    assert found["units"] == "money" and found.sources["units"] == "command line"
    assert found.sources["theme"] == "default"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("units = 'parsec'", "parsec"),
        ("unit = 'J'", "unit: no such setting"),
        ("refresh = 'fast'", "number"),
        ("refresh = nan", "0.2 to 60"),
        ("refresh = true", "number"),
        ("bell = 'loud'", "true or false"),
        ("pue = 0.5", "1 to 10"),
        ("units = 3", "text in quotes"),
        ("units = ", "not TOML"),
        ("[hooks]\nstage_ended = 'rm'", "hooks.stage_ended"),
        ("[hooks]\nlaunch = ['x']", "launch"),
        ("keys = 1", "keys"),
        ("\xff", "TOML"),
    ],
)
def test_bad_config_is_one_line_with_file_and_key(write, text: str, word: str) -> None:
    """What, where, what to do; exit 2."""
    write(text)
    answer = CliRunner().invoke(config, [])
    assert answer.exit_code == 2 and answer.stdout == ""
    assert word in answer.stderr and answer.stderr.count("\n") == 1


def test_config_shows_each_value_and_its_source(write, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As text and as JSON."""
    write('theme = "light"\n[keys]\nfreeze = "P"\n')
    monkeypatch.setenv("KDWATCH_REFRESH", "2")
    found = json.loads(CliRunner().invoke(config, ["--json"]).stdout)
    assert found["settings"]["theme"] == {"value": "light", "source": str(tmp_path / "config.toml")}
    assert found["settings"]["refresh"] == {"value": 2.0, "source": "$KDWATCH_REFRESH"}
    assert found["keys"] == {"freeze": "P"} and set(found["settings"]) == {s.name for s in SETTINGS}
    text = CliRunner().invoke(config, []).stdout
    assert "$KDWATCH_REFRESH" in text and "keys.freeze" in text


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_kdwatch(shell: str) -> None:
    """What the shell sources."""
    script = CliRunner().invoke(config, ["--completion", shell]).stdout
    assert "_KDWATCH_COMPLETE" in script and f"{shell}_complete" in script


def test_screen_choices_survive_a_damaged_file(own_home: Path) -> None:
    """A broken or foreign screen.json counts as none."""
    for text in ("{", "[]", '{"units": 3}', '{"units": "parsec"}'):
        (own_home / "screen.json").write_text(text)
        assert load()["units"] == "J"


def test_no_key_has_two_meanings_and_no_ctrl_but_two() -> None:
    """The table itself, on every screen."""
    keys.remapped({})
    ctrl = {n for k in keys.KEYS for n in k.keys.split(",") if n.startswith("ctrl+")}
    assert ctrl == {"ctrl+p", "ctrl+q"}


@pytest.mark.parametrize(
    ("keymap", "word"),
    [
        ({"frieze": "p"}, "frieze"),
        ({"freeze": "ctrl+s"}, "ctrl"),
        ({"freeze": "z"}, "already means"),
        ({"freeze": " "}, "freeze"),
    ],
)
def test_bad_keymaps_are_refused(keymap, word: str) -> None:
    """Unknown action, ctrl key, a key that is taken, no key."""
    with pytest.raises(UsageProblem, match=word):
        keys.remapped(keymap)


def test_bad_keys_are_one_line_on_the_command_line(write) -> None:
    """Not a traceback."""
    write('[keys]\nfreeze = "ctrl+s"\n')
    answer = CliRunner().invoke(config, [])
    assert answer.exit_code == 2 and answer.stderr.count("\n") == 1 and "keys.freeze" in answer.stderr


@pytest.mark.parametrize("written", [",", "?", "space", "P, F2"])
def test_keys_are_written_as_on_the_keyboard(written: str) -> None:
    """`?` is question_mark to Textual; a lone comma is a key, not a list."""
    table = keys.remapped({"freeze": written, "back_10": "B", "help": "H"})
    names = next(k for k in table if k.id == "freeze").keys
    assert names == {",": "comma", "?": "question_mark", "space": "space", "P, F2": "P,F2"}[written]


async def test_a_remapped_key_works_and_shows_in_the_footer(write, tmp_path: Path) -> None:
    """u moves to U: U changes the unit, u does nothing, footer and help say U."""
    write('[keys]\nunits = "U"\n')
    async with running(make_run(tmp_path / "run")) as (app, pilot):
        await pilot.press("u")
        assert app.units_name == "J"
        await pilot.press("U")
        assert app.units_name == "Wh" and " U units" in part(app, "footer")
        await pilot.press("question_mark")
        await pilot.pause()
        assert "U" in part(app, "body") and "Energy unit" in part(app, "body")


def test_docs_list_the_keys_of_the_table() -> None:
    """docs/screens.md holds exactly what `python -m kdwatch.tui.keys` prints."""
    text = (Path(__file__).parents[2] / "docs" / "screens.md").read_text(encoding="utf-8")
    assert keys.markdown() in text


def test_settings_raise_one_kind_of_problem(write) -> None:
    """Library users catch UsageProblem."""
    write("units = 1")
    with pytest.raises(UsageProblem):
        load()
