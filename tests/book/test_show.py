"""Pictures by concept: they draw what happened in the run, and fit on a page."""

from __future__ import annotations

import re
from base64 import b64decode
from xml.etree import ElementTree

import nbformat
import numpy as np
import pytest
from IPython.core.formatters import DisplayFormatter
from matplotlib.colors import to_hex, to_rgba
from matplotlib.text import Text

from isrlab.engine.versions import PRESETS
from isrlab.events import exact
from isrlab.report import gallery
from isrlab.show import bands, curves, matrix, messages, offsets, replicas, style, svg
from isrlab.world import scenario, words
from isrlab.world.words import START_MS
from isrlab_book.workbook import leaving_the_isr

LONG = "A finding that says very much about " + ", ".join(f"record m{n}" for n in range(60))


def play(name, version=None):
    return scenario.play(scenario.read(name), version=version)


def pixels(ax):
    """The width of the stored picture, which also covers marks outside the figure."""
    figure = ax.get_figure(root=True)
    figure.canvas.draw()
    box = figure.get_tightbbox(figure.canvas.get_renderer())
    return max(box.width, figure.get_figwidth()) * figure.dpi


def bars(ax):
    """(left, width, row, colour) of every bar, rounded."""
    return {
        (round(p.get_x(), 3), round(p.get_width(), 3), round(p.get_y() + p.get_height() / 2),
         p.get_facecolor())
        for p in ax.patches if p.get_width()
    }  # fmt: skip


# Offsets and lag clocks


@pytest.mark.parametrize("name", ["leave_and_return", "flapping", "catching_up"])
def test_plotted_offsets_are_those_of_the_run(name):
    run = play(name)
    ax = offsets.plot_offsets(offsets.offsets_of(run))
    drawn = {line.get_label(): line for line in ax.lines}
    logs = [(f.now_ms, f.disks[1]) for f in run.frames[run.first_frame :]]
    times = [(ms - START_MS) / 1000 for ms, _ in logs]
    for label, values in {
        "LEO of 1 (leader)": [log.log_end_offset for _, log in logs],
        "high watermark": [log.high_watermark for _, log in logs],
    }.items():
        x, y = drawn[label].get_data()
        np.testing.assert_array_equal(x[:-1], times)
        np.testing.assert_array_equal(y[:-1], values)
        assert (x[-1], y[-1]) == ((run.cluster.now_ms - START_MS) / 1000, values[-1])


def test_the_clock_of_a_follower_that_hangs_is_a_saw_tooth():
    runs = {"3.7 $": play("saw_tooth"), "idle": play("idle_topic")}
    seen, longer = map(offsets.offsets_of, runs.values())
    times, ages = leaving_the_isr.clock_ages(seen)
    assert ages.max() == 8.0
    assert (np.diff(times) >= 0).all()
    figure = leaving_the_isr.plot_clocks(runs)
    ax, other = figure.axes
    np.testing.assert_array_equal(ax.lines[0].get_ydata(), ages)
    limits_ms = [run.cluster.settings.replica_lag_time_max_ms for run in runs.values()]
    assert [1000 * each.lines[1].get_ydata()[0] for each in (ax, other)] == limits_ms
    assert ax.get_xlim()[1] == other.get_xlim()[1] == longer.times_s[-1]
    assert ax.get_title(loc="left") == r"3.7 \$"  # escaped, and only once
    assert figure.get_suptitle().endswith(r"stays in the ISR in 3.7 \$")


def test_who_left_and_who_joined():
    for name, finding in {
        "leave_and_return": "Replica 3 leaves at 45 s, replica 3 joins at 61 s",
        "flapping": "Replica 2 leaves at 15 s; then the ISR changes 18 more times",
        "saw_tooth": "No replica leaves the ISR",
    }.items():
        assert offsets.isr_finding(offsets.isr_of(play(name))) == finding


# Bands


@pytest.mark.parametrize("name", ["leave_and_return", "flapping"])
def test_bands_are_the_spans_of_the_events(name):
    run = play(name)
    (spans,) = exact.isr_spans(run.events(), end_ms=run.cluster.now_ms).values()
    ax = bands.plot_bands(bands.isr_rows(offsets.isr_of(run), run.cluster.replicas), "")
    for row, replica in enumerate(run.cluster.replicas):
        inside = sum(s.end_ms - s.start_ms for s in spans if replica in s.isr) / 1000
        drawn = [width for _, width, y, _ in bars(ax) if y == row]
        assert sum(drawn) == pytest.approx(inside)
        thin = [line.get_data() for line in ax.lines if len(line.get_xdata())]
        outside = sum(x[1] - x[0] for x, y in thin if y[0] == row)
        assert inside + outside == pytest.approx((run.cluster.now_ms - START_MS) / 1000)


def test_neighbouring_spans_are_joined_where_only_others_come_and_go():
    (row,) = bands.isr_rows(offsets.isr_of(play("flapping")), (1,)).values()
    assert row == [bands.Span(0.0, 60.0, "broker 1")]


def test_a_state_and_a_broker_have_their_colours():
    rows = {"a": [bands.Span(0, 1, "stale"), bands.Span(1, 2, "broker 3")]}
    colours = {to_hex(colour) for *_, colour in bars(bands.plot_bands(rows, ""))}
    assert colours == {style.STATES["stale"].lower(), style.broker_colour(3).lower()}


# Messages


def shapes(drawing, name):
    """The elements of a picture with this name."""
    return list(ElementTree.fromstring(str(drawing)).iter(f"{{http://www.w3.org/2000/svg}}{name}"))


def texts(drawing):
    return [text.text for text in shapes(drawing, "text")]


def hatched(drawing):
    return [box for box in shapes(drawing, "rect") if box.get("fill").startswith("url(#open")]


def records(drawing):
    """The boxes of records, hatched or not."""
    return hatched(drawing) + [box for box in shapes(drawing, "rect") if box.get("fill-opacity")]


def test_an_arrow_for_each_message_with_its_news():
    arrows = [
        messages.Arrow(1, 2, "there", news="LEO 0 → 1"),
        messages.Arrow(2, 1, "back", was_lost=True),
    ]
    drawing = messages.draw_arrows(arrows, "two messages")
    assert {"1", "2", "there", "LEO 0 → 1", "back  LOST"} <= {*texts(drawing)}
    heads = [head.get("points").split()[0].split(",")[0] for head in shapes(drawing, "polygon")]
    lanes = [text.get("x") for text in shapes(drawing, "text") if text.text in ("1", "2")]
    for head, lane in zip(heads, lanes[::-1], strict=True):
        assert abs(float(head) - float(lane)) < 2
    assert [head.get("fill") for head in shapes(drawing, "polygon")][1] == style.LOST


def test_messages_of_a_run_are_drawn_in_order_and_rounds_of_nothing_are_left_out():
    run = play("sync_cycle")
    drawing = messages.draw_messages(run, first=1)
    words_of = [text.split()[0] for text in texts(drawing)]
    kinds = [text for text in words_of if text in ("Produce", "Fetch", "FetchResponse")]
    assert kinds == ["Produce", "FetchResponse", "Fetch", "FetchResponse"]
    title = "The follower learns the high watermark (1) 500 ms after the leader"
    assert drawing.alt == title


@pytest.mark.parametrize(("version", "who"), [("2.5", -2), ("2.7", 0)])
def test_an_isr_change_is_written_to_zookeeper_up_to_2_6(version, who):
    run = play("fast_leader_change", version)
    arrows = [a for f in run.frames for a in messages.arrows_of(f)]
    told = ("LeaderAndIsr", "UpdateMetadata")  # sent by the controller, to all brokers
    asked = [a for a in arrows if "isr=1,2" in a.text and not a.text.startswith(told)]
    assert {min(a.source, a.target) for a in asked} == {who}
    names = {*texts(messages.draw_messages(run, first=3))}
    assert ("ZooKeeper" in names) == (who == messages.ZOOKEEPER)
    assert any("AlterPartition" in name for name in names) == (who == 0)


# Replicas


def test_a_replica_without_the_records_does_not_have_them():
    out = replicas.story_finding(play("three_replicas"))
    assert out.endswith("read 8 of 8 records; replica 103 does not have them all yet")
    run = play("sync_cycle")
    late = replicas.finding(run.frames[run.blocks[3].frames[1] - 1])
    assert late == "Consumers can read 1 of 1 record; replica 2 does not know that yet"


def test_a_committed_record_above_a_new_leaders_high_watermark_is_named():
    run = scenario.play(scenario.read("loss_three_replicas").split("kill 2")[0])
    finding = replicas.story_finding(run)
    assert finding == (
        "At the end consumers can read 1 of 2 records; m2, committed before, is above the new "
        "leader's high watermark"
    )


def test_a_story_marks_what_changed_and_leaves_out_what_did_not():
    run = play("loss_as_told")
    before, after = (run.frames[block.frames[1] - 1] for block in run.blocks[:2])
    assert len(records(replicas.draw_replicas(before))) == 2
    drawing = replicas.draw_replicas(after, before=before)
    crossed = [line for line in shapes(drawing, "line") if line.get("stroke") == style.LOST]
    assert len(crossed) == 2  # m1 of the follower
    assert len(shapes(drawing, "polygon")) == 1 + 1  # its log end offset, and what is known of it
    run = scenario.play(
        "partition\n----\n\nproduce 1\n----\n\n# Why?\ncheck\n----\n\nstatus\n----\n"
    )
    assert replicas.draw_story(run).alt.endswith(". 2. Record m1 waits to be acknowledged. Why?")


@pytest.mark.parametrize(("version", "drawn"), [("0.10.2", False), ("2.5", True)])
def test_epochs_are_drawn_once_there_are_several(version, drawn):
    run = play("divergence_power_loss", version)
    shown = texts(replicas.draw_replicas(run.frames[-1]))
    assert ("e2" in shown) == drawn
    assert any("epochs (0,0) (2,1)" in text for text in shown) == drawn
    assert not replicas.has_several_epochs(run.frames[run.first_frame])
    forced = replicas.draw_replicas(run.frames[run.blocks[0].frames[1] - 1], epochs=True)
    assert "e0" in texts(forced)


def test_a_box_for_each_record_and_lines_where_logs_end():
    drawing = replicas.draw_replicas(play("three_replicas").at("m6 and m7"))
    assert (len(records(drawing)), len(hatched(drawing))) == (7 + 6 + 5, 2 + 1)
    assert [w for w in texts(drawing) if w.startswith(("LEO", "HW"))] == [
        "LEO 7", "HW 5", "LEO 6", "HW 5", "LEO 5", "HW 5",
    ]  # fmt: skip


def test_a_committed_record_of_a_dead_broker_is_not_hatched():
    run = play("loss_as_told", "0.10.2")
    frame = next(f for f in run.frames if 1 not in f.brokers and f.disks[1].log_end_offset)
    assert frame.disks[1].checkpointed_high_watermark == 0, "it was committed after the last write"
    assert hatched(replicas.draw_replicas(frame)) == []


def test_another_record_than_the_leaders_is_outlined():
    run = play("divergence_power_loss", "0.10.2")
    drawing = replicas.draw_replicas(run.frames[-1])
    assert sum(box.get("stroke") == style.LOST for box in records(drawing)) == 1


# On a page


CELLS = {v.name: "diverged" for v in PRESETS.values()}
NOTES = {"a" * 200: "19 ISR changes, 616.0 s out"}
PICTURES = {
    "matrix": lambda: matrix.plot_matrix(
        {f"a long name {n} (KAFKA-1546)": CELLS for n in "ab"}, LONG
    ),
    "bands": lambda: bands.plot_bands({"a" * 200: [bands.Span(0, 1, "stale")]}, LONG, notes=NOTES),
    "ticks": lambda: curves.plot_ticks({"2.4": {"": [1, 2]}}, LONG, curves.Scale("s")),
    "offsets": lambda: offsets.plot_offsets(offsets.offsets_of(play("leave_and_return")), LONG),
}


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_under_a_long_title_fits_on_a_page(name):
    """Its smallest text also has at least 8 points."""
    ax = PICTURES[name]()
    assert pixels(ax) <= 100 * style.WIDTH + 40
    texts = [text for text in ax.get_figure(root=True).findobj(Text) if text.get_text()]
    assert min(text.get_fontsize() for text in texts) >= 8


DRAWN = {
    "arrows": lambda: messages.draw_arrows([messages.Arrow(1, 2, "x")], LONG),
    "replicas": lambda: replicas.draw_replicas(play("three_replicas").frames[-1], title=LONG),
    "story": lambda: replicas.draw_story(play("three_replicas")),
    "thousands": lambda: replicas.draw_story(play("real_offsets", "2.7")),
}


@pytest.mark.parametrize("name", DRAWN)
def test_a_drawing_fits_on_a_page_and_its_text_into_it(name):
    drawing = DRAWN[name]()
    assert drawing.width <= svg.WIDTH
    for text in shapes(drawing, "text"):
        share = {"start": 1, "middle": 0.5, "end": 0}[text.get("text-anchor")]
        end = float(text.get("x")) + share * svg.LETTER * len(text.text)
        assert end <= drawing.width + 20, text.text


def test_a_picture_is_stored_with_its_titles_and_a_page_shows_them():
    title = '"<b> for $5 → \\'
    drawing = replicas.draw_replicas(play("three_replicas").frames[-1], title=title)
    picture, about = DisplayFormatter().format(drawing)
    assert about == {"image/svg+xml": {"alt": title}} and picture["text/plain"] == title
    assert "<b>" not in picture["image/svg+xml"]
    page = page_with(picture, about)
    assert """<img alt='"&lt;b&gt; for $5 → \\' src="data:image/svg+xml;base64,""" in page


def page_with(picture, about):
    output = nbformat.v4.new_output("display_data", picture, metadata=about)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell("", outputs=[output])])
    return gallery.page(gallery.RunRecord("a", "a", "a", {}, [], {}, None, None, ""), notebook)


def test_panels_are_told_by_the_finding_and_their_captions_and_wrap_on_a_page():
    run = play("loss_as_told")
    captions = [f"{n}. {words.caption(run, b)}" for n, b in enumerate(run.blocks, start=1)]
    drawing = replicas.draw_story(run)
    assert drawing.alt == " ".join(["m1 was committed, and is lost.", *captions])
    page = page_with(*DisplayFormatter().format(drawing))
    assert page.count('src="data:image/svg+xml') == len(captions)
    assert "<figcaption>m1 was committed, and is lost</figcaption>" in page
    for coded in re.findall(r"svg\+xml;base64,([^\"]*)", page):
        panel = ElementTree.fromstring(b64decode(coded))
        assert float(panel.get("width")) <= svg.PANEL


def test_a_loss_of_thousands_of_records_names_five():
    finding = replicas.story_finding(play("real_offsets", "2.7"))
    assert finding.startswith("m603, m604, m605, m606, m607 and 2,223 more were committed,")


def test_rows_of_ticks_without_groups_have_the_looks_of_their_versions():
    ax = curves.plot_ticks({"2.4": {"": [1]}, "0.8.2": {"": [2]}}, "", curves.Scale("s"))
    looks = style.version_look("2.4"), style.version_look("0.8.2")
    assert [line.get_color() for line in ax.lines] == [colour for colour, _ in looks]


def test_versions_are_told_apart_by_colour_alone_and_neighbours_by_lightness():
    colours = [style.version_look(version)[0] for version in PRESETS.values()]
    assert len({*colours}) == len(PRESETS)
    lightness = np.array([to_rgba(colour)[:3] for colour in colours]) @ (0.3, 0.6, 0.1)
    assert np.abs(np.diff(lightness)).min() > 0.1


@pytest.mark.parametrize(
    ("ms", "text"),
    [(340, "340 ms"), (12_400, "12.4 s"), (59_600, "1 min"), (61_990, "1 min 2 s"),
     (7_800_000, "2 h 10 min"), (273_600_000, "3 d 4 h")],
)  # fmt: skip
def test_a_duration_is_rounded_not_cut(ms, text):
    assert style.duration(ms) == text


def seen_without_green_cones(colour):
    """The colours of a deuteranope. Source: Machado, Oliveira and Fernandes 2009, severity 1."""
    matrix = ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969))
    return np.clip(np.array(matrix) @ to_rgba(colour)[:3], 0, 1)


@pytest.mark.parametrize("brokers", [(1, 2, 3, 4, 5), (101, 102, 103)])
def test_brokers_are_told_apart_and_none_looks_lost(brokers):
    colours = [*map(style.broker_colour, brokers), style.LOST]
    for see in (lambda colour: np.array(to_rgba(colour)[:3]), seen_without_green_cones):
        shades = np.array([see(colour) for colour in colours])
        apart = np.linalg.norm(shades[:, None] - shades[None], axis=-1)
        assert apart[np.triu_indices(len(colours), 1)].min() > 0.2


def test_each_concept_has_colours_of_its_own():
    brokers = {style.broker_colour(n) for n in range(1, 6)}
    states = {*style.STATES.values()} - {style.LOST, style.GREY}
    versions = {style.version_look(version)[0] for version in PRESETS.values()}
    families = [brokers, states, versions, {*style.SERIES}, {style.LOST}]
    assert len(set().union(*families)) == sum(map(len, families))
