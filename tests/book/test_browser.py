"""In a real browser: a tutorial's slider moves its figure, and reports need no network.

JupyterLab runs on loopback with a copy of the notebooks; the browser may reach nothing else.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest

from isrlab.world import scenario

ROOT = Path(__file__).parents[2]
SMALL = Path(__file__).parents[1] / "notebooks"
TUTORIAL = ROOT / "notebooks" / "22_moving_partitions.ipynb"
BROWSERS = ("chromium", "chromium-browser", "google-chrome")
# As root in a container Chromium has no sandbox; the other options stop its background requests.
FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"),
    *("--disable-background-networking", "--disable-component-update"),
    "--process-per-site",  # so that the pages of a profile share what the browser has compiled
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
)
QUIET = {"checkForUpdates": False, "fetchNews": "false", "doNotDisturbMode": True}
SETTINGS = "config/labconfig"  # JupyterLab reads it for each page
LAB_SETTINGS = {
    "@jupyterlab/apputils-extension:notification": QUIET,
    "@jupyterlab/notebook-extension:tracker": {"windowingMode": "none"},
}
PANEL = "jupyterapp.shell.currentWidget"
COMMAND = """
async ([name, how]) => { await jupyterapp.restored; await jupyterapp.commands.execute(name, how); }
"""
# Resolves to the milliseconds from the next key to the next change of the slider's picture.
MEASURE = """
slider => {
  const cell = slider.closest('.jp-OutputArea').parentElement.closest('.jp-Cell');
  const all = () => [...cell.querySelectorAll('img, svg, canvas')];
  const picture = () => all().map(e => e.currentSrc || e.outerHTML).join();
  let pressed, before = picture();
  slider.addEventListener('keydown', () => pressed = performance.now(), {once: true});
  window.changed = new Promise((resolve, reject) => {
    const look = () => {
      if (picture() && picture() !== before) resolve(performance.now() - pressed);
      else requestAnimationFrame(look);
    };
    look();
    setTimeout(() => reject(new Error('the figure did not change')), 20000);
  });
}
"""
# Clicks, and resolves to the ms until the explorer has drawn the result.
CLICK = """
button => {
  const tree = button.closest('.isrlab-explorer').querySelector('.below');
  const began = performance.now();
  window.changed = new Promise((resolve, reject) => {
    new MutationObserver((_, own) => { own.disconnect(); resolve(performance.now() - began); })
      .observe(tree, {childList: true, subtree: true});
    setTimeout(() => reject(new Error('nothing was drawn')), 20000);
  });
  button.click();
}
"""


@pytest.fixture(scope="module")
def chromium():
    """The system's Chromium, with an empty profile, that can reach this machine only."""
    playwright = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")
    path = next(filter(None, map(shutil.which, BROWSERS)), None)
    if not path:
        pytest.skip("no Chromium on the path: on Debian 'apt-get install chromium'")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture
def browser(chromium, request):
    """A new profile; with the parameter False, one that runs no scripts."""
    context = chromium.new_context(java_script_enabled=getattr(request, "param", True))
    context.route("**/*", only_this_machine)
    yield context
    context.close()


def only_this_machine(route) -> None:
    is_here = route.request.url.startswith(("http://127.0.0.1:", "file://", "data:", "blob:"))
    route.continue_() if is_here else route.abort()


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the notebooks, and two small ones, beside the data; and JupyterLab's settings."""
    project = tmp_path_factory.mktemp("project")
    shutil.copytree(TUTORIAL.parent, project / "notebooks")
    whole = json.loads(TUTORIAL.read_text())  # the fifth cell makes its first player
    open_explorer = [whole["cells"][1] | {"source": OPEN}]
    for name, some in {"explore": open_explorer, "player": whole["cells"][:5]}.items():
        (project / "notebooks" / f"{name}.ipynb").write_text(json.dumps(whole | {"cells": some}))
    (project / "data").symlink_to(ROOT / "data")
    (project / SETTINGS).mkdir(parents=True)
    (project / SETTINGS / "default_setting_overrides.json").write_text(json.dumps(LAB_SETTINGS))
    return project


@pytest.fixture(scope="module")
def lab(project):
    """JupyterLab on the project: its address for `goto`."""
    private = {"JUPYTER_CONFIG_DIR": "config", "JUPYTER_DATA_DIR": "own", "IPYTHONDIR": "ipython"}
    port, token = free_port(), secrets.token_hex(16)
    server = subprocess.Popen(
        [
            *(sys.executable, "-m", "jupyterlab", "--no-browser", "--allow-root"),
            *("--ip=127.0.0.1", f"--port={port}", f"--IdentityProvider.token={token}"),
            "--ServerApp.jpserver_extensions=isrlab.report.notebooks=True",
            *("--LabApp.expose_app_in_browser=True", "--LabApp.news_url=None"),
            f"--ServerApp.root_dir={project / 'notebooks'}",
        ],
        env={**os.environ, **{k: str(project / v) for k, v in private.items()}},
        stdout=subprocess.DEVNULL,
        stderr=(project / "lab.log").open("w"),
    )
    try:
        wait_until_up(f"http://127.0.0.1:{port}/api?token={token}", server, project / "lab.log")
        yield f"http://127.0.0.1:{port}/lab?token={token}&reset"
    finally:
        server.terminate()  # it first asks its kernels to stop, which a busy one may not hear
        try:
            server.wait(timeout=10)
        except subprocess.TimeoutExpired:
            server.kill()
            server.wait()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def wait_until_up(url: str, server: subprocess.Popen, log: Path) -> None:
    for _ in range(300):
        assert server.poll() is None, log.read_text()
        with suppress(OSError):
            return urllib.request.urlopen(url, timeout=5).close()
        time.sleep(0.2)
    raise AssertionError(f"JupyterLab did not start:\n{log.read_text()}")


def value_of(slider) -> str:
    return slider.get_attribute("aria-valuenow") or slider.get_attribute("aria-valuetext")


@pytest.fixture(scope="module")
def page(chromium, lab):
    """JupyterLab, which takes seconds to load; tests open their notebooks in it."""
    return opened(chromium, lab)


def opened(chromium, address):
    page = chromium.new_page()  # with a profile of its own
    page.route("**/*", only_this_machine)
    page.set_default_timeout(60_000)
    page.goto(address)
    return page


def show(page, path) -> None:
    page.wait_for_function("window.jupyterapp")
    page.evaluate(COMMAND, ["docmanager:open", {"path": path}])
    page.wait_for_function(f"{PANEL}?.context?.path === '{path}'")


def run_all(page) -> None:
    page.evaluate(f"{PANEL}.context.ready.then(() => {PANEL}.sessionContext.ready)")
    page.evaluate(COMMAND, ["notebook:run-all-cells", {}])


def test_a_tutorial_is_opened_run_moved_and_opened_again_without_its_kernel(page, lab, capsys):
    show(page, TUTORIAL.name)
    player = page.locator(".jp-OutputArea .player").first
    player.scroll_into_view_if_needed()
    assert player.locator("img").first.evaluate("image => image.naturalWidth") > 300
    assert player.locator("input[type=range]").first.is_visible(), "its script runs: it is trusted"

    run_all(page)
    slider = page.locator(".jp-OutputArea [role=slider]").first
    slider.wait_for()
    slider.scroll_into_view_if_needed()
    times_ms = []
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "ArrowLeft"):
        before = value_of(slider)
        slider.focus()
        slider.evaluate(MEASURE)
        page.keyboard.press(key)
        times_ms.append(page.evaluate("window.changed"))
        assert value_of(slider) != before
    with capsys.disabled():
        print("\nfrom key to picture", ", ".join(f"{ms:.0f}" for ms in times_ms), "ms")

    page.evaluate(COMMAND, ["docmanager:save", {}])
    page.evaluate(f"{PANEL}.sessionContext.shutdown()")
    page.goto(lab)
    show(page, TUTORIAL.name)
    page.locator(".jp-OutputArea .player input[type=range]").first.wait_for()
    assert not page.get_by_text("Loading widget").count()


LOSING = (
    *("produce 1 acks=1", "stabilize", "advance 600ms", "produce 1 acks=1", "stabilize", "kill 2"),
    *("hard_bounce controller", "start 2", "deliver controller>2 any", "kill 1", "elect"),
    "stabilize",
)
OPEN = """
from isrlab_book.explorer.explorer import Explorer
Explorer("partition replicas=1,2 min.insync.replicas=1", ("0.10.2", "0.11"))
"""


def test_a_losing_schedule_is_played_by_clicks_and_by_keys(page, capsys):
    show(page, "explore.ipynb")
    run_all(page)
    explorer = page.locator(".isrlab-explorer")
    explorer.wait_for()
    times_ms = []
    for line in LOSING:  # by clicks
        button = explorer.locator(f'.actions [data-line="{line}"]').first
        button.evaluate(CLICK)
        times_ms.append(page.evaluate("window.changed"))
    lost = "✗ committed_records_survive"
    assert lost in explorer.locator(".tree [aria-current]").inner_text()
    explorer.get_by_text("First difference: stabilize").wait_for()
    assert "0.11-1.0: safe" in explorer.locator(".panel").nth(1).inner_text()
    explorer.locator(".cells li", has_text="lost").first.wait_for()
    assert "is broken" in explorer.get_by_role("status").text_content()
    text = explorer.get_by_label("the run as a scenario").input_value()
    assert scenario.play(text).outcome.word == "lost"

    focused = "document.activeElement.dataset.line || document.activeElement.dataset.key"
    explorer.locator(".tree button").first.focus()  # by keys, from the start
    page.keyboard.press("Enter")
    explorer.get_by_text("the start").and_(page.locator("[aria-current]")).wait_for()
    explorer.locator(".actions button").first.focus()
    for nth, line in enumerate([*LOSING[:-1], "advance 100ms"], 1):
        for _ in range(80):
            if page.evaluate(focused) == line:
                break
            page.keyboard.press("ArrowDown")
        page.keyboard.press("Enter")
        page.wait_for_function(f"document.querySelectorAll('.tree .path').length === {nth + 1}")
    assert lost in explorer.locator(".tree [aria-current]").inner_text()
    page.keyboard.press("Backspace")
    page.wait_for_function(f"document.querySelectorAll('.tree .path').length === {len(LOSING)}")
    page.keyboard.press("/")
    page.keyboard.type('produce 2 "<img src=x onerror=window.ran=1>"')
    page.keyboard.press("Enter")
    explorer.get_by_text("onerror").first.wait_for()
    assert page.evaluate("window.ran") is None
    if "EXPLORER_PNG" in os.environ:
        explorer.screenshot(path=os.environ["EXPLORER_PNG"])
    with capsys.disabled():
        print("\nfrom click to picture", ", ".join(f"{ms:.0f}" for ms in times_ms), "ms")


def test_without_the_widgets_extension_a_player_moves(chromium, lab, project):
    off = {"disabledExtensions": {"@jupyter-widgets/jupyterlab-manager": True}}
    (project / SETTINGS / "page_config.json").write_text(json.dumps(off))
    page = opened(chromium, lab)
    (project / SETTINGS / "page_config.json").unlink()
    show(page, "player.ipynb")
    run_all(page)
    slider = page.locator(".jp-OutputArea .player input[type=range]").first
    before = value_of(slider)
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert value_of(slider) != before
    shown = " ".join(page.locator(".jp-OutputArea-output").all_inner_texts())
    assert "LiveFigure(" not in shown and "rror displaying" not in shown


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    """The folder of a report that has one small run."""
    out = tmp_path_factory.mktemp("report")
    command = [sys.executable, "-m", "isrlab", "report", "01", "--out", str(out)]
    subprocess.run([*command, "--notebooks", str(SMALL)], capture_output=True, check=True)
    return out


def test_reports_open_without_any_request(browser, report):
    page = browser.new_page()
    requested, complaints = [], []
    page.on("request", lambda request: requested.append(request.url.partition(":")[0]))
    page.on("console", lambda message: complaints.append(message.text))
    page.goto((report / "index.html").as_uri())
    page.get_by_role("link", name="A small run that works").click()
    page.wait_for_url("**/runs/01_works.html")
    pictures = page.locator("img")
    assert pictures.count() >= 1
    assert pictures.evaluate_all("all => all.every(e => e.complete && e.naturalWidth > 0)")
    assert set(requested) <= {"file", "data"}
    assert complaints == []


def test_a_key_moves_the_picture_of_a_page(browser, report):
    page = browser.new_page()
    page.goto((report / "runs" / "01_works.html").as_uri())
    slider, picture = page.get_by_role("slider", name="lag (ms)"), page.locator(".player img")
    slider.focus()
    before = picture.get_attribute("src")
    page.keyboard.press("ArrowRight")
    assert picture.get_attribute("src") != before
    assert slider.get_attribute("aria-valuetext") == "200"
    assert page.get_by_role("status").text_content() == "lag (ms) 200"


@pytest.mark.parametrize("browser", [False], indirect=True)
def test_without_scripts_a_page_shows_the_last_picture_and_a_list_with_the_others(browser, report):
    page = browser.new_page()
    page.goto((report / "runs" / "01_works.html").as_uri())
    player = page.locator(".player")
    assert player.get_by_text("lag (ms) 300").is_visible()
    assert not player.get_by_text("lag (ms) 100").is_visible()
    player.get_by_text("2 more").click()
    assert player.get_by_text("lag (ms) 100").is_visible()


def test_a_page_runs_no_other_script(browser, report):
    text = (report / "runs" / "01_works.html").read_text(encoding="utf-8")
    hostile = '<img src="data:," onerror="window.ran = 1"><script>window.ran = 2</script>'
    (report / "hostile.html").write_text(text.replace("<main>", f"<main>{hostile}"))
    page = browser.new_page()
    page.goto((report / "hostile.html").as_uri())
    page.get_by_role("slider").wait_for()
    assert page.evaluate("window.ran") is None
