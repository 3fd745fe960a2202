"""`kdwatch config`: each setting, and where it comes from; the script for shell completion."""

from __future__ import annotations

import json

import click

from kdwatch.cli.errors import one_line_errors


@click.command(
    epilog="""\b
Examples:
  kdwatch config
  KDWATCH_UNITS=kWh kdwatch config
  kdwatch config --completion bash >> ~/.bashrc"""
)
@click.option("--json", "as_json", is_flag=True, help="Print one object to stdout.")
@click.option(
    "--completion", type=click.Choice(["bash", "zsh", "fish"]), help="Print the completion script of a shell."
)
@one_line_errors
def config(as_json: bool, completion: str | None) -> None:
    """Show each setting and where it comes from.

    The config file (TOML) is ~/.config/kdwatch/config.toml, or $KDWATCH_CONFIG; over it rank the environment and then
    the command line. docs/screens.md lists settings, keys and hooks.
    """
    if completion is not None:
        click.echo(completion_script(completion))
        return
    from kdwatch.settings import SETTINGS, config_path, load
    from kdwatch.tui.keys import remapped

    settings = load()
    remapped(settings.keys)
    if as_json:
        values = {s.name: {"value": settings[s.name], "source": settings.sources[s.name]} for s in SETTINGS}
        extra = {"keys": dict(settings.keys), "hooks": dict(settings.hooks), "file": str(config_path())}
        click.echo(json.dumps({"settings": values, **extra}, indent=2, allow_nan=False))
        return
    for s in SETTINGS:
        value = settings[s.name]
        shown = "n/a" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
        click.echo(f"{s.name:<13} {shown:<10} {settings.sources[s.name]:<22} {s.help}".rstrip())
    for name, keys in settings.keys.items():
        click.echo(f"keys.{name:<8} {keys:<10} {config_path()}")
    for name, command in settings.hooks.items():
        click.echo(f"hooks.{name} = {command}   {config_path()}")
    there = "" if config_path().exists() else " (not there yet)"
    click.echo(f"config file   {config_path()}{there}")


def completion_script(shell: str) -> str:
    """The script that makes a shell complete kdwatch's commands and options."""
    from click.shell_completion import get_completion_class

    from kdwatch.cli.root import cli

    kind = get_completion_class(shell)
    assert kind is not None, shell
    return kind(cli, {}, "kdwatch", "_KDWATCH_COMPLETE").source()
