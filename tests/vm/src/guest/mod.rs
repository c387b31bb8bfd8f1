//! A guest that runs.

mod channel;
mod dmesg;
mod monitor;
mod options;

use crate::cache::Cache;
use crate::image;
use anyhow::{Context, Result, bail, ensure};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use channel::{Answer, Channel};
use options::Place;
use processes::Daemon;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use channel::Output;
pub use dmesg::{Mark, Message};
pub use options::Options;

/// Longest that a boot is waited for. It takes some seconds; an emulated processor on a machine
/// that is busy with other things takes its time.
pub const BOOT_BOUND: Duration = Duration::from_secs(600);

/// Longest that a command which does not do much is waited for.
pub const TALK_BOUND: Duration = Duration::from_secs(300);

/// How often it is looked whether a guest that is waited for is still there.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes of a file that go into one command.
const PIECE: usize = 8 << 10;

/// A virtual machine. It ends when this is dropped, and with this program, however that ends.
pub struct Guest {
    qemu: Daemon,
    channel: Arc<Channel>,
    place: Place,
}

/// A command that runs in a guest.
#[must_use = "its end is not waited for"]
pub struct Running {
    channel: Arc<Channel>,
    number: u64,
}

impl Drop for Running {
    fn drop(&mut self) {
        self.channel.forget(self.number);
    }
}

impl Guest {
    /// Starts a guest. Its log, its sockets and its initramfs are in a folder, each with the
    /// guest's name before it. To be called by a thread that lives as long as the guest.
    ///
    /// # Errors
    ///
    /// When QEMU does not start, with what it says: a device whose server is not there, a word of
    /// its command line that it does not know.
    pub fn start(cache: &Cache, options: &Options, folder: &Path) -> Result<Self> {
        let place = Place { folder: std::path::absolute(folder)?, name: options.name.clone() };
        image::write(cache, options, &place.image())?;
        let command = options::qemu(cache, options, &place)?;
        let mut qemu = Daemon::start(&format!("{}-qemu", place.name), folder, command, false)?;
        let channel = processes::wait_for("QEMU's sockets", TALK_BOUND, || {
            qemu.check()?;
            Ok(Channel::connect(&place.commands()).ok())
        })?;
        Ok(Self { qemu, channel, place })
    }

    /// Waits until the guest takes commands.
    ///
    /// # Errors
    ///
    /// When it does not within the bound, or its kernel panics, with the end of what it said.
    pub fn boot(&mut self, bound: Duration) -> Result<()> {
        self.wait_boots(1, bound)
    }

    fn wait_boots(&mut self, count: u64, bound: Duration) -> Result<()> {
        let channel = Arc::clone(&self.channel);
        self.wait("the guest to boot", bound, || Ok((channel.boots() >= count).then_some(())))
    }

    /// Waits for something on the channel.
    fn wait<T>(
        &mut self,
        what: &str,
        bound: Duration,
        mut ask: impl FnMut() -> Result<Option<T>>,
    ) -> Result<T> {
        let deadline = Instant::now() + bound;
        loop {
            processes::not_interrupted()?;
            if let Some(answer) = ask().with_context(|| self.last_words())? {
                return Ok(answer);
            }
            self.check()?;
            if Instant::now() > deadline {
                bail!("waited {} s in vain for {what}. {}", bound.as_secs(), self.last_words());
            }
            self.channel.wait(LOOK);
        }
    }

    /// Whether the guest is alive, as far as can be told from outside.
    ///
    /// # Errors
    ///
    /// When QEMU has ended, or the guest's kernel has panicked.
    pub fn check(&mut self) -> Result<()> {
        self.qemu.check()?;
        if let Some(reason) = self.channel.closed() {
            bail!("the guest is gone: {reason}. {}", self.last_words());
        }
        if self.console().contains("Kernel panic - not syncing") {
            bail!("the guest's kernel panicked. {}", self.last_words());
        }
        Ok(())
    }

    /// Whether QEMU has ended other than by the guest's own wish.
    ///
    /// # Errors
    ///
    /// When it has, with how, and what it said.
    pub fn failed(&mut self) -> Result<()> {
        match self.qemu.ended()? {
            Some(status) if !status.success() => self.qemu.check(),
            _ => Ok(()),
        }
    }

    /// The end of what the guest and QEMU said, for errors.
    fn last_words(&self) -> String {
        let console = self.console();
        let lines: Vec<&str> = console.lines().collect();
        let end = lines[lines.len().saturating_sub(40)..].join("\n");
        format!("Its console ends:\n{end}\nand QEMU says:\n{}", self.qemu.last_lines())
    }

    /// Runs a command in the guest's shell, to its end.
    ///
    /// # Errors
    ///
    /// When it does not end within the bound, or the guest is gone. A command that fails is no
    /// error: see [`Output::status`].
    pub fn sh(&mut self, command: &str, bound: Duration) -> Result<Output> {
        let running = self.spawn(command)?;
        self.finish(running, bound)
    }

    /// As [`sh`](Self::sh); what it wrote, when its status is 0.
    ///
    /// # Errors
    ///
    /// As [`sh`](Self::sh), and when the status is not 0, with what it wrote.
    pub fn ok(&mut self, command: &str) -> Result<String> {
        let Output { status, text } = self.sh(command, TALK_BOUND)?;
        ensure!(status == 0, "`{command}` ended with {status} in the guest:\n{text}");
        Ok(text)
    }

    /// Starts a command in the guest's shell. Others can be run meanwhile.
    ///
    /// # Errors
    ///
    /// When the guest takes none, or it is longer than 16 KiB.
    pub fn spawn(&mut self, command: &str) -> Result<Running> {
        let channel = Arc::clone(&self.channel);
        let number = channel.send(command).with_context(|| self.last_words())?;
        Ok(Running { channel, number })
    }

    /// Waits for the end of a command.
    ///
    /// # Errors
    ///
    /// As [`sh`](Self::sh).
    ///
    /// # Panics
    ///
    /// When it was another guest's.
    pub fn finish(&mut self, running: Running, bound: Duration) -> Result<Output> {
        let Answer { status, data } = self.answer(running, bound)?;
        Ok(Output { status, text: String::from_utf8_lossy(&data).into_owned() })
    }

    fn answer(&mut self, running: Running, bound: Duration) -> Result<Answer> {
        assert!(Arc::ptr_eq(&running.channel, &self.channel), "it runs in another guest");
        let number = running.number;
        self.wait("a command in the guest", bound, || running.channel.answer(number))
    }

    /// Waits until a command in the guest succeeds. It is asked again and again there.
    ///
    /// # Errors
    ///
    /// When it does not within the bound, or the guest is gone.
    pub fn until(&mut self, condition: &str, bound: Duration) -> Result<()> {
        let seconds = bound.as_secs().max(1);
        // The guest's clock and ours agree; ours has the last word if the guest is stuck.
        let command = format!(
            "end=$(($(date +%s) + {seconds})); until {{ {condition}\n}} >/dev/null 2>&1; do \
             [ $(date +%s) -gt $end ] && exit 99; sleep 0.1; done"
        );
        let output = self.sh(&command, bound + TALK_BOUND)?;
        ensure!(
            output.status == 0,
            "waited {seconds} s in vain for `{condition}` in the guest. {}",
            self.last_words()
        );
        Ok(())
    }

    /// Puts bytes into a file of the guest.
    ///
    /// # Errors
    ///
    /// When it cannot be written.
    pub fn put(&mut self, file: &str, bytes: &[u8]) -> Result<()> {
        self.ok(&format!(": > '{file}'"))?;
        for piece in bytes.chunks(PIECE) {
            self.ok(&format!("echo {} | base64 -d >> '{file}'", STANDARD.encode(piece)))?;
        }
        Ok(())
    }

    /// The bytes of a file of the guest.
    ///
    /// # Errors
    ///
    /// When it cannot be read.
    pub fn get(&mut self, file: &str) -> Result<Vec<u8>> {
        let running = self.spawn(&format!("cat '{file}'"))?;
        let Answer { status, data } = self.answer(running, TALK_BOUND)?;
        ensure!(status == 0, "{file} of the guest: {}", String::from_utf8_lossy(&data));
        Ok(data)
    }

    /// The present end of the kernel's log.
    ///
    /// # Errors
    ///
    /// When the guest is gone.
    pub fn mark(&mut self) -> Result<Mark> {
        Ok(Mark(self.dmesg()?.len()))
    }

    /// The kernel's whole log.
    ///
    /// # Errors
    ///
    /// When the guest is gone.
    pub fn dmesg(&mut self) -> Result<Vec<Message>> {
        Ok(dmesg::parse(&self.ok("dmesg -r")?))
    }

    /// What the kernel has said since a mark.
    ///
    /// # Errors
    ///
    /// When the guest is gone, or has begun anew since.
    pub fn dmesg_since(&mut self, mark: Mark) -> Result<Vec<Message>> {
        let mut all = self.dmesg()?;
        ensure!(mark.0 <= all.len(), "the mark is from before the guest's last boot");
        Ok(all.split_off(mark.0))
    }

    /// Waits until the kernel has said every one of `wanted` since a mark.
    ///
    /// # Errors
    ///
    /// When it does not within the bound, with what it said; those of
    /// [`dmesg_since`](Self::dmesg_since).
    pub fn until_said(&mut self, mark: Mark, wanted: &[&str], bound: Duration) -> Result<()> {
        let deadline = Instant::now() + bound;
        loop {
            let said = self.dmesg_since(mark)?;
            let has = |text: &str| said.iter().any(|message| message.text.contains(text));
            if wanted.iter().all(|text| has(text)) {
                return Ok(());
            }
            let texts: Vec<_> = said.iter().map(|message| message.text.as_str()).collect();
            ensure!(Instant::now() < deadline, "the kernel said {texts:#?}, not all of {wanted:?}");
            std::thread::sleep(LOOK);
        }
    }

    /// Everything that the guest said on its console, from its first start on.
    pub fn console(&self) -> String {
        let log = std::fs::read(self.place.console_log()).unwrap_or_default();
        String::from_utf8_lossy(&log).into_owned()
    }

    /// The socket of its console, for one who types.
    pub fn console_socket(&self) -> PathBuf {
        self.place.console()
    }

    /// Makes the guest boot anew by itself, and waits until it takes commands again.
    ///
    /// # Errors
    ///
    /// As [`boot`](Self::boot).
    pub fn reboot(&mut self, bound: Duration) -> Result<()> {
        let boots = self.channel.boots();
        drop(self.spawn("reboot")?);
        self.wait_boots(boots + 1, bound)
    }

    /// Presses the machine's reset button, and waits until the guest takes commands again.
    ///
    /// # Errors
    ///
    /// As [`boot`](Self::boot).
    pub fn reset(&mut self, bound: Duration) -> Result<()> {
        let boots = self.channel.boots();
        self.monitor("system_reset", &json!({}))?;
        self.wait_boots(boots + 1, bound)
    }

    /// Runs a command of QEMU's monitor (QMP).
    ///
    /// # Errors
    ///
    /// When QEMU does not do it.
    pub fn monitor(&self, command: &str, arguments: &Value) -> Result<Value> {
        monitor::execute(&self.place.monitor(), command, arguments)
    }

    /// Ends the machine at once, as a power cut does.
    pub fn kill(self) {
        self.qemu.signal(SIGKILL);
    }

    /// Waits until the guest has switched itself off.
    ///
    /// # Errors
    ///
    /// When it does not within the bound, or QEMU failed.
    pub fn wait_off(&mut self, bound: Duration) -> Result<()> {
        let status =
            processes::wait_for("the guest to switch itself off", bound, || self.qemu.ended())?;
        ensure!(status.success(), "QEMU ended with {status}. {}", self.last_words());
        Ok(())
    }
}

/// signal(7).
const SIGKILL: i32 = 9;
