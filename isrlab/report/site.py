"""`python -m isrlab page`: the playground beside the reports, which is a site to publish."""

from __future__ import annotations

from pathlib import Path

import click

from isrlab.installed import require


@click.command("page")
@click.option(
    "--out",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("reports"),
    show_default=True,
    help="The folder of the reports: the page is play/ in it, and their index leads there.",
)
def make_page(out: Path) -> None:
    """Build the playground: a page that plays schedules in a browser, with nothing to install.

    Its parts come from npm and PyPI the first time, and are kept in ~/.cache/isrlab/page. Any web
    server serves the folder; a file that is opened without one cannot run Python.
    """
    require("notebooks")
    from isrlab.page.build import PLAY, PageError, build
    from isrlab.report import gallery

    try:
        out.mkdir(parents=True, exist_ok=True)
        size = build(out / PLAY)
        gallery.write_index(out)
    except (PageError, OSError) as error:
        raise click.ClickException(f"cannot build the page: {error}") from None
    click.echo(f"{out / PLAY / 'index.html'}: {size / 1e6:.1f} MB, for any web server, such as")
    click.echo(f"  python -m http.server --bind 127.0.0.1 --directory {out}")
