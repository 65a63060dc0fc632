//! Cron schedules, and their times in a time zone. Pure.
//!
//! A *tick* is a time of the schedule, in seconds since 1970.

mod ticks;
mod zone;

use std::fmt;

use jiff::civil::{Date, DateTime};
use jiff::tz::{AmbiguousOffset, TimeZone};
use jiff::{Timestamp, ToSpan};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

pub use self::ticks::{Due, MAX_MADE_UP, MAX_RANGES, Ticks};
pub use self::zone::Zone;

/// The 29th of February on a Monday is at most 40 years away.
const MAX_YEARS: i16 = 41;

const MONTHS: [&str; 12] =
    ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

/// crontab(5), optionally with seconds in front.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Schedule {
    text: String,
    /// Bit n is the value n.
    seconds: u64,
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    last_day: bool,
    /// Both fields of days are restricted: either is enough.
    either_day: bool,
}

struct CronField {
    name: &'static str,
    first: u64,
    last: u64,
    words: &'static [&'static str],
}

const SECOND: CronField = CronField { name: "second", first: 0, last: 59, words: &[] };
const MINUTE: CronField = CronField { name: "minute", first: 0, last: 59, words: &[] };
const HOUR: CronField = CronField { name: "hour", first: 0, last: 23, words: &[] };
const DAY: CronField = CronField { name: "day of the month", first: 1, last: 31, words: &[] };
const MONTH: CronField = CronField { name: "month", first: 1, last: 12, words: &MONTHS };
/// Sunday is 0 and 7.
const WEEKDAY: CronField = CronField { name: "day of the week", first: 0, last: 7, words: &WEEKDAYS };

impl CronField {
    fn read(&self, text: &str) -> Result<u64, String> {
        text.split(',').try_fold(0, |bits, part| Ok(bits | self.read_part(part)?))
    }

    fn read_part(&self, part: &str) -> Result<u64, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(part, step)?)),
            None => (part, None),
        };
        let (from, to) = match range.split_once('-') {
            _ if range == "*" || range == "?" => (self.first, self.last),
            Some((from, to)) => (self.value(part, from)?, self.value(part, to)?),
            None => {
                let value = self.value(part, range)?;
                // As in many crons: `5/15` is every 15th from 5 on.
                (value, if step.is_some() { self.last } else { value })
            }
        };
        // Saturday to Monday is 6-1, or 6-7 and 1.
        let to = if self.name == WEEKDAY.name && to == 0 && from > 0 { 7 } else { to };
        if from > to {
            return Err(format!("the {} {part:?} ends before it begins", self.name));
        }
        let values = (from..=to).step_by(step.unwrap_or(1) as usize);
        Ok(values.fold(0, |bits, value| bits | 1 << value))
    }

    fn step(&self, part: &str, text: &str) -> Result<u64, String> {
        match text.parse() {
            Ok(step) if (1..=self.last).contains(&step) => Ok(step),
            _ => Err(format!("the {} {part:?} has no step from 1 to {}", self.name, self.last)),
        }
    }

    fn value(&self, part: &str, text: &str) -> Result<u64, String> {
        let word = text.to_ascii_lowercase();
        if let Some(index) = self.words.iter().position(|known| *known == word) {
            return Ok(index as u64 + if self.name == MONTH.name { 1 } else { 0 });
        }
        let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        match text.parse() {
            Ok(value) if is_number && (self.first..=self.last).contains(&value) => Ok(value),
            _ => {
                let words = if self.words.is_empty() { "" } else { ", or one of its names" };
                let Self { name, first, last, .. } = self;
                Err(format!("the {name} {part:?} is not from {first} to {last}{words}"))
            }
        }
    }
}

impl std::str::FromStr for Schedule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let fields = match text.to_ascii_lowercase().as_str() {
            "@yearly" | "@annually" => "0 0 1 1 *",
            "@monthly" => "0 0 1 * *",
            "@weekly" => "0 0 * * 0",
            "@daily" | "@midnight" => "0 0 * * *",
            "@hourly" => "0 * * * *",
            _ => text.as_str(),
        };
        let fields: Vec<&str> = fields.split(' ').collect();
        let (second, [minute, hour, day, month, weekday]) = match fields[..] {
            [minute, hour, day, month, weekday] => ("0", [minute, hour, day, month, weekday]),
            [second, minute, hour, day, month, weekday] => (second, [minute, hour, day, month, weekday]),
            _ => {
                return Err(format!(
                    "{text:?} is no schedule: it has five fields (minute, hour, day of the month, month, day of the \
                     week), or six with the second before them, such as \"30 2 * * *\"; or it is @hourly, @daily, \
                     @weekly, @monthly or @yearly"
                ));
            }
        };
        let is_last = |part: &&str| part.eq_ignore_ascii_case("l");
        let last_day = day.split(',').any(|part| is_last(&part));
        let days: Vec<&str> = day.split(',').filter(|part| !is_last(part)).collect();
        let weekdays = WEEKDAY.read(weekday)?;
        let schedule = Self {
            seconds: SECOND.read(second)?,
            minutes: MINUTE.read(minute)?,
            hours: HOUR.read(hour)?,
            days: if days.is_empty() { 0 } else { DAY.read(&days.join(","))? },
            months: MONTH.read(month)?,
            weekdays: weekdays & 0x7f | weekdays >> 7,
            last_day,
            either_day: !day.starts_with(['*', '?']) && !weekday.starts_with(['*', '?']),
            text,
        };
        let begin = DateTime::constant(2000, 1, 1, 0, 0, 0, 0);
        if schedule.next_civil(begin).is_none() {
            return Err(format!("{:?} is never: no month has that day", schedule.text));
        }
        Ok(schedule)
    }
}

impl fmt::Display for Schedule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl Serialize for Schedule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Keeps any text: the checks report an invalid schedule.
impl<'de> Deserialize<'de> for Schedule {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Ok(text.parse().unwrap_or_else(|_| Self { text, ..Self::default() }))
    }
}

fn has(bits: u64, value: i8) -> bool {
    bits >> value & 1 == 1
}

fn from_on(bits: u64, value: i8) -> Option<i8> {
    let rest = bits >> value << value;
    (rest != 0).then(|| rest.trailing_zeros() as i8)
}

impl Schedule {
    pub fn problem(&self) -> Option<String> {
        self.text.parse::<Self>().err()
    }

    /// If a clock change skips times, one tick follows right after the gap. A repeated time counts at its
    /// first occurrence. An hourly schedule ignores both.
    pub fn next_after(&self, zone: &Zone, after: i64) -> Option<i64> {
        let zone = zone.time_zone();
        let after = Timestamp::from_second(after).ok()?;
        let is_every_hour = self.hours == (1 << 24) - 1;
        if is_every_hour { self.next_of_every_hour(&zone, after) } else { self.next_of_clock(&zone, after) }
    }

    fn next_of_every_hour(&self, zone: &TimeZone, after: Timestamp) -> Option<i64> {
        let mut before = (zone.to_offset(after), zone.to_datetime(after));
        for change in zone.following(after).map(Some).chain([None]) {
            let (offset, civil) = before;
            let next = offset.to_timestamp(self.next_civil(civil)?).ok()?;
            match change {
                Some(change) if next >= change.timestamp() => {
                    let begin = change.offset().to_datetime(change.timestamp());
                    before = (change.offset(), begin.checked_sub(1.second()).ok()?);
                }
                _ => return Some(next.as_second()),
            }
        }
        None
    }

    fn next_of_clock(&self, zone: &TimeZone, after: Timestamp) -> Option<i64> {
        let mut civil = zone.to_datetime(after);
        loop {
            civil = self.next_civil(civil)?;
            let next = match zone.to_ambiguous_timestamp(civil).offset() {
                AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok()?,
                AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok()?,
                // With the later offset it would be before the gap.
                AmbiguousOffset::Gap { after, .. } => {
                    zone.following(after.to_timestamp(civil).ok()?).next()?.timestamp()
                }
            };
            if next > after {
                return Some(next.as_second());
            }
        }
    }

    fn next_civil(&self, after: DateTime) -> Option<DateTime> {
        let begin = after.checked_add(1.second()).ok()?;
        let last_year = begin.year().checked_add(MAX_YEARS)?;
        let mut date = begin.date();
        let mut from = (begin.hour(), begin.minute(), begin.second());
        while date.year() <= last_year {
            if !has(self.months, date.month()) {
                date = date.last_of_month();
            } else if self.has_day(date)
                && let Some((hour, minute, second)) = self.next_time(from)
            {
                return Some(date.at(hour, minute, second, 0));
            }
            date = date.tomorrow().ok()?;
            from = (0, 0, 0);
        }
        None
    }

    fn has_day(&self, date: Date) -> bool {
        let of_month = has(self.days, date.day()) || (self.last_day && date == date.last_of_month());
        let of_week = has(self.weekdays, date.weekday().to_sunday_zero_offset());
        if self.either_day { of_month || of_week } else { of_month && of_week }
    }

    fn next_time(&self, (hour, minute, second): (i8, i8, i8)) -> Option<(i8, i8, i8)> {
        let first = |bits: u64| bits.trailing_zeros() as i8;
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = from_on(self.seconds, second)
            {
                return Some((hour, minute, second));
            }
            if let Some(minute) = from_on(self.minutes, minute + 1) {
                return Some((hour, minute, first(self.seconds)));
            }
        }
        let hour = from_on(self.hours, hour + 1)?;
        Some((hour, first(self.minutes), first(self.seconds)))
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn ticks(schedule: &str, zone: &str, after: &str, count: usize) -> Vec<String> {
        let (schedule, zone): (Schedule, Zone) = (schedule.parse().unwrap(), zone.parse().unwrap());
        let mut at = after.parse::<Timestamp>().unwrap().as_second();
        let mut next = || {
            at = schedule.next_after(&zone, at)?;
            let shown = Timestamp::from_second(at).unwrap().to_zoned(zone.time_zone());
            Some(shown.strftime("%m-%d %H:%M:%S%:z").to_string())
        };
        std::iter::from_fn(&mut next).take(count).collect()
    }

    #[test]
    fn fields_are_values_ranges_lists_steps_and_names() {
        for (schedule, expected) in [
            ("* * * * *", ["01-01 00:01:00", "01-01 00:02:00", "01-01 00:03:00"]),
            ("*/20 * * * * *", ["01-01 00:00:20", "01-01 00:00:40", "01-01 00:01:00"]),
            ("30 2 * * *", ["01-01 02:30:00", "01-02 02:30:00", "01-03 02:30:00"]),
            ("0 9-17/4 * * *", ["01-01 09:00:00", "01-01 13:00:00", "01-01 17:00:00"]),
            ("5/25 8 * * *", ["01-01 08:05:00", "01-01 08:30:00", "01-01 08:55:00"]),
            ("0 0 1,15 * *", ["01-15 00:00:00", "02-01 00:00:00", "02-15 00:00:00"]),
            ("0 0 L * *", ["01-31 00:00:00", "02-28 00:00:00", "03-31 00:00:00"]),
            ("0 0 29 2 *", ["02-29 00:00:00", "02-29 00:00:00", "02-29 00:00:00"]),
            // The 1st of January 2027 is a Friday.
            ("0 0 * * mon-wed", ["01-04 00:00:00", "01-05 00:00:00", "01-06 00:00:00"]),
            ("0 0 * * Sat-Sun", ["01-02 00:00:00", "01-03 00:00:00", "01-09 00:00:00"]),
            ("0 0 * * 7", ["01-03 00:00:00", "01-10 00:00:00", "01-17 00:00:00"]),
            // Either day is enough, unless one of them is any.
            ("0 0 2 * mon", ["01-02 00:00:00", "01-04 00:00:00", "01-11 00:00:00"]),
            ("0 0 1 DEC ?", ["12-01 00:00:00", "12-01 00:00:00", "12-01 00:00:00"]),
            ("@weekly", ["01-03 00:00:00", "01-10 00:00:00", "01-17 00:00:00"]),
        ] {
            let found = ticks(schedule, "UTC", "2027-01-01T00:00:00Z", 3);
            assert_eq!(found, expected.map(|tick| format!("{tick}+00:00")), "{schedule}");
        }
    }

    #[test]
    fn what_is_no_schedule_is_refused_with_what_is_wrong() {
        for (text, said) in [
            ("", "five fields"),
            ("* * * *", "five fields"),
            ("* * * * * * *", "five fields"),
            ("60 * * * *", "the minute \"60\" is not from 0 to 59"),
            ("* 24 * * *", "the hour \"24\" is not from 0 to 23"),
            ("* * 0 * *", "the day of the month \"0\" is not from 1 to 31"),
            ("* * * foo *", "the month \"foo\" is not from 1 to 12, or one of its names"),
            ("* * * * 8", "the day of the week \"8\" is not from 0 to 7"),
            ("*/0 * * * *", "has no step from 1 to 59"),
            ("30-10 * * * *", "ends before it begins"),
            ("1,,2 * * * *", "the minute \"\" is not"),
            ("+5 * * * *", "the minute \"+5\" is not"),
            ("0 0 30 2 *", "is never: no month has that day"),
            ("@often", "or it is @hourly"),
        ] {
            let error = text.parse::<Schedule>().expect_err(text);
            assert!(error.contains(said), "{text:?}: {error}");
            let read: Schedule = serde_json::from_value(text.into()).unwrap();
            assert_eq!(
                (read.problem(), read.next_after(&Zone::default(), 0)),
                (Some(error), None),
                "{text:?}"
            );
        }
    }

    /// Berlin 2027-03-28: 02:00 is 03:00; New York 2027-03-14: 02:00 is 03:00.
    #[test]
    fn a_time_that_a_change_of_the_clock_leaves_out_is_the_moment_after_the_gap_once() {
        let berlin = |schedule, count| ticks(schedule, "Europe/Berlin", "2027-03-27T12:00:00Z", count);
        assert_eq!(berlin("30 2 * * *", 2), ["03-28 03:00:00+02:00", "03-29 02:30:00+02:00"]);
        assert_eq!(
            berlin("*/20 2,3 * * *", 5),
            [
                "03-28 03:00:00+02:00",
                "03-28 03:20:00+02:00",
                "03-28 03:40:00+02:00",
                "03-29 02:00:00+02:00",
                "03-29 02:20:00+02:00"
            ]
        );
        let new_york = |schedule, count| ticks(schedule, "America/New_York", "2027-03-14T06:00:00Z", count);
        assert_eq!(new_york("30 2 * * *", 2), ["03-14 03:00:00-04:00", "03-15 02:30:00-04:00"]);
        assert_eq!(
            new_york("*/30 * * * *", 3),
            ["03-14 01:30:00-05:00", "03-14 03:00:00-04:00", "03-14 03:30:00-04:00"]
        );
    }

    /// Berlin 2027-10-31: 03:00 is 02:00; New York 2027-11-07: 02:00 is 01:00.
    #[test]
    fn a_time_that_happens_twice_is_the_first_of_the_two() {
        let berlin = |schedule, count| ticks(schedule, "Europe/Berlin", "2027-10-30T23:00:00Z", count);
        assert_eq!(berlin("30 2 * * *", 2), ["10-31 02:30:00+02:00", "11-01 02:30:00+01:00"]);
        let new_york = |schedule, count| ticks(schedule, "America/New_York", "2027-11-07T04:30:00Z", count);
        assert_eq!(
            new_york("0,30 1 * * *", 3),
            ["11-07 01:00:00-04:00", "11-07 01:30:00-04:00", "11-08 01:00:00-05:00"]
        );
        assert_eq!(
            new_york("45 * * * *", 4),
            ["11-07 00:45:00-04:00", "11-07 01:45:00-04:00", "11-07 01:45:00-05:00", "11-07 02:45:00-05:00"]
        );
        assert_eq!(
            ticks("30 1 * * *", "America/New_York", "2027-11-07T06:10:00Z", 1),
            ["11-08 01:30:00-05:00"]
        );
    }

    #[test]
    fn a_day_with_a_change_of_the_clock_has_each_hour_once() {
        for (zone, day, hours) in [
            ("Europe/Berlin", "2027-03-27T22:59:59Z", 23),
            ("Europe/Berlin", "2027-10-30T21:59:59Z", 25),
            ("America/New_York", "2027-03-14T04:59:59Z", 23),
            ("America/New_York", "2027-11-07T03:59:59Z", 25),
        ] {
            let found = ticks("0 * * * *", zone, day, hours + 1);
            let days: Vec<&str> = found.iter().map(|tick| &tick[..5]).collect();
            assert!(days[..hours].iter().all(|day| *day == days[0]) && days[hours] != days[0], "{found:?}");
        }
    }
}
