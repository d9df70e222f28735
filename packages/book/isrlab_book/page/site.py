"""`python -m isrlab page`: add the playground to the reports, which makes a site to publish."""

from pathlib import Path

import click

from isrlab.commands import FOLDER
from isrlab.installed import require


@click.command("page")
@click.option("--out", type=FOLDER, default=Path("reports"), show_default=True,
    help="The folder of the reports. The page goes to play/ there, and their index links to it."
)  # fmt: skip
def make_page(out: Path) -> None:
    """Build the playground: a page that plays scenarios in a browser, with nothing to install.

    The first build downloads parts from npm and PyPI and keeps them in ~/.cache/isrlab/page. Serve
    the folder with any web server: a page that is opened as a file cannot run Python.
    """
    require("notebooks")
    from isrlab.report import gallery
    from isrlab_book.page.build import PLAY, PageError, build

    try:
        out.mkdir(parents=True, exist_ok=True)
        size = build(out / PLAY)
        gallery.write_index(out)
    except (PageError, OSError) as error:
        raise click.ClickException(f"cannot build the page: {error}") from None
    click.echo(f"{out / PLAY / 'index.html'}: {size / 1e6:.1f} MB, for any web server, such as")
    click.echo(f"  python -m http.server --bind 127.0.0.1 --directory {out}")
