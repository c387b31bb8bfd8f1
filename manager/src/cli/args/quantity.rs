//! Rates, sizes and times as people write them.

use std::ops::RangeInclusive;
use std::time::Duration;

/// A rate such as `250M`: bytes a second, in powers of 1000.
pub(super) fn rate(text: &str) -> Result<u64, String> {
    let (number, factor) = match text.strip_suffix(['k', 'K', 'M', 'G']) {
        Some(number) if text.ends_with('G') => (number, 1_000_000_000),
        Some(number) if text.ends_with('M') => (number, 1_000_000),
        Some(number) => (number, 1000),
        None => (text, 1),
    };
    let rate = number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor));
    rate.filter(|&rate| rate > 0).ok_or_else(|| "a number of bytes a second, such as 250M".into())
}

/// A size such as `64M` or `64MB`: bytes, in powers of 1000.
pub(super) fn size(text: &str) -> Result<u64, String> {
    rate(text.strip_suffix('B').unwrap_or(text))
        .map_err(|_| "a number of bytes, such as 64MB".to_owned())
}

/// A duration such as `10s` or `1500ms`, within bounds in milliseconds.
pub(super) fn duration(text: &str, bounds: RangeInclusive<u32>) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if bounds.contains(&duration.as_millis().try_into().unwrap_or(u32::MAX)) {
        return Ok(duration);
    }
    let show = |ms: u32| humantime::format_duration(Duration::from_millis(ms.into()));
    Err(format!("{} to {}", show(*bounds.start()), show(*bounds.end())))
}
