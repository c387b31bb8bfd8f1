//! Reading the files that a person names: never more of one than what is wanted can have, so that a
//! device or another wrong name does not fill the memory. Writing them, never half of one
//! ([`Beside`]).

use std::fs::{File, TryLockError};
use std::io::{Error, ErrorKind, Read, Result, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use crate::image::MAX_PAYLOAD;

/// Bytes of the longest image: header and payload.
pub const MAX_IMAGE: u64 = card_image::HEADER_LEN as u64 + MAX_PAYLOAD;

/// Bytes of the longest ELF file, whose debug information is many times what is loaded.
pub const MAX_ELF: u64 = 512 << 20;

/// Bytes of the longest text: a board file, settings or a key.
pub const MAX_TEXT: u64 = 1 << 20;

/// What ELF files begin with.
const ELF: &[u8] = b"\x7fELF";

/// Reads an image, or a boot loader as it is in flash.
///
/// # Errors
///
/// When it cannot be read, or is longer than any image.
pub fn image(path: &Path) -> Result<Vec<u8>> {
    up_to(path, MAX_IMAGE, "an image")
}

/// Reads a program: an ELF file, or the bytes as they are in flash.
///
/// # Errors
///
/// When it cannot be read, or is longer than any such file.
pub fn program(path: &Path) -> Result<Vec<u8>> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    (&mut file).take(ELF.len() as u64).read_to_end(&mut bytes)?;
    let (most, what) =
        if bytes == ELF { (MAX_ELF, "an ELF file") } else { (MAX_IMAGE, "a program") };
    rest(file, bytes, most, what)
}

/// Reads a text.
///
/// # Errors
///
/// When it cannot be read, is longer than any, or is no UTF-8.
pub fn text(path: &Path) -> Result<String> {
    let bytes = up_to(path, MAX_TEXT, "a text")?;
    String::from_utf8(bytes).map_err(|_| Error::new(ErrorKind::InvalidData, "it is no text"))
}

fn up_to(path: &Path, most: u64, what: &str) -> Result<Vec<u8>> {
    rest(File::open(path)?, Vec::new(), most, what)
}

/// Reads what follows the bytes that were read.
fn rest(file: File, mut bytes: Vec<u8>, most: u64, what: &str) -> Result<Vec<u8>> {
    let left = most - bytes.len() as u64;
    file.take(left + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        let why = format!(
            "it has more than {most} bytes, which is the most of {what} here; give another file"
        );
        return Err(Error::new(ErrorKind::FileTooLarge, why));
    }
    Ok(bytes)
}

/// A file that is written beside its place, under its name and `.part`, and moved there when all of
/// it is: whoever is interrupted or has no room leaves no half of it under its name. What is left
/// beside by a program that was killed is written over the next time; while one writes there it is
/// locked, so that nobody else's bytes get under its name. A name that leaves no room for `.part` has
/// a short one beside it, of this program's run.
#[derive(Debug)]
pub struct Beside {
    part: PathBuf,
    file: File,
    is_moved: bool,
}

impl Beside {
    /// Begins one.
    ///
    /// # Errors
    ///
    /// When it cannot be written there.
    pub fn begin(path: &Path) -> Result<Self> {
        let mut part = path.as_os_str().to_owned();
        part.push(".part");
        let part = PathBuf::from(part);
        match Self::at(&part) {
            Err(error) if error.kind() == ErrorKind::InvalidFilename => {
                Self::at(&path.with_file_name(format!("dxpu-flash-{}.part", std::process::id())))
            }
            begun => begun,
        }
    }

    fn at(part: &Path) -> Result<Self> {
        let file = File::options().write(true).create(true).truncate(false).open(part)?;
        match file.try_lock() {
            Err(TryLockError::WouldBlock) => return Err(being_written(part)),
            // Not every disk has locks.
            Ok(()) | Err(TryLockError::Error(_)) => {}
        }
        // Whoever had it may have moved or removed it since it was opened.
        if !is_at(&file, part)? {
            return Err(being_written(part));
        }
        file.set_len(0)?;
        Ok(Self { file, part: part.to_owned(), is_moved: false })
    }

    /// Moves all that was written to its place.
    ///
    /// # Errors
    ///
    /// When it cannot be there.
    pub fn finish(mut self, path: &Path) -> Result<()> {
        std::fs::rename(&self.part, path)?;
        self.is_moved = true;
        Ok(())
    }
}

impl Write for Beside {
    fn write(&mut self, bytes: &[u8]) -> Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> Result<()> {
        self.file.flush()
    }
}

impl Drop for Beside {
    fn drop(&mut self) {
        // What is there then is another's.
        if !self.is_moved {
            let _ = std::fs::remove_file(&self.part);
        }
    }
}

/// That another program is writing the same file.
fn being_written(part: &Path) -> Error {
    let why = format!("another program is writing it just now ({})", part.display());
    Error::new(ErrorKind::ResourceBusy, why)
}

/// Whether an open file is the one of this name.
#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let own = file.metadata()?;
    match path.metadata() {
        Ok(there) => Ok((there.dev(), there.ino()) == (own.dev(), own.ino())),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// Elsewhere nobody removes or moves a file that is open.
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> Result<bool> {
    Ok(true)
}

/// Writes a file all of whose bytes are there then, or none: what was there stays. A link is followed, and
/// who may read the file stays so. What is no file, as a pipe is none, is written to, and so is a file
/// that cannot be exchanged, as one that is mounted by itself.
///
/// # Errors
///
/// When it cannot be written.
pub fn replace(path: &Path, bytes: &[u8]) -> Result<()> {
    let there = match std::fs::metadata(path) {
        Ok(there) => there,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return match path.read_link() {
                // Nothing is yet where it leads.
                Ok(place) => replace(&path.with_file_name(place), bytes),
                Err(_) => {
                    let mut file = Beside::begin(path)?;
                    file.write_all(bytes)?;
                    file.finish(path)
                }
            };
        }
        Err(error) => return Err(error),
    };
    if !there.is_file() {
        return File::options().write(true).open(path)?.write_all(bytes);
    }
    let place = path.canonicalize()?;
    let mut file = match Beside::begin(&place) {
        Ok(file) => file,
        Err(error) if has_no_room(&error) || error.kind() == ErrorKind::ResourceBusy => {
            return Err(error);
        }
        // A folder that takes no new files may have one that can be written.
        Err(_) => return in_place(&place, bytes),
    };
    file.file.set_permissions(there.permissions())?;
    file.write_all(bytes)?;
    // A file that something is mounted on keeps its name.
    file.finish(&place).or_else(|_| in_place(&place, bytes))
}

/// Writes over a file. What is longer than it comes first: where there is no room for that, what was in
/// it stays.
fn in_place(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = File::options().write(true).open(path)?;
    let length = file.metadata()?.len();
    let over = usize::try_from(length).unwrap_or(usize::MAX).min(bytes.len());
    file.seek(SeekFrom::Start(over as u64))?;
    if let Err(error) = file.write_all(&bytes[over..]) {
        let _ = file.set_len(length);
        return Err(error);
    }
    file.rewind()?;
    file.write_all(&bytes[..over])?;
    file.set_len(bytes.len() as u64)
}

/// Whether there is no room for a file, so that what is there must stay.
fn has_no_room(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::StorageFull | ErrorKind::QuotaExceeded)
}

/// That nothing is there yet.
///
/// # Errors
///
/// When something is, or cannot be told.
pub fn is_free(path: &Path) -> Result<()> {
    match path.symlink_metadata() {
        Ok(_) => Err(ErrorKind::AlreadyExists.into()),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_to_its_end_is_not_there() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let count = || std::fs::read_dir(folder.path()).unwrap().count();
        // One that was killed.
        std::fs::write(folder.path().join("copy.part"), b"a longer half").unwrap();
        let mut file = Beside::begin(&path).unwrap();
        file.write_all(b"half").unwrap();
        assert!(is_free(&path).is_ok());
        drop(file);
        assert_eq!(count(), 0);
        let mut file = Beside::begin(&path).unwrap();
        file.write_all(b"all").unwrap();
        file.finish(&path).unwrap();
        assert_eq!((std::fs::read(&path).unwrap(), count()), (b"all".to_vec(), 1));
        assert_eq!(is_free(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    }

    /// Neither takes the other's file away, nor puts its bytes there.
    #[test]
    fn two_at_once_do_not_write_one_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("copy");
        let mut first = Beside::begin(&path).unwrap();
        first.write_all(b"first").unwrap();
        for _ in 0..2 {
            let second = Beside::begin(&path).unwrap_err();
            assert_eq!(second.kind(), ErrorKind::ResourceBusy);
            assert!(second.to_string().contains("another program is writing it"), "{second}");
        }
        assert_eq!(replace(&path, b"second").unwrap_err().kind(), ErrorKind::ResourceBusy);
        first.finish(&path).unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"first");
        replace(&path, b"second").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"second");
    }

    #[test]
    fn a_file_is_replaced_where_it_is_and_as_it_was() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let at = |name| folder.path().join(name);
        replace(&at("file"), b"one").unwrap();
        std::fs::set_permissions(at("file"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::os::unix::fs::symlink("file", at("link")).unwrap();
        replace(&at("link"), b"two").unwrap();
        assert_eq!(std::fs::read(at("file")).unwrap(), b"two");
        let mode = at("file").metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        assert!(at("link").symlink_metadata().unwrap().is_symlink());
        replace(Path::new("/dev/null"), b"gone").unwrap();
        assert!(!Path::new("/dev/null").metadata().unwrap().is_file());
        assert!(replace(folder.path(), b"").is_err());
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2);
    }

    #[test]
    fn a_name_may_be_as_long_as_names_are() {
        let folder = tempfile::tempdir().unwrap();
        for length in [250, 251, 255] {
            let path = folder.path().join("l".repeat(length));
            for bytes in [&b"one"[..], b"two"] {
                replace(&path, bytes).unwrap();
                assert_eq!(std::fs::read(&path).unwrap(), bytes, "{length}");
            }
        }
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
        let longer = replace(&folder.path().join("l".repeat(256)), b"");
        assert_eq!(longer.unwrap_err().kind(), ErrorKind::InvalidFilename);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 3);
    }

    #[test]
    fn a_link_to_what_is_not_there_yet_is_followed() {
        use std::os::unix::fs::symlink;
        let folder = tempfile::tempdir().unwrap();
        let at = |name| folder.path().join(name);
        std::fs::create_dir(at("deep")).unwrap();
        symlink("deep/next", at("link")).unwrap();
        symlink("../file", at("deep/next")).unwrap();
        replace(&at("link"), b"one").unwrap();
        for link in ["link", "deep/next"] {
            assert!(at(link).symlink_metadata().unwrap().is_symlink());
        }
        assert!(at("file").symlink_metadata().unwrap().is_file());
        assert_eq!(std::fs::read(at("link")).unwrap(), b"one");
        // One that leads to itself leads nowhere.
        symlink("round", at("round")).unwrap();
        assert!(replace(&at("round"), b"").is_err());
        symlink("no/such", at("nowhere")).unwrap();
        assert_eq!(replace(&at("nowhere"), b"").unwrap_err().kind(), ErrorKind::NotFound);
    }

    #[test]
    fn a_file_that_cannot_be_exchanged_is_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, b"four").unwrap();
        // Nothing can be begun beside it.
        std::fs::create_dir(folder.path().join("file.part")).unwrap();
        for bytes in [&b"longer than that"[..], b"short", b""] {
            replace(&path, bytes).unwrap();
            assert_eq!(std::fs::read(&path).unwrap(), bytes);
        }
    }

    /// A file of zeros that has no blocks on the disk.
    fn sparse(folder: &Path, beginning: &[u8], length: u64) -> std::path::PathBuf {
        let path = folder.join(length.to_string());
        std::fs::write(&path, beginning).unwrap();
        File::options().write(true).open(&path).unwrap().set_len(length).unwrap();
        path
    }

    #[test]
    fn no_more_is_read_than_there_can_be() {
        let folder = tempfile::tempdir().unwrap();
        let text_of = |length| text(&sparse(folder.path(), b"", length));
        assert_eq!(text_of(MAX_TEXT).unwrap().len() as u64, MAX_TEXT);
        let error = text_of(MAX_TEXT + 1).unwrap_err();
        assert!(error.to_string().contains("more than 1048576 bytes"), "{error}");
        let longest = sparse(folder.path(), b"", MAX_IMAGE);
        assert_eq!(image(&longest).unwrap().len() as u64, MAX_IMAGE);
        let longer = sparse(folder.path(), b"", MAX_IMAGE + 1);
        for read in [image, program] {
            assert_eq!(read(&longer).unwrap_err().kind(), ErrorKind::FileTooLarge);
        }
        // Only an ELF file may be so long.
        let elf = sparse(folder.path(), b"\x7fELF", MAX_IMAGE + 1);
        let bytes = program(&elf).unwrap();
        assert!(bytes.starts_with(ELF) && bytes.len() as u64 == MAX_IMAGE + 1);
    }

    #[test]
    fn what_has_no_end_is_no_file() {
        let zeros = Path::new("/dev/zero");
        if !zeros.exists() {
            return println!("SKIPPED: there is no /dev/zero here");
        }
        assert_eq!(program(zeros).unwrap_err().kind(), ErrorKind::FileTooLarge);
        assert_eq!(text(zeros).unwrap_err().kind(), ErrorKind::FileTooLarge);
    }

    #[test]
    fn what_is_no_text_is_told() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("bytes");
        std::fs::write(&path, [0xff, 0xfe]).unwrap();
        assert_eq!(text(&path).unwrap_err().to_string(), "it is no text");
    }
}
