//! apt-get over folders of our own: resolves, fetches and verifies packages, installs nothing.

use super::mirror::{self, MIRROR_VARIABLE};
use super::{News, Tell, Unavailable};
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Debian's keys, as its package debian-archive-keyring installs them.
const KEYRINGS: &[&str] = &[
    "/usr/share/keyrings/debian-archive-keyring.gpg",
    "/usr/share/keyrings/debian-archive-keyring.pgp",
];

/// How often it is looked how far a download is.
const LOOK: Duration = Duration::from_millis(250);

/// A package as it was fetched.
pub(crate) struct Fetched {
    pub(crate) name: String,
    pub(crate) version: String,
    pub(crate) file: PathBuf,
}

/// A private root for apt.
pub(crate) struct Apt {
    folder: TempDir,
    keyring: &'static str,
    mirror: String,
    /// The releases whose lists are there, as [`Apt::update`] was given them.
    releases: Vec<&'static str>,
}

/// What apt-get would fetch.
struct Archive {
    name: String,
    version: String,
    file: String,
    bytes: u64,
}

impl Apt {
    /// Makes one in a folder; it is gone when dropped.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when this system has no apt-get, or not Debian's keys, or is not x86-64.
    pub(crate) fn new(folder: &Path) -> Result<Self> {
        if std::env::consts::ARCH != "x86_64" {
            bail!(Unavailable(format!(
                "QEMU and the guests come from Debian for x86-64, and this machine is {}",
                std::env::consts::ARCH
            )));
        }
        for program in ["apt-get", "dpkg-deb"] {
            let found = Command::new(program).arg("--version").output();
            if !found.is_ok_and(|output| output.status.success()) {
                bail!(Unavailable(format!(
                    "there is no {program}: QEMU and the guests come from Debian, fetched by a \
                     Debian or Ubuntu system"
                )));
            }
        }
        let keyring = KEYRINGS.iter().find(|path| Path::new(path).is_file());
        let Some(keyring) = keyring else {
            bail!(Unavailable(format!(
                "{} is missing, without which nothing of Debian's can be verified: install the \
                 package debian-archive-keyring (sudo apt-get install debian-archive-keyring)",
                KEYRINGS[0]
            )));
        };
        let folder = tempfile::Builder::new().prefix(super::part::ASIDE).tempdir_in(folder)?;
        for below in ["state/lists/partial", "cache/archives/partial", "log", "empty"] {
            std::fs::create_dir_all(folder.path().join(below))?;
        }
        std::fs::write(folder.path().join("status"), "")?;
        let apt = Self { folder, keyring, mirror: mirror::mirror(), releases: Vec::new() };
        std::fs::write(apt.path("apt.conf"), apt.settings())?;
        Ok(apt)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Settings after the system's own, of which a proxy and credentials are wanted.
    fn settings(&self) -> String {
        let root = self.folder.path().display();
        let mut text = String::new();
        // What the system does after apt ran, such as emptying its own archives.
        for hook in [
            "APT::Update::Pre-Invoke",
            "APT::Update::Post-Invoke",
            "APT::Update::Post-Invoke-Success",
            "DPkg::Pre-Invoke",
            "DPkg::Post-Invoke",
            "DPkg::Pre-Install-Pkgs",
        ] {
            let _ = writeln!(text, "#clear {hook};");
        }
        // Only the packages' lists; desktop systems fetch icons with them.
        for list in ["DEP-11", "DEP-11-icons", "DEP-11-icons-small", "DEP-11-icons-hidpi"] {
            let _ = writeln!(text, "Acquire::IndexTargets::deb::{list}::DefaultEnabled \"0\";");
        }
        for (name, value) in [
            ("Dir::State", "state"),
            ("Dir::State::status", "status"),
            ("Dir::Cache", "cache"),
            ("Dir::Log", "log"),
            ("Dir::Etc::sourcelist", "sources.list"),
            ("Dir::Etc::sourceparts", "empty"),
            ("Dir::Etc::preferences", "empty/none"),
            ("Dir::Etc::preferencesparts", "empty"),
        ] {
            let _ = writeln!(text, "{name} \"{root}/{value}\";");
        }
        for (name, value) in [
            ("APT::Architecture", "amd64"),
            ("APT::Install-Recommends", "0"),
            // The folders are ours alone: nobody to wait for, and no other user to become.
            ("Debug::NoLocking", "1"),
            ("APT::Sandbox::User", "root"),
            ("Acquire::Languages", "none"),
            ("Acquire::Retries", "3"),
            ("Acquire::http::Timeout", "30"),
            ("Acquire::https::Timeout", "30"),
            ("APT::Keep-Downloaded-Packages", "1"),
        ] {
            let _ = writeln!(text, "{name} \"{value}\";");
        }
        // Here #clear leaves no list behind that is empty.
        text.push_str("#clear APT::Architectures;\nAPT::Architectures { \"amd64\"; };\n");
        text
    }

    fn get(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.arg("-c").arg(self.path("apt.conf")).current_dir(self.folder.path());
        command.env("LC_ALL", "C.UTF-8").stdin(Stdio::null());
        command
    }

    /// Reads the mirror's lists of these releases.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when the mirror cannot be reached or has not got them.
    pub(crate) fn update(&mut self, releases: &[&'static str], tell: Tell) -> Result<()> {
        if self.releases == releases {
            return Ok(());
        }
        self.releases.clear();
        let (mirror, key) = (&self.mirror, self.keyring);
        let sources: String = releases
            .iter()
            .map(|release| format!("deb [signed-by={key}] {mirror} {release} main\n"))
            .collect();
        std::fs::write(self.path("sources.list"), sources)?;
        tell(News::Step(&format!(
            "reading the package lists of {} at {mirror}",
            releases.join(", ")
        )));
        // Without this, a list that cannot be had is a warning.
        let mut command = self.get();
        command.args(["update", "-qq", "-o", "APT::Update::Error-Mode=any"]);
        self.reached(command.output()?)?;
        self.releases = releases.to_vec();
        Ok(())
    }

    fn reached(&self, output: Output) -> Result<()> {
        if output.status.success() {
            return Ok(());
        }
        // A signal that is for this program ends apt-get, too.
        processes::not_interrupted()?;
        let said = String::from_utf8_lossy(&output.stderr);
        bail!(Unavailable(format!(
            "the Debian mirror {} did not give what is needed ({}). Is there a network? A proxy is \
             taken from apt's own settings; {MIRROR_VARIABLE}=URL names another mirror",
            self.mirror,
            said.split_whitespace().collect::<Vec<_>>().join(" "),
        )))
    }

    /// Fetches packages with all that they depend on, as far as `wanted` says so of their names.
    /// Versions are those of `release` where it has some. The files are there until the next fetch.
    ///
    /// # Errors
    ///
    /// [`Unavailable`] when the mirror has not got them.
    pub(crate) fn fetch(
        &self,
        release: &str,
        packages: &[&str],
        wanted: &dyn Fn(&str) -> bool,
        tell: Tell,
    ) -> Result<Vec<Fetched>> {
        // What was fetched before is left out of apt-get's list, and takes room.
        let archives = self.path("cache/archives");
        std::fs::remove_dir_all(&archives)?;
        std::fs::create_dir_all(archives.join("partial"))?;
        let mut command = self.get();
        command.args(["install", "--print-uris", "-qq", "-y", "-t", release]).args(packages);
        let output = command.output()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.reached(output)?;
        let mut archives = Vec::new();
        for line in text.lines() {
            let archive = archive(line).with_context(|| format!("apt-get said: {line}"))?;
            if wanted(&archive.name) {
                archives.push(archive);
            }
        }
        self.download(&archives, tell)?;
        let fetched = archives.into_iter().map(|archive| Fetched {
            file: self.path("cache/archives").join(&archive.file),
            name: archive.name,
            version: archive.version,
        });
        Ok(fetched.collect())
    }

    fn download(&self, archives: &[Archive], tell: Tell) -> Result<()> {
        let folder = self.path("cache/archives");
        let total: u64 = archives.iter().map(|archive| archive.bytes).sum();
        tell(News::Step(&format!("fetching {} packages, {} MB", archives.len(), mega(total))));
        let mut command = self.get();
        // Only this form takes a list as it is and downloads to where it runs.
        command.args(["download", "-qq"]).current_dir(&folder);
        command.args(archives.iter().map(|a| format!("{}={}", a.name, a.version)));
        // A file holds whatever it says; a pipe that nobody reads meanwhile would stop it.
        let said = self.path("said");
        command.stdout(Stdio::null()).stderr(File::create(&said)?);
        let mut child = command.spawn()?;
        while child.try_wait()?.is_none() {
            if let Err(interrupted) = processes::not_interrupted() {
                end(&mut child);
                return Err(interrupted);
            }
            let here = mega(bytes_below(&folder).min(total));
            tell(News::Progress(&format!("{here} of {} MB", mega(total))));
            std::thread::sleep(LOOK);
        }
        let (status, stdout) = (child.wait()?, Vec::new());
        self.reached(Output { status, stdout, stderr: std::fs::read(&said)? })?;
        for archive in archives {
            let file = folder.join(&archive.file);
            if !file.is_file() {
                bail!("apt-get did not fetch {}", archive.file);
            }
        }
        Ok(())
    }
}

fn end(child: &mut Child) {
    let _ = child.kill();
    let _ = child.wait();
}

fn mega(bytes: u64) -> u64 {
    bytes.div_ceil(1_000_000)
}

fn bytes_below(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(metadata) if metadata.is_dir() => bytes_below(&entry.path()),
        Ok(metadata) => metadata.len(),
        Err(_) => 0,
    };
    entries.flatten().map(size).sum()
}

/// A line of `apt-get --print-uris`: 'URI' FILE BYTES HASH.
fn archive(line: &str) -> Option<Archive> {
    let mut words = line.split_whitespace();
    let (_uri, file, bytes) = (words.next()?, words.next()?, words.next()?);
    let (name, rest) = file.split_once('_')?;
    let (version, _architecture) = rest.split_once('_')?;
    Some(Archive {
        name: name.to_owned(),
        // The epoch's colon is escaped in a file's name.
        version: version.replace("%3a", ":"),
        file: file.to_owned(),
        bytes: bytes.parse().ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_apt_gets_is_read() {
        let line = "'http://mirror.example/debian/pool/main/q/qemu/x.deb' \
                    qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb 8126464 SHA256:00";
        let read = archive(line).unwrap();
        assert_eq!(read.name, "qemu-system-x86");
        assert_eq!(read.version, "1:11.1.3+ds-1~bpo13+1");
        assert_eq!(read.file, "qemu-system-x86_1%3a11.1.3+ds-1~bpo13+1_amd64.deb");
        assert_eq!(read.bytes, 8_126_464);
        assert!(archive("Reading package lists...").is_none());
        assert!(archive("").is_none());
    }
}
