//! Times, sizes and rates as people write them.

use perf_core::{BytesPerSecond, Nanos};

/// The time that `text` says: `6.8us`, `6800ns`, `1.5ms`, `2s`; the unit is wanted.
///
/// # Errors
/// What is wrong with it.
pub fn time(text: &str) -> Result<Nanos, String> {
    let (value, unit) = split(text)?;
    let scale = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        "" => return Err(format!("{text:?} has no unit: ns, us, ms or s is wanted")),
        _ => return Err(format!("{unit:?} is no unit of time: ns, us, ms or s is wanted")),
    };
    whole(value * scale, text).map(Nanos)
}

/// The number of bytes that `text` says: `4096`, `64kB` (1000), `64KiB` (1024), `1.5GB`.
///
/// # Errors
/// What is wrong with it.
pub fn bytes(text: &str) -> Result<u64, String> {
    let (value, unit) = split(text)?;
    whole(value * byte_scale(unit)?, text)
}

/// The rate that `text` says: `11.2GB/s`, `100Gb/s` (bits).
///
/// # Errors
/// What is wrong with it.
pub fn rate(text: &str) -> Result<BytesPerSecond, String> {
    let (value, unit) = split(text)?;
    let unit = unit
        .strip_suffix("/s")
        .ok_or_else(|| format!("{text:?} is no rate: 11.2GB/s or 100Gb/s is wanted"))?;
    let scale = match unit {
        "Mb" | "Mbit" => 1e6 / 8.0,
        "Gb" | "Gbit" => 1e9 / 8.0,
        unit => byte_scale(unit)?,
    };
    let rate = whole(value * scale, text)?;
    BytesPerSecond::new(rate).map_err(|error| error.to_string())
}

fn byte_scale(unit: &str) -> Result<f64, String> {
    Ok(match unit {
        "" | "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        _ => return Err(format!("{unit:?} is no unit of size: B, kB, KiB, MB, MiB, GB or GiB")),
    })
}

/// The number in front, and the unit behind it.
fn split(text: &str) -> Result<(f64, &str), String> {
    let text = text.trim();
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (value, unit) = text.split_at(end);
    let value: f64 = value.parse().map_err(|_| format!("{text:?} does not begin with a number"))?;
    Ok((value, unit.trim_start()))
}

fn whole(value: f64, text: &str) -> Result<u64, String> {
    // Beyond 2^63 nothing that is measured lies.
    if value.is_finite() && (0.0..9.2e18).contains(&value) {
        Ok(value.round() as u64)
    } else {
        Err(format!("{text:?} is too large"))
    }
}

/// A size with a unit of powers of 1024, where it is whole in it.
pub fn show_bytes(bytes: u64) -> String {
    for (unit, size) in [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= size && bytes.is_multiple_of(size) && bytes / size < 10_000 {
            return format!("{} {unit}", bytes / size);
        }
    }
    match bytes {
        0..10_000 => format!("{bytes} B"),
        10_000..10_000_000 => format!("{:.1} kB", bytes as f64 / 1e3),
        10_000_000..10_000_000_000 => format!("{:.1} MB", bytes as f64 / 1e6),
        _ => format!("{:.1} GB", bytes as f64 / 1e9),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_sizes_and_rates_are_read_with_their_units() {
        assert_eq!(time("6.8us"), Ok(Nanos(6_800)));
        assert_eq!(time("6.8 µs"), Ok(Nanos(6_800)));
        assert_eq!(time("2s"), Ok(Nanos(2_000_000_000)));
        assert_eq!(bytes("1.5KiB"), Ok(1536));
        assert_eq!(bytes("40MB"), Ok(40_000_000));
        assert_eq!(rate("100Gb/s").map(BytesPerSecond::get), Ok(12_500_000_000));
        assert_eq!(rate("11.2GB/s").map(BytesPerSecond::get), Ok(11_200_000_000));
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (wrong, says) in [
            (time("7").unwrap_err(), "has no unit"),
            (time("7 days").unwrap_err(), "no unit of time"),
            (time("us").unwrap_err(), "does not begin with a number"),
            (time("1.2.3us").unwrap_err(), "does not begin with a number"),
            (time("99999999999999s").unwrap_err(), "too large"),
            (bytes("3 stones").unwrap_err(), "no unit of size"),
            (rate("3GB").unwrap_err(), "is no rate"),
            (rate("0GB/s").unwrap_err(), "more than 0"),
            (time("-3us").unwrap_err(), "does not begin with a number"),
        ] {
            assert!(wrong.contains(says), "{wrong} does not say: {says}");
        }
    }
}
