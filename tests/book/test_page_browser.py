"""The page in a real browser: played, sent as a link, without a network, and with hostile input."""

from __future__ import annotations

import functools
import gzip
import json
import os
import re
import statistics
import threading
import time
import zipfile
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import pytest
from test_browser import ROOT, chromium, only_this_machine  # noqa: F401
from test_browser_python import repeated

from isrlab.world import scenario
from isrlab_book.explorer import link
from isrlab_book.page.build import PLAY, PageError, build

MARKUP = '<img src=x onerror="window.ran=1"><script>window.ran=1</script>'
WAIT_MS = 180_000  # the machine may be busy
LOSING = ("kill 1", "elect", "kill 2", "elect", "stabilize")
# One fault after another.
ACTIONS = """\
produce 1 acks=all; stabilize; kill 2; advance 10s; start 2; pause 3; resume 3
cut 1 2; power_loss 3; start 3; reassign 1,2; elect preferred"""
# Takes a step, and resolves to the ms until it is drawn and the browser is idle again.
ACT = """
line => new Promise((resolve, reject) => {
  const button = document.querySelector(`.actions [data-line="${line}"]`);
  const field = document.querySelector('.line');
  const steps = () => document.querySelectorAll('.tree .path').length;
  const before = steps(), began = performance.now();
  new MutationObserver((_, own) => {
    if (steps() === before) return;  // something else was drawn, such as the table of releases
    own.disconnect();
    requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - began)));
  }).observe(document.querySelector('.below'), {childList: true, subtree: true});
  setTimeout(() => reject(new Error('nothing was drawn')), 20000);
  if (button) return button.click();
  field.value = line;
  field.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
})
"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


class Site:
    """A static server of a folder, which a test can shut down."""

    def __init__(self, folder):
        handler = functools.partial(Quiet, directory=str(folder))
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}/{PLAY}/"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()


@pytest.fixture(scope="module")
def page_folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("site")
    try:
        build(out / PLAY)
    except PageError as error:
        pytest.skip(f"the page cannot be built here: {error}")
    return out


@pytest.fixture
def site(page_folder):
    site = Site(page_folder)
    yield site
    site.close()


@pytest.fixture(scope="module")
def profile(chromium, page_folder):  # noqa: F811
    """A profile with one page that stays open: others share its compiled Python.

    It serves tests for which a ready page is enough. Each other test has a site with a port of its
    own, for which the browser has stored nothing.
    """
    context, site = chromium.new_context(viewport={"width": 1200, "height": 900}), Site(page_folder)
    context.route("**/*", only_this_machine)
    context.set_default_timeout(WAIT_MS)
    page = context.new_page()
    page.emulate_media(reduced_motion="reduce")
    page.goto(site.address)
    ready(page)
    yield context
    context.close()
    site.close()


@pytest.fixture
def context(profile):
    yield profile
    assert profile.cookies() == []
    for page in profile.pages[1:]:
        page.close()


def opened(context, address, complaints=None):
    page, heard = context.new_page(), [] if complaints is None else complaints
    page.on("console", lambda message: heard.append(message.text))
    page.on("pageerror", lambda error: heard.append(str(error)))
    page.goto(address)
    return page


def ready(page):
    page.wait_for_selector("html[data-state=done]", timeout=WAIT_MS)


def typed(page, line):
    page.evaluate("document.documentElement.dataset.state = 'typing'")
    page.get_by_label("the next step as a line of the scenario").fill(line)
    page.keyboard.press("Enter")
    page.wait_for_selector("html[data-state=answered], html[data-state=done]")


def test_a_loss_is_found_by_keys_sent_as_a_link_and_opened_without_a_network(context, site):
    page = opened(context, site.address, complaints := [])
    ready(page)
    assert page.evaluate("document.querySelector('.panel svg').clientWidth") > 200
    page.locator("#challenge").focus()
    page.locator("#challenge").select_option("lose_m2")
    page.get_by_role("heading", name="lose m2").wait_for()
    page.keyboard.press("/")
    for line in LOSING:
        typed(page, line)
    page.get_by_text("Solved. 5 commands").wait_for()
    page.get_by_role("button", name="Copy a link").focus()
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("#s"))  # the clipboard comes first
    address = page.evaluate("location.href")
    assert len(address.split("#")[1]) <= 300
    page.wait_for_timeout(2_000)
    assert page.evaluate("navigator.serviceWorker.ready.then(() => true)")
    site.close()
    offline = opened(context, address, complaints)
    ready(offline)
    assert "✗ committed_records_survive" in offline.locator(".tree [aria-current]").inner_text()
    assert complaints == []


def by_keys(page, selector):
    """Press Tab until an element has the focus, as a reader without a mouse does."""
    for _ in range(400):
        if page.evaluate("selector => document.activeElement.matches(selector)", selector):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not reach {selector}")


def heard(page):
    """The (role, name) of each part that a screen reader gets."""
    nodes = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")["nodes"]
    shown = [node for node in nodes if not node["ignored"]]
    names = [(each["role"]["value"], each.get("name", {}).get("value", "")) for each in shown]
    return [(role, " ".join(name.split())) for role, name in names]


def test_an_articles_loss_is_played_by_keys_alone_and_heard(context, site, page_folder):
    page = opened(context, site.address)
    ready(page)
    by_keys(page, "textarea")
    page.keyboard.press("Control+A")
    told = link.read(link.fragment(scenario.read("loss_as_told")))
    page.keyboard.insert_text(told.text)
    page.evaluate("document.documentElement.dataset.state = 'typing'")
    page.keyboard.press("Shift+Tab")  # copy
    page.keyboard.press("Shift+Tab")
    page.keyboard.press("Enter")
    ready(page)
    assert "✗ committed_records_survive" in page.locator(".tree").inner_text()
    parts, announced = heard(page), page.locator(".announced").text_content()
    controls = {"button", "combobox", "textbox", "spinbutton", "image", "progressbar", "group"}
    assert [part for part in parts if part[0] in controls and not part[1].strip()] == []
    assert len([name for role, name in parts if role == "button"]) > 20
    pictures = [name for role, name in parts if role == "image"]
    assert any("leo=" in name for name in pictures)
    assert announced and ("StaticText", " ".join(announced.split())) in parts
    by_keys(page, "#copy")
    page.keyboard.press("Enter")
    address = page.evaluate("location.href")
    elsewhere = Site(page_folder)  # for which nothing is stored
    other = opened(context, address.replace(site.address, elsewhere.address))
    ready(other)
    assert "✗ committed_records_survive" in other.locator(".tree").inner_text()
    assert other.locator(".tree").inner_text() == page.locator(".tree").inner_text()
    elsewhere.close()


def test_the_editor_explains_the_option_at_the_cursor(context):
    page = context.pages[0]
    by_keys(page, ".line")
    page.keyboard.type("produce 1 ac")
    assert page.locator("#words li").all_inner_texts() == ["acks="]
    page.keyboard.press("Control+Space")
    assert "once the whole ISR has them" in page.locator("#explained").inner_text()
    page.keyboard.press("Enter")
    page.keyboard.type("all count")
    assert page.get_by_label("the next step as a line").input_value() == "produce 1 acks=all count"
    assert "A client writes a record" in page.locator("#explained").inner_text()


def test_a_recorded_incident_is_opened_by_a_link(context, site):
    page = opened(context, f"{site.address}#i.282-link-cut")
    page.locator("#answer:not([hidden])").wait_for()
    assert "282-link-cut.zip" in page.locator("#answer").inner_text()
    page.evaluate("location.hash = 'i.of-nobody'")
    page.get_by_text("There is no recording with this name").wait_for()
    page.evaluate("location.hash = 'logs'")
    ready(page)
    assert page.locator(".isrlab-explorer .bad").first.inner_text() == ""


def test_the_picture_of_a_step_comes_soon_after_it(context, site, capsys):
    page = opened(context, site.address)
    ready(page)
    times_ms, versions = [], page.locator(".panel").count()
    for line in re.split("; |\n", ACTIONS):
        times_ms.append(page.evaluate(ACT, line))
        assert line in page.locator(".tree [aria-current]").inner_text()
        page.wait_for_timeout(300)
    ms = "name => (e => e.startTime + e.duration)(performance.getEntriesByName(name)[0])"
    first = [context.pages[0].evaluate(ms, name) / 1_000 for name in ("picture", "python")]
    with capsys.disabled():
        print(f"\nfirst picture {first[0]:.1f} s, Python {first[1]:.1f} s")
        print(f"from choice to picture, {len(times_ms)} steps in {versions} versions:",
              f"median {statistics.median(times_ms):.0f} ms,",
              f"longest {max(times_ms):.0f} ms")  # fmt: skip


def test_hostile_links_and_schedules_leave_the_page_alive(context, site):
    page = opened(context, f"{site.address}#{MARKUP}")
    page.locator(".bad").get_by_text("not a link to a scenario").wait_for()
    page.evaluate("size => { location.hash = 's'.repeat(size); }", 1_900_000)
    page.get_by_role("alert").get_by_text("at most 4,000 are read").wait_for()
    ready(page)
    typed(page, f"produce p1 1 '{MARKUP}' acks=1")
    page.locator(".tree").get_by_text("onerror").first.wait_for()
    typed(page, MARKUP)
    page.locator(".bad").get_by_text("unknown command").first.wait_for()
    assert page.evaluate("window.ran") is None
    assert page.locator("body script").count() == 0
    before = page.locator(".tree button").count()
    endless = "partition\n" + "produce 1 every=1ms for=9s acks=1\n" * 300
    page.evaluate("document.documentElement.dataset.state = 'typing'")
    page.get_by_label("the run as a scenario").fill(endless)
    page.get_by_role("button", name="play this scenario").click()
    page.wait_for_timeout(500)
    page.wait_for_selector("html[data-state=asked]")  # the worker is busy, and hears nothing
    page.evaluate("void (performance.now = Date.now)")  # which is far ahead, but not in the worker
    page.get_by_text("it took longer than 15 seconds").wait_for()
    ready(page)
    typed(page, "advance 1s")
    assert page.locator(".tree button").count() > 1 < before
    assert "advance 1s" in page.locator(".tree [aria-current]").inner_text()


def test_logs_are_answered_here_and_what_is_no_log_is_refused(context, tmp_path):
    page = context.pages[0]
    described = tmp_path / "described.txt"
    described.write_text(
        "Topic: a\tPartitionCount: 1\tReplicationFactor: 2\tConfigs: min.insync.replicas=2\n"
        "\tTopic: a\tPartition: 0\tLeader: 1\tReplicas: 1,2\tIsr: 1\n"
    )
    page.locator("#files").set_input_files(described)
    page.locator("#answer:not([hidden])").wait_for()
    assert "a-0" in page.locator("#answer").inner_text()
    bomb, huge = tmp_path / "server.log", tmp_path / "huge.log"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("inside", bytes(200_000_001))
    huge.touch()
    os.truncate(huge, 200_000_001)
    for path, why in ((bomb, "unpacked files are larger"), (huge, "larger than 200 MB")):
        page.locator("#files").set_input_files(path)
        page.wait_for_selector("#stop", state="visible")
        page.wait_for_selector("#stop", state="hidden")
        assert why in page.locator("#reading").inner_text()


def test_long_logs_show_progress_can_be_stopped_and_leave_the_page_alive(context, tmp_path, capsys):
    page, long = context.pages[0], tmp_path / "server.log"
    recorded = ROOT / "data/recordings/incidents/d-392-rolling-restart/logs/broker-1"
    long.write_bytes(repeated(gzip.decompress((recorded / "server.log.gz").read_bytes()), 28))
    page.locator("#files").set_input_files(long)
    page.locator("#doing").get_by_text(re.compile(r"^reading lines, \d+ s$")).wait_for()
    begun = time.monotonic()
    page.locator("#stop").click()
    assert page.locator("#reading").inner_text() == "Stopped."
    stop_s = time.monotonic() - begun
    assert page.locator("#doing").inner_text() == ""
    typed(page, "advance 1s")
    assert "advance 1s" in page.locator(".tree [aria-current]").inner_text()
    with capsys.disabled():
        print(f"\nreading was stopped in {stop_s:.2f} s")


def test_the_page_moves_by_itself_until_it_is_touched(context, site):
    page = opened(context, site.address)
    page.get_by_text("Brokers 2 and 3 delete their copies").wait_for()
    page.get_by_text("In 4.3 it deletes both records").wait_for()
    assert "lost" in page.locator(".panel").first.inner_text()
    page.get_by_text("A record is written to partition p1").wait_for()
    page.locator(".panel").first.click()
    page.get_by_text("Step 2: advance 1s").wait_for()
    page.get_by_role("button", name="forward").click()
    page.get_by_text("Step 3: reassign p1 1").wait_for()
    assert page.locator(".actions button").count() > 20
    page.get_by_role("button", name="▶ Play").click()
    page.get_by_text("Step 5: produce p1 1 m2").wait_for()
    page.get_by_role("button", name="❚❚ Stop").click()
    heads, box = page.locator(".heads").first, page.locator(".messages").first
    box.evaluate("box => { box.style.maxHeight = '90px'; box.scrollTop = box.scrollHeight; }")
    assert abs(heads.bounding_box()["y"] - box.bounding_box()["y"]) < 3, "they stay in sight"
    assert box.evaluate("box => box.scrollTop") > 20


def test_a_page_that_is_opened_as_a_file_says_why_it_cannot_run(context, page_folder):
    page = opened(context, (page_folder / PLAY / "index.html").as_uri())
    page.get_by_text("the page was opened as a file").get_by_text("python -m http").wait_for()


def test_a_phone_shows_it_without_scrolling_sideways(context, site):
    page = context.new_page()
    page.set_viewport_size({"width": 390, "height": 800})
    page.emulate_media(color_scheme="dark", reduced_motion="reduce")
    page.goto(site.address)
    page.locator(".panel svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    end = page.locator(".panel svg").first.bounding_box()
    assert end["y"] + end["height"] < 800, "the first picture is on the first screen"
    page.wait_for_timeout(4_000)
    assert page.get_by_text("Three brokers each keep a copy").is_visible(), "it does not move"
    assert page.get_by_role("button", name="▶ Play").is_visible()
    assert page.locator(".actions").is_hidden() and page.locator("#story").is_hidden()
    if "PAGE_PNG" in os.environ:
        page.screenshot(path=os.environ["PAGE_PNG"], full_page=True)


def test_every_file_has_a_name_that_a_proxy_lets_through(page_folder):
    files = [path for path in (page_folder / PLAY).rglob("*") if path.is_file()]
    assert not [path for path in files if path.suffix == ".whl"]
    where = json.loads(next((page_folder / PLAY).glob("page-*/where.json")).read_text())
    assert (page_folder / PLAY / "page" / where["pyodide"]).resolve().is_dir()
    assert ROOT not in page_folder.parents
