//! Versions as people write them.

use card_image::Version;

/// A text that is no version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "a version is three numbers up to 65535 and, if wanted, the build's up to 4294967295: 1.2.3 or 1.2.3+45"
)]
pub struct BadVersion;

/// Reads `MAJOR.MINOR.PATCH` or `MAJOR.MINOR.PATCH+BUILD`.
///
/// # Errors
///
/// When it is something else.
pub fn parse_version(text: &str) -> Result<Version, BadVersion> {
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, BadVersion> {
        // `parse` takes a sign, too.
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().ok()).flatten().ok_or(BadVersion)
    }
    let (text, build) = text.split_once('+').unwrap_or((text, "0"));
    let mut parts = text.split('.');
    let mut part = || number(parts.next().unwrap_or_default());
    let (major, minor, patch) = (part()?, part()?, part()?);
    if parts.next().is_some() {
        return Err(BadVersion);
    }
    Ok(Version { major, minor, patch, build: number(build)? })
}
