"""Cron expressions: five fields, and the next time that they match."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from toolpost.contracts.errors import ConfigError

_ALIASES = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_DAYS = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_YEARS_AHEAD = 9  # 29 February is at most eight years away
_EXAMPLE = "such as '0 2 * * *' for every day at 02:00"


class _Field(NamedTuple):
    """A field of an expression: its name, its range, and names for its numbers, the lowest first."""

    name: str
    first: int
    last: int
    names: tuple[str, ...] = ()


_FIELDS = (
    _Field("minute", 0, 59),
    _Field("hour", 0, 23),
    _Field("day of month", 1, 31),
    _Field("month", 1, 12, _MONTHS),
    _Field("day of week", 0, 7, _DAYS),
)


class Cron(NamedTuple):
    """A parsed expression in a time zone. A day matches if either of two restricted day fields does."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    is_any_day: bool
    is_any_weekday: bool
    zone: ZoneInfo

    @classmethod
    def parse(cls, text: str, timezone: str = "UTC") -> Cron:
        """Parse an expression; raise ConfigError if it is invalid, or never matches."""
        words = _ALIASES.get(text.strip().lower(), text).split()
        if len(words) != len(_FIELDS):
            names = ", ".join(field.name for field in _FIELDS)
            raise ConfigError(f"{text!r} is not a cron expression: write the fields {names}, {_EXAMPLE}")
        minutes, hours, days, months, weekdays = (
            _parse_field(word, field, text) for word, field in zip(words, _FIELDS, strict=True)
        )
        weekdays = frozenset(day % 7 for day in weekdays)
        cron = cls(minutes, hours, days, months, weekdays, words[2][0] == "*", words[4][0] == "*", _zone(timezone))
        if cron._next_day(datetime(2000, 1, 1, tzinfo=UTC)) is None:
            raise ConfigError(f"the schedule {text!r} never matches: no month has such a day; change it")
        return cron

    def next_after(self, at: float) -> float:
        """Return the first time after `at` that matches, in seconds since 1970; infinity if there is none."""
        moment = datetime.fromtimestamp(at, self.zone).replace(second=0, microsecond=0) + timedelta(minutes=1)
        while (day := self._next_day(moment)) is not None:
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = day.replace(hour=hour, minute=minute)
                    # A time that the clock skips is moved by an hour, and may then be before the given one.
                    if (hour, minute) >= (moment.hour, moment.minute) or day.date() > moment.date():
                        seconds = found.timestamp()
                        if seconds > at:
                            return seconds
            moment = (day + timedelta(days=1)).replace(hour=0, minute=0)
        return float("inf")

    def _next_day(self, moment: datetime) -> datetime | None:
        """Return the start of the first matching day, which may be the day of `moment` itself."""
        day = moment.replace(hour=0, minute=0)
        last = moment.year + _YEARS_AHEAD
        while day.year <= last:
            if day.month not in self.months:
                day = (day.replace(day=1) + timedelta(days=32)).replace(day=1)
            elif self._is_day(day):
                return day
            else:
                day += timedelta(days=1)
        return None

    def _is_day(self, day: datetime) -> bool:
        in_month, in_week = day.day in self.days, day.isoweekday() % 7 in self.weekdays
        return in_month and in_week if self.is_any_day or self.is_any_weekday else in_month or in_week


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise ConfigError(f"the time zone {name!r} is unknown; write a name such as Europe/Berlin, or UTC") from None


def _parse_field(text: str, field: _Field, whole: str) -> frozenset[int]:
    numbers = set[int]()
    for part in text.lower().split(","):
        try:
            numbers.update(_parse_part(part, field))
        except ValueError:
            allowed = f"{field.first} to {field.last}, *, lists, ranges and steps"
            problem = f"{part!r} is not a value of the field {field.name}"
            raise ConfigError(f"{whole!r} is not a cron expression: {problem}; it takes {allowed}") from None
    return frozenset(numbers)


def _parse_part(part: str, field: _Field) -> range:
    span, _, step = part.partition("/")
    if span == "*":
        first, last = field.first, field.last
    else:
        begin, _, end = span.partition("-")
        first = _number(begin, field)
        last = _number(end, field) if end else (field.last if step else first)
    width = int(step) if step else 1
    if first > last or width < 1 or (step and not step.isdecimal()):
        raise ValueError(part)
    return range(first, last + 1, width)


def _number(text: str, field: _Field) -> int:
    if text in field.names:
        return field.names.index(text) + field.first
    if not text.isdecimal() or not field.first <= int(text) <= field.last:
        raise ValueError(text)
    return int(text)
