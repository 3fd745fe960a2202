"""Entry point of the `kdwatch` command."""


def main() -> None:
    """Run the command line. Imports stay inside so that `--help` is quick."""
    from kdwatch.cli.root import cli

    cli(prog_name="kdwatch")


if __name__ == "__main__":
    main()
