"""The floor of ``--help``: a typer application of nine empty commands that prints its help."""

import typer

app = typer.Typer(rich_markup_mode=None, no_args_is_help=True)
for number in range(9):

    @app.command(f"command-{number}")
    def command(name: str = typer.Option("", help="A name.")) -> None:
        """Do something with a name."""


app(["--help"])
