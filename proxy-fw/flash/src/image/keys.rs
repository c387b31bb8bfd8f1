//! Keys in files: Ed25519, as PEM (PKCS#8 and SPKI, as OpenSSL has them) or 64 hexadecimal digits.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};

use ed25519_dalek::pkcs8::spki::der::pem::LineEnding;
use ed25519_dalek::pkcs8::{DecodePrivateKey, DecodePublicKey, EncodePrivateKey};
use ed25519_dalek::{SigningKey, VerifyingKey};

use crate::files;

/// Why a file is no key.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    /// It cannot be read.
    #[error("cannot read the key {path}: {error}")]
    Read {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It cannot be written.
    #[error("cannot write the key {path}: {error}{}", if error.kind() == std::io::ErrorKind::AlreadyExists { "; a key is never overwritten: give another name" } else { "" })]
    Write {
        /// The file.
        path: String,
        /// Why.
        error: std::io::Error,
    },
    /// It is something else.
    #[error(
        "{path} is no Ed25519 key ({what}); make one with `dxpu-flash image keygen FILE` or `openssl genpkey -algorithm ed25519`, or give 64 hexadecimal digits"
    )]
    NotAKey {
        /// The file.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// There is no randomness.
    #[error("the system gives no random numbers: {0}")]
    Random(String),
}

/// Reads a secret key: 32 bytes (RFC 8032, 5.1.5).
///
/// # Errors
///
/// When the file cannot be read or is no such key.
pub fn read_secret(path: &Path) -> Result<[u8; 32], KeyError> {
    // Both halves are 64 digits where they are written as such.
    if path.extension().is_some_and(|extension| extension == "pub") {
        let what = "by its name it is the public half, which signs nothing".to_owned();
        return Err(not_a_key(path, what));
    }
    secret(&read(path)?).map_err(|what| not_a_key(path, what))
}

/// Reads a public key, or the public part of a secret one's PEM file.
///
/// # Errors
///
/// When the file cannot be read or is no such key.
pub fn read_public(path: &Path) -> Result<[u8; 32], KeyError> {
    public(&read(path)?).map_err(|what| not_a_key(path, what))
}

fn read(path: &Path) -> Result<String, KeyError> {
    files::text(path).map_err(|error| KeyError::Read { path: path.display().to_string(), error })
}

fn not_a_key(path: &Path, what: String) -> KeyError {
    KeyError::NotAKey { path: path.display().to_string(), what }
}

/// A secret key's bytes from its text.
///
/// # Errors
///
/// What is wrong with it.
pub fn secret(text: &str) -> Result<[u8; 32], String> {
    if is_pem(text) {
        let key = SigningKey::from_pkcs8_pem(text).map_err(|error| error.to_string())?;
        return Ok(key.to_bytes());
    }
    hex(text)
}

/// A public key's bytes from its text, which may be the PEM of the secret one.
///
/// # Errors
///
/// What is wrong with it.
pub fn public(text: &str) -> Result<[u8; 32], String> {
    if is_pem(text) {
        if text.contains("PRIVATE KEY") {
            return secret(text).map(|secret| card_image::public_key(&secret));
        }
        let key = VerifyingKey::from_public_key_pem(text).map_err(|error| error.to_string())?;
        return Ok(key.to_bytes());
    }
    let bytes = hex(text)?;
    VerifyingKey::from_bytes(&bytes).map_err(|_| "no point of the curve has these bytes")?;
    Ok(bytes)
}

fn is_pem(text: &str) -> bool {
    text.trim_start().starts_with("-----BEGIN")
}

fn hex(text: &str) -> Result<[u8; 32], String> {
    let digits: Option<Vec<u8>> =
        text.trim().chars().map(|digit| Some(digit.to_digit(16)? as u8)).collect();
    let digits = digits.ok_or("neither PEM nor hexadecimal digits")?;
    let (pairs, []) = digits.as_chunks::<2>() else { return Err("an odd number of digits".into()) };
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().map_err(|_| format!("{} digits instead of 64", digits.len()))
}

/// A key that was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Its public half.
    pub public: [u8; 32],
    /// The file that has it.
    pub file: PathBuf,
}

/// Makes a new secret key and writes it as PEM to a new file that only its owner can read, and its
/// public half as hexadecimal digits to a new file beside it: `own.pub` of `own.pem`.
///
/// # Errors
///
/// When one of the files is there already or cannot be written.
pub fn generate(path: &Path) -> Result<Made, KeyError> {
    let mut secret = [0; 32];
    getrandom::fill(&mut secret).map_err(|error| KeyError::Random(error.to_string()))?;
    let pem = SigningKey::from_bytes(&secret)
        .to_pkcs8_pem(LineEnding::LF)
        .expect("a key of this kind has a PEM form");
    let (public, file) = (card_image::public_key(&secret), public_file(path));
    // First the half that can be made again.
    write(&file, &format!("{}\n", digits(&public)), 0o644)?;
    write(path, &pem, 0o600).inspect_err(|_| {
        // It is the public half of nothing; where it stays, whoever tries again is told.
        let _ = std::fs::remove_file(&file);
    })?;
    Ok(Made { public, file })
}

/// A key as hexadecimal digits.
#[must_use]
pub fn digits(key: &[u8; 32]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The file for the public half of the key in a file.
fn public_file(path: &Path) -> PathBuf {
    if path.extension().is_some_and(|extension| extension == "pem") {
        return path.with_extension("pub");
    }
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    name.into()
}

/// Writes a new file.
#[cfg_attr(not(unix), allow(unused_variables))] // where files have no modes
fn write(path: &Path, text: &str, mode: u32) -> Result<(), KeyError> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let cannot = |error| KeyError::Write { path: path.display().to_string(), error };
    let mut file = options.open(path).map_err(cannot)?;
    file.write_all(text.as_bytes()).map_err(|error| {
        // What was begun would refuse whoever tries again with more room.
        let _ = std::fs::remove_file(path);
        cannot(error)
    })
}
