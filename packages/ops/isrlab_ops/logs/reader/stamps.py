"""The times in log lines, in the common notations.

A stamp with an offset from UTC, or a count since the epoch, is a moment; any other is local time,
whose zone must be known.
"""

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import NamedTuple
from zoneinfo import ZoneInfo

_MONTHS = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"]
_MONTH = "|".join(_MONTHS)
_HOUR = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)(?:[.,](?P<part>\d{1,9}))?(?!\d)"
_ZONE = r"(?P<zone> ?(?:Z|UTC|GMT)(?!\w)| ?[+-]\d\d:?\d\d(?![\d-]))?"
_FORMS = (  # the first that matches reads a stamp
    rf"(?P<year>\d{{4}})[-/.](?P<month>\d\d)[-/.](?P<day>\d\d)[T ]{_HOUR}{_ZONE}",
    rf"(?P<day>\d{{1,2}})[/ -](?P<month>{_MONTH})[/ -](?P<year>\d{{4}})[: ]{_HOUR}{_ZONE}",
    rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}),? (?P<year>\d{{4}}),? {_HOUR}{_ZONE}",
    r"(?P<year>(?:19|2[01])\d\d)(?P<month>\d\d)(?P<day>\d\d)[T _-]?"
    rf"(?P<hour>\d\d)(?P<minute>\d\d)(?P<second>\d\d)(?:[.,]?(?P<part>\d{{3,9}}))?(?!\d){_ZONE}",
    r"(?P<epoch>[1-3]\d{18}|[1-3]\d{15}|[1-3]\d{12}|[1-3]\d{9}\.\d{1,9})(?!\d)",
    rf"(?P<month>{_MONTH}) {{1,2}}(?P<day>\d{{1,2}}) {_HOUR}",
    _HOUR,
)
_STAMPS = tuple(re.compile(form, re.ASCII) for form in _FORMS)
STAMP = "|".join(re.sub(r"\?P<\w+>", "?:", form) for form in _FORMS)  # without groups
_EARLIEST_MS, _LATEST_MS = 0, 7_258_118_400_000  # 1970 to 2200: pandas' time ends in 2262


class StampedTime(NamedTuple):
    """`ms` since the epoch. If `is_local`, computed as if the local time were UTC.

    `lacks` names what is missing in a stamp ("year", "date"): there is no `ms` then.
    """

    ms: int
    is_local: bool
    lacks: str = ""


@lru_cache(maxsize=4096)
def moment(text: str) -> StampedTime | None:
    """The time of a stamp, or None for text that is not a stamp.

    Raises ValueError for a day or an hour that does not exist, and before 1970 or after 2199.
    """
    second, ms = text[17:19], text[20:]
    if (
        len(text) == 23
        and text.isascii()
        and text[19] in ",."
        and second < "60"
        and (second + ms).isdecimal()
    ):
        minute = _moment(f"{text[:17]}00")  # the most common form, and many share a minute
        if minute is not None and minute.is_local and not minute.lacks:
            return StampedTime(minute.ms + int(second) * 1000 + int(ms), True)
    return _moment(text)


@lru_cache(maxsize=1024)
def _moment(text: str) -> StampedTime | None:
    for form in _STAMPS:
        if match := form.fullmatch(text):
            break
    else:
        return None
    groups = match.groupdict()
    if epoch := groups.get("epoch"):
        whole, _, part = epoch.partition(".")
        digits = f"{whole}{part:0<9}" if part else whole
        return StampedTime(int(f"{digits:0<19}"[:13]), False)
    if "day" not in groups or "year" not in groups:
        return StampedTime(0, True, "year" if "day" in groups else "date")
    month = groups.pop("month")
    number = int(month) if month.isdecimal() else _MONTHS.index(month) + 1
    names = ("year", "day", "hour", "minute", "second")
    year, day, hour, minute, second = (int(groups[name]) for name in names)
    at_s = int(datetime(year, number, day, hour, minute, second, tzinfo=UTC).timestamp())
    if not _EARLIEST_MS <= at_s * 1000 < _LATEST_MS:
        raise ValueError(f"the year {year}")
    ms = at_s * 1000 + int(f"{groups['part'] or 0:0<3}"[:3])
    zone = (groups["zone"] or "").strip()
    if zone[:1] in ("+", "-"):
        ms -= int(f"{zone[0]}1") * (int(zone[1:3]) * 60 + int(zone[-2:])) * 60_000
    return StampedTime(ms, not zone)


def given_ms(text: str) -> int:
    """A moment given by the user, in UTC unless it names its zone.

    Raises ValueError for text that is not a time.
    """
    try:
        time = datetime.fromisoformat(text)
    except ValueError as error:
        raise ValueError(f"{text!r} is not a time; write 2026-11-20T10:38:00") from error
    return round(time.replace(tzinfo=time.tzinfo or UTC).timestamp() * 1000)


def zone_of(name: str) -> tzinfo:
    """A time zone by its name; UTC also works without zone data (in a browser).

    Raises OSError, ValueError or KeyError for an unknown name.
    """
    return UTC if name == "UTC" else ZoneInfo(name)


def utc_ms(local_ms: int, time_zone: str) -> int:
    """The moment of a local time that was computed as if it were UTC."""
    return local_ms - _ahead_ms(local_ms // 3_600_000, time_zone)


@lru_cache(maxsize=1024)
def _ahead_ms(local_hour: int, time_zone: str) -> int:
    local = datetime.fromtimestamp(local_hour * 3600, UTC).replace(tzinfo=zone_of(time_zone))
    ahead = local.utcoffset() or timedelta()
    return int(ahead.total_seconds() * 1000)


def zone_name(ahead_ms: int) -> str:
    """The name of an offset, such as "UTC+02:00" for 7,200,000."""
    return str(timezone(timedelta(milliseconds=ahead_ms)))
