"""What the reader detects about a file: zone, encoding, brokers, whether it is understood."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import subprocess
import sys
import tarfile
import zipfile

import lz4.frame
import pytest
import zstandard

from isrlab_ops.logs.incidents.look import NOT_KNOWN, look
from isrlab_ops.logs.reader import LogDirError, files, packed, read_local

STARTED = "[{}] INFO [KafkaServer id={}] started (kafka.server.KafkaServer)\n"
CLOCK = "[{}] INFO Kafka startTimeMs: {} (org.apache.kafka.common.utils.AppInfoParser)\n"
AT_MS = 1_719_820_800_000  # 2024-07-01 08:00:00 UTC
UTC, PLUS_2 = "2024-07-01 08:00:00,000", "2024-07-01 10:00:00,000"
SHRINK = (
    "[{}] INFO [Partition t-0 broker={}] Shrinking ISR from 1,2 to 1 (kafka.cluster.Partition)\n"
)

RELEASE = "[{}] INFO Kafka version: {} (org.apache.kafka.common.utils.AppInfoParser)\n"
FULL = (
    b"[2026-11-20 10:00:00,000] ERROR Error while appending records to t-0 (kafka.log.Log)\n"
    + b"java.io.IOException: No space left on device\n" * 120
)


def found(path, **options):
    """The times of the events, and the file's zone and status."""
    logs = read_local(path, **options)
    (file,) = logs.files.to_pylist()
    return logs.events["ts_ms"].to_pylist(), file["zone"], file["status"]


def test_a_log_says_its_zone(tmp_path):
    path = tmp_path / "server.log"
    path.write_text(CLOCK.format(PLUS_2, AT_MS - 5) + STARTED.format(PLUS_2, 1))
    logs = read_local(path)
    assert logs.events["ts_ms"].to_pylist() == [AT_MS, AT_MS]
    assert dict(logs.events["detail"][0].as_py())["zone_offset_ms"] == "7200000"
    (file,) = logs.files.to_pylist()
    assert (file["zone"], file["first_ms"]) == ("UTC+02:00 (startTimeMs)", AT_MS)
    assert found(path, time_zone="Europe/Berlin")[:2] == ([AT_MS] * 2, "Europe/Berlin (given)")


def test_a_zone_that_changes(tmp_path):
    """The end of summer time lies between two starts of a process."""
    later_ms = AT_MS + 150 * 24 * 3_600_000
    lines = CLOCK.format(PLUS_2, AT_MS) + STARTED.format(PLUS_2, 1)
    lines += CLOCK.format("2024-11-28 09:00:00,000", later_ms)
    (tmp_path / "server.log").write_text(lines + STARTED.format("2024-11-28 09:00:00,000", 1))
    times, zone, _ = found(tmp_path)
    assert times == [AT_MS, AT_MS, later_ms, later_ms]
    assert zone == "UTC+02:00 and UTC+01:00 (startTimeMs)"


def test_no_word_of_the_zone(tmp_path):
    (tmp_path / "server.log").write_text(STARTED.format(UTC, 1))
    assert found(tmp_path) == ([AT_MS], "UTC (assumed)", "read")


def test_the_zone_of_the_file_beside_it(tmp_path):
    (tmp_path / "server.log").write_text(CLOCK.format(PLUS_2, AT_MS))
    (tmp_path / "state-change.log").write_text(STARTED.format(PLUS_2, 1))
    logs = read_local(tmp_path)
    assert logs.events["ts_ms"].to_pylist() == [AT_MS, AT_MS]
    assert logs.files["zone"].to_pylist()[1] == "UTC+02:00 (of the files beside it)"


def test_the_zone_by_the_container(tmp_path):
    (tmp_path / "kafka.log").write_text("2024-07-01T08:00:00.001Z " + STARTED.format(PLUS_2, 1))
    assert found(tmp_path) == ([AT_MS], "UTC+02:00 (its container)", "read")


def test_brokers_of_one_stream_are_told_apart(tmp_path):
    cut = "[{}] INFO [Log partition=t-0, dir=/d] Truncating to offset 7 (kafka.log.Log)\n"
    lines = [f"kafka-{n}  | {line.format(UTC, n)}" for line in (STARTED, cut) for n in (1, 2)]
    (tmp_path / "compose.log").write_text("".join(lines))
    rows = read_local(tmp_path).events.select(["kind", "broker"]).to_pylist()
    assert [row["broker"] for row in rows if row["kind"] == "truncate"] == [1, 2]


@pytest.mark.parametrize(
    "before, why",
    [
        ("10:00:00,123 INFO ", "the stamp has no date"),
        ("Jul  1 10:00:00 kafka1 kafka[1]: INFO ", "the stamp has no year"),
        ("[data-plane-kafka-request-handler-4] INFO ", "the stamp has no time"),
    ],
)
def test_a_line_without_a_date_is_unread(tmp_path, before, why):
    lines = (SHRINK.format(UTC, 1) * 5).replace(f"[{UTC}] INFO ", before)
    (tmp_path / "server.log").write_text(lines)
    logs = read_local(tmp_path)
    assert set(logs.unread["reason"].to_pylist()) == {why}
    assert logs.files["status"].to_pylist()[0].startswith("not understood: 0 of ")


@pytest.mark.parametrize("code", ["utf-16", "utf-8-sig"])
def test_what_powershell_writes(tmp_path, code):
    (tmp_path / "server.log").write_bytes((STARTED.format(UTC, 1) * 2).encode(code))
    assert found(tmp_path)[0] == [AT_MS] * 2


def test_archives_of_all_kinds(tmp_path):
    data = STARTED.format(UTC, 1).encode()
    names = {"bz2": bz2.compress(data), "xz": lzma.compress(data)}
    names["zip"] = archive("zip", {"server.log": data})
    names |= {"zst": zstandard.compress(data), "lz4": lz4.frame.compress(data)}
    names["zst.2"] = zstandard.compress(data[:40]) + zstandard.compress(data[40:])  # two frames
    for name, content in names.items():
        folder = tmp_path / name
        folder.mkdir()
        (folder / f"server.log.{name}").write_bytes(content)
        assert found(folder) == ([AT_MS], "UTC (assumed)", "read"), name
        (folder / f"server.log.{name}").write_bytes(content[: len(content) // 2])
        assert read_local(folder).files["status"].to_pylist()[0].startswith(("broken", "damaged"))


@pytest.mark.parametrize("name", ["bundle.tar", "bundle.tgz", "bundle.tar.zst", "bundle.zip"])
def test_the_files_of_an_archive_are_files(tmp_path, name):
    lines, folder = STARTED.format(UTC, 1).encode(), tmp_path / "logs"
    other = gzip.compress(STARTED.format(UTC, 2).encode())
    own = {"b-1/server.log": lines, "b-2/server.log.1.gz": other}
    own["b-2/data/photo.jpg"] = b"\xff\xd8"
    content = archive(name, own)
    folder.mkdir()
    (folder / name).write_bytes(content)
    logs = read_local(folder)
    assert {row["file"]: row["status"].partition(":")[0] for row in logs.files.to_pylist()} == {
        f"{name}/b-1/server.log": "read",
        f"{name}/b-2/server.log.1.gz": "read",
        f"{name}/b-2/data/photo.jpg": "skipped",
    }
    assert sorted(logs.events["broker"].to_pylist()) == [1, 2]
    for end in range(600, len(content), max(1, len(content) // 7)):
        (folder / name).write_bytes(content[:end])
        rest = read_local(folder)
        assert set(rest.events["broker"].to_pylist()) <= {1, 2}
        statuses = rest.files["status"].to_pylist()
        is_whole = name == "bundle.tar" and not content[end:].strip(b"\0")  # its padding is left
        assert is_whole or any(status.startswith("broken off") for status in statuses)


def archive(name, files):
    """Files packed, by the name of their archive."""
    buffer = io.BytesIO()
    if name.endswith("zip"):
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
            for inner, data in files.items():
                zipped.writestr(inner, data)
        return buffer.getvalue()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for inner, data in files.items():
            entry = tarfile.TarInfo(inner)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    pack = {"tgz": gzip.compress, "zst": zstandard.compress}.get(name.rpartition(".")[2], bytes)
    return pack(buffer.getvalue())


def test_names_in_an_archive_lead_nowhere(tmp_path):
    hostile = ["../../../out.log", "/tmp/out.log", "a\x1b[2Jb.log", "dir/../../x.log"]
    (tmp_path / "logs.tar").write_bytes(archive("tar", dict.fromkeys(hostile, b"x\n")))
    before = sorted(tmp_path.parent.rglob("*"))
    assert len(read_local(tmp_path).files) == len(hostile)
    assert sorted(tmp_path.parent.rglob("*")) == before


@pytest.mark.parametrize(
    "content, library, why",
    [
        (zstandard.compress(b"x"), "zstandard", r"compressed with zstd: pip install 'isrlab\["),
        (lz4.frame.compress(b"x"), "lz4", r"compressed with lz4: pip install 'isrlab\["),
        (b"7z\xbc\xaf...", "", "packed with 7z: unpack it first"),
    ],
)
def test_an_archive_that_cannot_be_read_is_named(tmp_path, monkeypatch, content, library, why):
    find_spec = packed.find_spec
    monkeypatch.setattr(
        packed, "find_spec", lambda name: None if name == library else find_spec(name)
    )
    (tmp_path / "server.log.1").write_bytes(content)
    with pytest.raises(LogDirError, match=why):
        read_local(tmp_path)
    (tmp_path / "server.log").write_text(STARTED.format(UTC, 1))
    assert look(tmp_path).status == NOT_KNOWN
    assert any(doubt.startswith("server.log.1: not read") for doubt in look(tmp_path).doubts)


def test_a_file_that_begins_with_zero_bytes_is_read(tmp_path):
    line = STARTED.format(UTC, 1).encode()
    (tmp_path / "kafka.out").write_bytes(b"\0" * 300_000 + line)
    (tmp_path / "broker.log").write_bytes(b"\0" * 300_000)
    logs = read_local(tmp_path)
    assert logs.events.num_rows == 1
    status = dict(zip(*(logs.files[name].to_pylist() for name in ("file", "status")), strict=True))
    assert status == {"kafka.out": "read", "broker.log": "not read: nothing but zero bytes"}


def test_a_name_that_is_not_utf_8(tmp_path):
    with open(os.fsencode(tmp_path) + b"/server\xff.log", "w") as file:
        file.write(STARTED.format(UTC, 1))
    logs = read_local(tmp_path)
    assert logs.files["file"].to_pylist() == ["server\\xff.log"] and logs.events.num_rows == 1


def test_a_file_of_any_name_that_holds_kafkas_lines(tmp_path):
    (tmp_path / "output.txt").write_text(STARTED.format(UTC, 1))
    (tmp_path / "notes.txt").write_text("nothing of Kafka\n")
    status = {row["file"]: row["status"] for row in read_local(tmp_path).files.to_pylist()}
    assert status["output.txt"] == "read" and status["notes.txt"].startswith("skipped: not named")


def test_a_file_in_no_known_layout_is_not_calm(tmp_path):
    """Lines without a date and a level: the answer is NOT KNOWN."""
    (tmp_path / "server.log").write_text("".join(f"{n}: [Broker id=1] of ISR\n" for n in range(9)))
    logs = read_local(tmp_path)
    assert logs.files["status"].to_pylist() == [
        "not understood: 0 of 18 lines of Kafka have a known head"
    ]


def test_a_character_that_turns_the_text_around_is_shown_escaped(tmp_path):
    line = SHRINK.format(UTC, 1).replace("to 1", "to \u202egnp")
    (tmp_path / "server.log").write_text(line)
    (text,) = read_local(tmp_path).unread["text"].to_pylist()
    assert "\\u202egnp" in text


@pytest.mark.parametrize("depth", [100, 900, 100_000])
def test_an_object_of_any_depth(tmp_path, depth):
    deep = '{"message": "[Broker id=1] ISR", "a": ' + '{"a": ' * depth + "1" + "}" * depth + "}"
    (tmp_path / "server.log").write_text(f"{deep}\n" + '{"message": 5, "time": 1e999}\n' * 3)
    assert read_local(tmp_path).events.num_rows == 0


def test_standard_input():
    code = "from isrlab_ops.logs.reader import read_local; logs = read_local('-'); "
    code += "print(logs.events.num_rows, logs.files['file'].to_pylist())"
    printed = subprocess.run(
        [sys.executable, "-c", code], input=STARTED.format(UTC, 1), capture_output=True, text=True,
        check=True,
    ).stdout  # fmt: skip
    assert printed == "1 ['standard input']\n"


def test_a_line_of_any_length_needs_little_memory(tmp_path):
    path = tmp_path / "server.log"
    with path.open("wb") as file:
        for _ in range(8):
            file.write(b"x" * 5_000_000)
        file.write(b"\n" + STARTED.format(UTC, 1).encode())
    sizes = [len(block.data) for block in files.blocks(str(path))]
    assert max(sizes) < 3 * files.READ_BYTES
    assert read_local(path).events.num_rows == 1
