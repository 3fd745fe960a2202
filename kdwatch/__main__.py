"""Entry point of the `kdwatch` command."""

import sys


def main() -> None:
    """Run the command line. Imports stay inside so that `--help` is quick.

    Wrong usage is one line on stderr and exit code 2, like any other bad input.
    """
    import click

    from kdwatch.cli.root import cli

    try:
        code = cli.main(prog_name="kdwatch", standalone_mode=False)
    except click.UsageError as problem:
        command = problem.ctx.command_path if problem.ctx else "kdwatch"
        text = problem.format_message().rstrip(".")
        click.echo(f"{command}: {text}: see `{command} --help`", err=True)
        sys.exit(2)
    except click.ClickException as problem:
        click.echo(f"kdwatch: {problem.format_message()}", err=True)
        sys.exit(problem.exit_code)
    except click.Abort:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()  # the reader has gone: no complaint when the interpreter flushes at its end
        sys.exit(141)
    except OSError as problem:
        sys.stderr.write(f"kdwatch: {problem.filename or 'output'}: {problem.strerror or problem}\n")
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


if __name__ == "__main__":
    main()
