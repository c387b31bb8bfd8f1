//! Simulated cards in this process, and servers that are no cards.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use dxpu_flash::board::Board;
use dxpu_flash::image::{Label, Program, Signer, keys, parse_version};
use sim_card::Card;
use sim_card::bitbang::Server;

/// A card that runs, with a probe's port.
pub(crate) struct SimCard {
    pub(crate) address: SocketAddr,
    /// What it said on its console.
    pub(crate) console: Arc<Mutex<Vec<u8>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<Card>>,
}

impl SimCard {
    /// What it said on its console up to now.
    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.console.lock().unwrap()).into_owned()
    }

    pub(crate) fn start(card: Card) -> Self {
        Self::start_until(card, |_| false)
    }

    /// One whose power goes when this becomes true; then it is gone.
    pub(crate) fn start_until(
        mut card: Card,
        mut cut: impl FnMut(&mut Card) -> bool + Send + 'static,
    ) -> Self {
        let mut server = Server::bind("127.0.0.1:0").unwrap();
        let address = server.address();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let console = Arc::new(Mutex::new(Vec::new()));
        let said = Arc::clone(&console);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let ran = card.run(20_000);
                if cut(&mut card) {
                    card.board.nor(0).power_off();
                    card.board.nor(0).power_on();
                    card.reset();
                    break;
                }
                said.lock().unwrap().extend(card.board.take_console());
                let busy = ran == sim_card::Ran::Busy;
                server
                    .poll(&mut card, if busy { Duration::ZERO } else { Duration::from_millis(1) });
            }
            card
        });
        Self { address, console, stop, thread: Some(thread) }
    }

    /// Ends it; the card as it is then.
    pub(crate) fn stop(mut self) -> Card {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for SimCard {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// A server of one client, whose life this is.
pub(crate) fn serve(life: impl FnOnce(TcpStream) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || life(listener.accept().unwrap().0));
    address
}

/// A remote-bitbang server whose TDO is stuck.
pub(crate) fn stuck(tdo: u8) -> SocketAddr {
    serve(move |mut stream| {
        let mut bytes = [0; 4096];
        while let Ok(some @ 1..) = stream.read(&mut bytes) {
            let asked = bytes[..some].iter().filter(|byte| **byte == b'R').count();
            if stream.write_all(&vec![tdo; asked]).is_err() {
                break;
            }
        }
    })
}

/// A cable to a card on which some answers are turned over, from one of them on.
pub(crate) fn noisy_cable(card: SocketAddr, after: u64, seed: u64) -> SocketAddr {
    serve(move |mut near| {
        let mut far = TcpStream::connect(card).unwrap();
        let (mut answers, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || {
            let (mut bytes, mut count, mut random) = ([0; 4096], 0, seed);
            while let Ok(some @ 1..) = answers.read(&mut bytes) {
                for byte in &mut bytes[..some] {
                    count += 1;
                    random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    let turned = count > after && random >> 54 == 0;
                    *byte ^= u8::from(turned);
                }
                if back.write_all(&bytes[..some]).is_err() {
                    break;
                }
            }
        });
        let _ = std::io::copy(&mut near, &mut far);
        let _ = far.shutdown(Shutdown::Both);
    })
}

/// A cable to a card that is pulled when this becomes true.
pub(crate) fn pulled_cable(
    card: SocketAddr,
    when: impl Fn() -> bool + Send + 'static,
) -> SocketAddr {
    watched_cable(card, move |_| when())
}

/// A cable to a card on which this sees what is sent to the card before that does, and pulls it when
/// true.
pub(crate) fn watched_cable(
    card: SocketAddr,
    pulls: impl Fn(&[u8]) -> bool + Send + 'static,
) -> SocketAddr {
    serve(move |mut near| {
        let mut far = TcpStream::connect(card).unwrap();
        let (mut answers, mut back) = (far.try_clone().unwrap(), near.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut answers, &mut back));
        let mut bytes = [0; 4096];
        while let Ok(some @ 1..) = near.read(&mut bytes) {
            if pulls(&bytes[..some]) || far.write_all(&bytes[..some]).is_err() {
                break;
            }
        }
        for end in [near, far] {
            let _ = end.shutdown(Shutdown::Both);
        }
    })
}

/// Files for a test, and the program.
pub(crate) struct Bench {
    folder: tempfile::TempDir,
}

/// What the program said.
pub(crate) struct Said {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) error: String,
}

impl Said {
    pub(crate) fn new(Output { status, stdout, stderr }: Output) -> Self {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        let code = status.code().unwrap_or_else(|| panic!("it ended with {status}"));
        Self { code, out: text(stdout), error: text(stderr) }
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }

    /// That all went well.
    #[track_caller]
    pub(crate) fn fine(self) -> Self {
        assert_eq!(self.code, 0, "{}{}", self.out, self.error);
        self
    }

    /// That it ended with this code and these words.
    #[track_caller]
    pub(crate) fn failed(self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.error);
        assert!(self.error.contains(words), "{}", self.error);
        assert!(self.error.contains("\n  - "), "it says what to check: {}", self.error);
    }
}

impl Said {
    /// The same, where the message itself says all there is to say.
    #[track_caller]
    pub(crate) fn failed_without_advice(self, code: i32, words: &str) {
        assert_eq!(self.code, code, "{}{}", self.out, self.error);
        assert!(self.error.contains(words), "{}", self.error);
    }
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The log of a card's console, up to now.
    pub(crate) fn log(&self, card: &SimCard, elf: &str) -> String {
        std::fs::write(self.path("console"), &*card.console.lock().unwrap()).unwrap();
        self.run(None, &["log", "--elf", elf, "--uart", "console", "--no-follow"]).fine().out
    }

    /// Runs the program until it prints a line with these words; then it is ended.
    pub(crate) fn watch(&self, probe: SocketAddr, arguments: &[&str], words: &str) {
        // Whoever runs the tests may have had signals ignored, as nohup does.
        let usual = ["env", "--default-signal"];
        let mut command = self.command_in(&usual, Some(probe), arguments);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let lines = BufReader::new(program.stdout.take().unwrap()).lines();
        let found = lines.map_while(Result::ok).any(|line| line.contains(words));
        program.kill().unwrap();
        let said = program.wait_with_output().unwrap();
        assert!(found, "{}", String::from_utf8_lossy(&said.stderr));
    }

    /// Runs the program, and sends it a signal when this becomes true: -INT is Ctrl-C's.
    pub(crate) fn interrupt(
        &self,
        signal: &str,
        probe: SocketAddr,
        arguments: &[&str],
        when: impl Fn() -> bool,
    ) -> Output {
        self.interrupt_at(signal, probe, arguments, |_| when())
    }

    /// The same, when it is true of the process of this number.
    pub(crate) fn interrupt_at(
        &self,
        signal: &str,
        probe: SocketAddr,
        arguments: &[&str],
        when: impl Fn(u32) -> bool,
    ) -> Output {
        // Whoever runs the tests may have had signals ignored, as nohup does.
        let usual = ["env", "--default-signal"];
        let mut command = self.command_in(&usual, Some(probe), arguments);
        let mut program = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        while !when(program.id()) && program.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let id = program.id().to_string();
        assert!(Command::new("kill").args([signal, &id]).status().unwrap().success());
        program.wait_with_output().unwrap()
    }

    /// Runs the program where no file can have a byte, as on a disk that is full.
    pub(crate) fn run_without_room(&self, probe: Option<SocketAddr>, arguments: &[&str]) -> Said {
        let shell = ["sh", "-c", "trap '' XFSZ; ulimit -f 0; exec \"$0\" \"$@\""];
        Said::new(self.command_in(&shell, probe, arguments).output().unwrap())
    }

    /// As [`command`](Self::command), by another program that becomes it.
    fn command_in(
        &self,
        before: &[&str],
        probe: Option<SocketAddr>,
        arguments: &[&str],
    ) -> Command {
        let program = self.command(probe, arguments);
        let mut command = Command::new(before[0]);
        command.args(&before[1..]).arg(program.get_program()).args(program.get_args());
        command.current_dir(self.folder.path());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }

    /// The names of all files, sorted.
    pub(crate) fn files(&self) -> Vec<String> {
        let names = std::fs::read_dir(self.folder.path()).unwrap();
        let names = names.map(|file| file.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<String> = names.collect();
        names.sort();
        names
    }

    /// Runs the program in the test's folder.
    pub(crate) fn run(&self, probe: Option<SocketAddr>, arguments: &[&str]) -> Said {
        Said::new(self.command(probe, arguments).output().unwrap())
    }

    pub(crate) fn command(&self, probe: Option<SocketAddr>, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dxpu-flash"));
        command.current_dir(self.folder.path()).args(arguments);
        for variable in ["DXPU_PROBE", "DXPU_BOARD", "DXPU_BOARD_FILE"] {
            command.env_remove(variable);
        }
        if let Some(address) = probe {
            command.env("DXPU_PROBE", format!("remote-bitbang:{address}"));
        }
        command
    }

    /// A file with an image; its bytes.
    pub(crate) fn image(&self, name: &str, label: &Label, length: usize) -> Vec<u8> {
        let boards = Board::built_in();
        let at = boards.iter().find(|board| board.name == label.board);
        // What is for no board here is refused for that, wherever it would be loaded to.
        let load = at.unwrap_or(&boards[0]).memory.start;
        let payload = (0..length).map(|n| (n * 31 + n / 256 + name.len()) as u8).collect();
        let program = Program { load, entry: load, payload };
        let secret = keys::secret(include_str!("../../keys/development.pem")).unwrap();
        let signer = Signer { number: card_image::KeyId(1), secret: &secret };
        let image = program.image(label, Some(&signer)).unwrap();
        std::fs::write(self.path(name), &image).unwrap();
        image
    }

    /// A board file that is the program's own with something else in it.
    pub(crate) fn board_file(&self, from: &str, to: &str) -> String {
        self.board_file_with(&[(from, to)])
    }

    /// The same with some changes.
    pub(crate) fn board_file_with(&self, changes: &[(&str, &str)]) -> String {
        let (_, text) = dxpu_flash::board::BUILT_IN[0];
        let text = changes.iter().fold(text.to_owned(), |text, (from, to)| {
            assert!(text.contains(from), "{from}");
            text.replace(from, to)
        });
        let path = self.path("board.yaml");
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    }
}

pub(crate) fn board() -> Board {
    Board::built_in().remove(0)
}

pub(crate) fn label(version: &str) -> Label {
    Label {
        board: board().name,
        role: card_image::Role::Box,
        version: parse_version(version).unwrap(),
        security: card_image::SecurityVersion(0),
    }
}

/// The paths of what `cargo xtask firmware` has built, or the environment names, by their names.
/// Without this image among it says that the test is skipped.
pub(crate) fn firmware(image: &str) -> Option<impl Fn(&str) -> String + use<>> {
    let built = || {
        let test = std::env::current_exe().ok()?;
        // A test is in a folder beside the programs.
        Some(test.ancestors().nth(3)?.join("bare-metal/riscv32imac-unknown-none-elf/card"))
    };
    let said = std::env::var_os("DXPU_FIRMWARE").map(PathBuf::from);
    let folder = said.or_else(built).filter(|folder| folder.join(image).exists());
    if folder.is_none() {
        println!("SKIPPED: there is no firmware: `cargo xtask firmware` builds it");
    }
    folder.map(|folder| move |name: &str| folder.join(name).to_str().unwrap().to_owned())
}

/// Waits until what is said is so, for as many seconds.
pub(crate) fn wait(seconds: u64, say: impl Fn() -> String, is_so: impl Fn(&str) -> bool) {
    let end = Instant::now() + Duration::from_secs(seconds);
    loop {
        let said = say();
        if is_so(&said) {
            return;
        }
        assert!(Instant::now() < end, "{said}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// What the firmware itself says in a log, behind the boot loader.
pub(crate) fn of_firmware(log: &str) -> &str {
    log.split_once("starting slot a: box").map_or("", |(_, after)| after)
}

/// What QEMU's machine says on its console with this flash, up to these words; `None` without QEMU.
pub(crate) fn emulated_console(flash: &Path, words: &str) -> Option<String> {
    let console = flash.with_extension("console");
    let mut command = Command::new("qemu-system-riscv32");
    command.args(["-M", "virt", "-bios", "none", "-display", "none", "-monitor", "none"]);
    command.arg("-serial").arg(format!("file:{}", console.display()));
    let drive = format!("if=pflash,unit=0,format=raw,file={}", flash.display());
    let mut emulator = command.args(["-drive", &drive]).spawn().ok()?;
    let end = Instant::now() + Duration::from_secs(120);
    let said = loop {
        let said = std::fs::read(&console).unwrap_or_default();
        let said = String::from_utf8_lossy(&said).into_owned();
        if said.contains(words) || Instant::now() > end {
            break said;
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    emulator.kill().unwrap();
    emulator.wait().unwrap();
    assert!(said.contains(words), "{said}");
    Some(said)
}

/// What is in a card's flash.
pub(crate) fn cells(card: &mut Card, at: u32, length: usize) -> Vec<u8> {
    card.board.nor(0).cells()[at as usize..at as usize + length].to_vec()
}

pub(crate) fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}
