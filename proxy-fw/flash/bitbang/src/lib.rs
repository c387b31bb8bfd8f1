//! A probe that is spoken to over TCP: OpenOCD's remote-bitbang protocol
//! (`doc/manual/jtag/drivers/remote_bitbang.txt` of OpenOCD), as simulators offer it.
//!
//! A clock is two characters, one with TCK low and one with it high, and `R` before the second
//! where TDO is wanted. They are sent in batches, and answers are awaited when somebody asks for
//! them: a round trip for each bit would be a hundred times slower.
//!
//! It is a crate of its own since probe-rs's code for JTAG is generic, and so compiled with the
//! probe: a small crate is soon optimised, in tests, too.

#![forbid(unsafe_code)]

use std::fmt;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use bitvec::vec::BitVec;
use probe_rs::architecture::riscv::JtagDtmBuilder;
use probe_rs::architecture::riscv::communication_interface::{RiscvError, RiscvInterfaceBuilder};
use probe_rs::probe::{
    AutoImplementJtagAccess, DebugProbe, DebugProbeError, JtagAccess, JtagDriverState, RawJtagIo,
    WireProtocol,
};

/// Bytes that are sent at once; the server is at work on them while the next ones are made.
const BATCH: usize = 16 << 10;

/// Answers that may be under way. There is room for them in the connection, so that a server never
/// has to wait with its answers while this side waits with its questions.
const UNDER_WAY: usize = 32 << 10;

/// How long it may take to connect, and to answer a batch.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// SRST asserted, and both resets released.
const RESET: u8 = b's';
const NO_RESET: u8 = b'r';

/// Why it does not work any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It did not answer in time.
    Silent,
    /// It closed the connection.
    Closed,
    /// It answered with something that is no bit.
    Strange(u8),
    /// The system says so.
    System(ErrorKind),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent => write!(f, "it did not answer for {} s", TIMEOUT.as_secs()),
            Self::Closed => f.write_str("it closed the connection"),
            Self::Strange(byte) => write!(f, "it answered {byte:#04x}, which is neither 0 nor 1"),
            Self::System(kind) => write!(f, "{kind}"),
        }
    }
}

/// The probe.
#[derive(Debug)]
pub struct RemoteBitbang {
    stream: TcpStream,
    state: JtagDriverState,
    /// What is to be sent.
    batch: Vec<u8>,
    /// Answers that were asked for and have not come, with those of the batch.
    asked: usize,
    captured: BitVec,
    /// After the first trouble nothing works any more, and nothing is waited for again.
    trouble: Option<Trouble>,
}

impl RemoteBitbang {
    /// Connects to `HOST:PORT`.
    ///
    /// # Errors
    ///
    /// When nobody is there.
    pub fn connect(address: &str) -> std::io::Result<Self> {
        let mut last = std::io::Error::from(ErrorKind::AddrNotAvailable);
        for address in address.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, TIMEOUT) {
                Ok(stream) => {
                    stream.set_nodelay(true)?;
                    stream.set_read_timeout(Some(TIMEOUT))?;
                    stream.set_write_timeout(Some(TIMEOUT))?;
                    return Ok(Self::over(stream));
                }
                Err(error) => last = error,
            }
        }
        Err(last)
    }

    fn over(stream: TcpStream) -> Self {
        Self {
            stream,
            state: JtagDriverState::default(),
            batch: Vec::with_capacity(BATCH + 3),
            asked: 0,
            captured: BitVec::new(),
            trouble: None,
        }
    }

    /// Sends what there is, and takes all answers if they are wanted or too many.
    fn exchange(&mut self, wanted: bool) -> Result<(), DebugProbeError> {
        if let Some(trouble) = self.trouble {
            return Err(failed(trouble));
        }
        let mut outcome = self.stream.write_all(&self.batch).map_err(trouble);
        self.batch.clear();
        if outcome.is_ok() && (wanted || self.asked > UNDER_WAY) {
            outcome = self.take_answers();
        }
        outcome.map_err(|trouble| {
            self.trouble = Some(trouble);
            failed(trouble)
        })
    }

    fn take_answers(&mut self) -> Result<(), Trouble> {
        let mut answers = vec![0; std::mem::take(&mut self.asked)];
        self.stream.read_exact(&mut answers).map_err(trouble)?;
        for answer in answers {
            match answer {
                b'0' => self.captured.push(false),
                b'1' => self.captured.push(true),
                strange => return Err(Trouble::Strange(strange)),
            }
        }
        Ok(())
    }

    fn send(&mut self, commands: &[u8]) -> Result<(), DebugProbeError> {
        self.batch.extend_from_slice(commands);
        self.exchange(true)
    }
}

fn trouble(error: std::io::Error) -> Trouble {
    match error.kind() {
        ErrorKind::WouldBlock | ErrorKind::TimedOut => Trouble::Silent,
        ErrorKind::UnexpectedEof
        | ErrorKind::ConnectionReset
        | ErrorKind::ConnectionAborted
        | ErrorKind::BrokenPipe => Trouble::Closed,
        kind => Trouble::System(kind),
    }
}

fn failed(trouble: Trouble) -> DebugProbeError {
    DebugProbeError::Other(format!("remote-bitbang: {trouble}"))
}

impl RawJtagIo for RemoteBitbang {
    fn state_mut(&mut self) -> &mut JtagDriverState {
        &mut self.state
    }

    fn state(&self) -> &JtagDriverState {
        &self.state
    }

    fn shift_bit(&mut self, tms: bool, tdi: bool, capture: bool) -> Result<(), DebugProbeError> {
        self.state.state.update(tms);
        let pins = b'0' + (u8::from(tms) << 1 | u8::from(tdi));
        self.batch.push(pins);
        if capture {
            self.batch.push(b'R');
            self.asked += 1;
        }
        self.batch.push(pins + 4);
        if self.batch.len() >= BATCH { self.exchange(false) } else { Ok(()) }
    }

    fn read_captured_bits(&mut self) -> Result<BitVec, DebugProbeError> {
        self.exchange(true)?;
        Ok(std::mem::take(&mut self.captured))
    }
}

impl AutoImplementJtagAccess for RemoteBitbang {}

impl DebugProbe for RemoteBitbang {
    fn get_name(&self) -> &str {
        "remote-bitbang"
    }

    /// There is no clock: the other side takes as long as it takes.
    fn speed_khz(&self) -> u32 {
        0
    }

    fn set_speed(&mut self, speed_khz: u32) -> Result<u32, DebugProbeError> {
        Ok(speed_khz)
    }

    fn attach(&mut self) -> Result<(), DebugProbeError> {
        self.select_target(0)
    }

    fn detach(&mut self) -> Result<(), probe_rs::Error> {
        self.exchange(true).map_err(probe_rs::Error::Probe)
    }

    fn target_reset(&mut self) -> Result<(), DebugProbeError> {
        self.send(&[RESET, NO_RESET])
    }

    fn target_reset_assert(&mut self) -> Result<(), DebugProbeError> {
        self.send(&[RESET])
    }

    fn target_reset_deassert(&mut self) -> Result<(), DebugProbeError> {
        self.send(&[NO_RESET])
    }

    fn select_protocol(&mut self, protocol: WireProtocol) -> Result<(), DebugProbeError> {
        match protocol {
            WireProtocol::Jtag => Ok(()),
            other => Err(DebugProbeError::UnsupportedProtocol(other)),
        }
    }

    fn active_protocol(&self) -> Option<WireProtocol> {
        Some(WireProtocol::Jtag)
    }

    fn into_probe(self: Box<Self>) -> Box<dyn DebugProbe> {
        self
    }

    fn try_as_jtag_probe(&mut self) -> Option<&mut dyn JtagAccess> {
        Some(self)
    }

    fn has_riscv_interface(&self) -> bool {
        true
    }

    fn try_get_riscv_interface_builder<'probe>(
        &'probe mut self,
    ) -> Result<Box<dyn RiscvInterfaceBuilder<'probe> + 'probe>, RiscvError> {
        Ok(Box::new(JtagDtmBuilder::new(self)))
    }
}

impl Drop for RemoteBitbang {
    /// Says goodbye, so that a server with one client at a time takes the next one at once.
    fn drop(&mut self) {
        if self.trouble.is_none() {
            self.batch.push(b'Q');
            let _ = self.stream.write_all(&self.batch);
        }
    }
}

#[cfg(test)]
mod tests;
