//! Looking at a device that was put into a slot: reset, wait, read configuration space.

use super::config::{Got, Want};
use super::slot::{BarSize, Facts, HostControl2, Work};
use super::{BoxRole, SlotSignal};
use crate::control::SlotState;
use crate::limits::MAX_FUNCTIONS;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::ids::SlotFunction;

/// Power Management capability, and No_Soft_Reset of its control register.
const POWER_MANAGEMENT: u8 = 0x01;
const NO_SOFT_RESET: u32 = 1 << 3;

/// PCI Express capability and Device Serial Number extended capability IDs.
const PCI_EXPRESS: u8 = 0x10;
const SERIAL_NUMBER: u16 = 0x0003;

/// The last register of a function.
const LAST_REGISTER: u16 = 0xffc;

/// Capabilities followed at most: lists that go round end here.
const LIST_BOUND: u8 = 48;

/// Where the look at a function has got to. Each state names the answer that is awaited.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    ResetPause,
    Id,
    Class,
    Header,
    Subsystem,
    BarSize(u8),
    BarRead(u8),
    BarRestore(u8),
    Pointer,
    Capability(u8),
    PowerControl(u8),
    DeviceCapabilities,
    DeviceCapabilities2,
    Extended(u16),
    SerialLow(u16),
    SerialHigh,
    SetTimeout,
}

/// The look at one slot.
#[derive(Debug)]
pub(super) struct Probe {
    state: State,
    function: u8,
    multi_function: bool,
    facts: Facts,
    capability: u8,
    next_extended: u16,
    /// The extended capability that pointed to the one that is looked at.
    before_extended: Option<u16>,
    followed: u8,
    /// The lower half of a BAR of 64 bits, whose upper half is looked at next.
    wide_bar: Option<u32>,
    reset_time: Duration,
    timeout: Duration,
}

/// What a probe wants done.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Do(Want),
    /// A function is there; and what to do next.
    Found(u8, Facts, Option<Want>),
    /// Nothing further.
    Done,
    /// The device did not answer, or was not ready in time: what was found may not be all of it.
    Failed,
}

impl Probe {
    /// The first thing to do is to wait until the reset is over.
    pub(super) fn new(reset_time: Duration, timeout: Duration) -> Self {
        Self {
            state: State::ResetPause,
            function: 0,
            multi_function: false,
            facts: Facts::default(),
            capability: 0,
            next_extended: 0,
            before_extended: None,
            followed: 0,
            wide_bar: None,
            reset_time,
            timeout,
        }
    }

    pub(super) fn first(&self) -> Want {
        Want::Pause(self.reset_time)
    }

    fn read(&mut self, state: State, register: u16) -> Step {
        self.state = state;
        Step::Do(Want::Read { function: self.function, register })
    }

    fn write(&mut self, state: State, register: u16, value: u32, enables: u8) -> Step {
        self.state = state;
        Step::Do(Want::Write { function: self.function, register, value, enables })
    }

    /// Goes on with what came of the last thing.
    pub(super) fn next(&mut self, got: Got) -> Step {
        let value = match (got, self.state) {
            (Got::Value(value), _) => value,
            (Got::Written | Got::Paused, _) => 0,
            // A function that is not there, or lacks a register that every function has.
            (Got::Nothing, _) => return self.next_function(),
            (Got::Failed, _) => return Step::Failed,
        };
        match self.state {
            State::ResetPause => self.read(State::Id, 0x00),
            State::Id if value & 0xffff == 0xffff => self.next_function(),
            State::Id => {
                self.facts = Facts { id: (value as u16, (value >> 16) as u16), ..Facts::default() };
                self.read(State::Class, 0x08)
            }
            State::Class => {
                self.facts.class = value >> 8;
                self.facts.revision = value as u8;
                self.read(State::Header, 0x0c)
            }
            State::Header => {
                let header = value >> 16 & 0xff;
                if self.function == 0 {
                    self.multi_function = header & 0x80 != 0;
                }
                if header & 0x7f != 0 {
                    return self.next_function();
                }
                self.read(State::Subsystem, 0x2c)
            }
            State::Subsystem => {
                self.facts.subsystem = (value as u16, (value >> 16) as u16);
                self.size_bar(0)
            }
            State::BarSize(bar) => self.read(State::BarRead(bar), bar_register(bar)),
            State::BarRead(bar) => {
                self.learn_bar(bar, value);
                self.write(State::BarRestore(bar), bar_register(bar), 0, 0xf)
            }
            State::BarRestore(bar) => self.size_bar(bar + 1),
            _ => self.next_capability(value),
        }
    }

    fn size_bar(&mut self, bar: u8) -> Step {
        if bar < 6 {
            return self.write(State::BarSize(bar), bar_register(bar), u32::MAX, 0xf);
        }
        self.followed = 0;
        self.read(State::Pointer, 0x34)
    }

    /// From what a BAR reads back after all ones (PCIe 5.0 section 7.5.1.2.1).
    fn learn_bar(&mut self, bar: u8, value: u32) {
        let at = usize::from(bar);
        if let Some(low) = self.wide_bar.take() {
            let mask = u64::from(value) << 32 | u64::from(low);
            self.facts.bars[at - 1] = BarSize::of(mask);
            return;
        }
        let io = value & 1 != 0;
        let mask = if io { value & !3 } else { value & !0xf };
        if !io && value & 0b110 == 0b100 && bar < 5 {
            // The upper half decides together with this one.
            self.wide_bar = Some(mask);
        } else {
            self.facts.bars[at] = BarSize::of(mask.into());
        }
    }

    fn next_capability(&mut self, value: u32) -> Step {
        match self.state {
            State::Pointer => self.follow(value as u8),
            State::Capability(at) if value as u8 == PCI_EXPRESS => {
                self.facts.pcie_capability = at.into();
                self.capability = (value >> 8) as u8;
                self.read(State::DeviceCapabilities, u16::from(at) + 0x04)
            }
            State::Capability(at) if value as u8 == POWER_MANAGEMENT && at < 0xfc => {
                self.capability = (value >> 8) as u8;
                self.read(State::PowerControl(at + 4), u16::from(at) + 4)
            }
            State::Capability(_) => self.follow((value >> 8) as u8),
            State::PowerControl(at) => {
                self.facts.power_control = if value & NO_SOFT_RESET == 0 { at } else { 0 };
                let next = self.capability;
                self.follow(next)
            }
            State::DeviceCapabilities => {
                self.facts.function_level_reset = value >> 28 & 1 != 0;
                let at = self.facts.pcie_capability;
                self.read(State::DeviceCapabilities2, at + 0x24)
            }
            State::DeviceCapabilities2 => {
                self.facts.timeout_support = value as u8 & 0x1f;
                self.facts.ten_bit_tags = value >> 17 & 1 != 0;
                let next = self.capability;
                self.follow(next)
            }
            State::Extended(at) => {
                self.next_extended = (value >> 20) as u16 & LAST_REGISTER;
                if !self.facts.hidden.takes(value, at, self.before_extended) {
                    self.before_extended = Some(at);
                }
                // One that would go on beyond the end of configuration space is none.
                if value as u16 == SERIAL_NUMBER && at + 8 <= LAST_REGISTER {
                    return self.read(State::SerialLow(at), at + 4);
                }
                self.follow_extended()
            }
            State::SerialLow(at) => {
                self.facts.serial = value.into();
                self.read(State::SerialHigh, at + 8)
            }
            State::SerialHigh => {
                self.facts.serial |= u64::from(value) << 32;
                self.follow_extended()
            }
            _ => self.next_function(),
        }
    }

    fn follow(&mut self, pointer: u8) -> Step {
        let pointer = pointer & 0xfc;
        self.followed += 1;
        if pointer < 0x40 || self.followed > LIST_BOUND {
            self.followed = 0;
            self.before_extended = None;
            return self.read(State::Extended(0x100), 0x100);
        }
        self.read(State::Capability(pointer), pointer.into())
    }

    fn follow_extended(&mut self) -> Step {
        self.followed += 1;
        let at = self.next_extended;
        if at < 0x100 || self.followed > LIST_BOUND {
            return self.set_timeout();
        }
        self.read(State::Extended(at), at)
    }

    fn set_timeout(&mut self) -> Step {
        match owned_write(&self.facts, self.timeout, self.function, HostControl2::default()) {
            Some(want) => {
                self.state = State::SetTimeout;
                Step::Found(self.function, self.facts.clone(), Some(want))
            }
            None => {
                let (function, facts) = (self.function, self.facts.clone());
                match self.next_function() {
                    Step::Do(want) => Step::Found(function, facts, Some(want)),
                    _ => Step::Found(function, facts, None),
                }
            }
        }
    }

    fn next_function(&mut self) -> Step {
        // The one before may have ended in the middle of its registers.
        self.wide_bar = None;
        self.function += 1;
        if !self.multi_function || self.function as usize >= MAX_FUNCTIONS {
            return Step::Done;
        }
        self.read(State::Id, 0x00)
    }
}

fn bar_register(bar: u8) -> u16 {
    0x10 + 4 * u16::from(bar)
}

/// The write of what the proxy owns of Device Control 2 to a function, if it has something to set,
/// with what its host wrote to the rest of the register.
pub(super) fn owned_write(
    facts: &Facts,
    least: Duration,
    function: u8,
    host: HostControl2,
) -> Option<Want> {
    owned_setting(facts, least).map(|setting| Want::Write {
        function,
        register: facts.pcie_capability + 0x28,
        value: host.with(setting).into(),
        enables: if setting >> 8 == 0 { 0b0001 } else { 0b0011 },
    })
}

/// What the proxy owns of Device Control 2: the completion timeout, and 10-bit tags, which are on
/// where the function has them. The answers to its requests come from its box, which knows them.
/// `None` where the function cannot wait for a completion for as long as `least`.
pub(super) fn owned_setting(facts: &Facts, least: Duration) -> Option<u16> {
    let tags = u16::from(facts.uses_ten_bit_tags()) << 12;
    timeout_setting(facts, least).map(|timeout| u16::from(timeout) | tags)
}

/// Device Control 2 bits 4:0 for a completion timeout of at least `least` (PCIe 5.0 table 7-31),
/// or `None` if the device cannot wait so long.
pub(super) fn timeout_setting(facts: &Facts, least: Duration) -> Option<u8> {
    /// Range bit in Device Capabilities 2, value, shortest timeout in microseconds.
    const SETTINGS: [(u8, u8, u64); 8] = [
        (0, 0b0001, 50),
        (0, 0b0010, 1_000),
        (1, 0b0101, 16_000),
        (1, 0b0110, 65_000),
        (2, 0b1001, 260_000),
        (2, 0b1010, 1_000_000),
        (3, 0b1101, 4_000_000),
        (3, 0b1110, 17_000_000),
    ];
    if facts.pcie_capability == 0 {
        return None;
    }
    let least = least.as_micros() as u64;
    let ranges = facts.timeout_support & 0xf;
    // The ranges are coded as a count: A, B, AB, BC, ABC, BCD, ABCD have the bits of a set.
    let fits =
        |(range, _, shortest): &&(u8, u8, u64)| ranges >> range & 1 != 0 && *shortest >= least;
    let disable = (facts.timeout_support & 0x10 != 0).then_some(0x10);
    SETTINGS.iter().find(fits).map(|(_, value, _)| *value).or(disable)
}

impl BoxRole {
    /// Resets the device in a slot and begins to look at it.
    pub(super) fn start_probe(&mut self, now: Instant, slot: usize) {
        let timeout = self.config.completion_timeout;
        let probe = Probe::new(self.config.reset_time, timeout);
        let ready_by = now + self.config.reset_time + self.config.readiness_bound;
        let entry = &mut self.slots[slot];
        entry.signal(SlotSignal::HotReset);
        entry.access.begin(now, probe.first(), ready_by);
        entry.work = Work::Probe(probe);
        self.report_slot(slot);
    }

    /// Goes on with a probe. The slot's work is taken out of its place meanwhile.
    pub(super) fn continue_probe(&mut self, now: Instant, slot: usize, mut probe: Probe, got: Got) {
        let after_reset = got == Got::Paused;
        let want = match probe.next(got) {
            Step::Do(want) => Some(want),
            Step::Found(function, facts, want) => {
                let number = SlotFunction::new(function.into()).expect("at most 8");
                self.slots[slot].add_function(number, facts);
                want
            }
            Step::Done => None,
            Step::Failed => {
                self.slots[slot].forget_functions();
                None
            }
        };
        match want {
            Some(want) => {
                let ready_by = now + self.config.readiness_bound;
                let entry = &mut self.slots[slot];
                entry.access.begin(now, want, ready_by);
                if after_reset {
                    entry.access.after_reset();
                }
                entry.work = Work::Probe(probe);
            }
            None => {
                let entry = &mut self.slots[slot];
                entry.work = Work::Idle;
                if entry.functions.is_empty() {
                    self.counters.quarantined += 1;
                }
                entry.functions.iter_mut().for_each(|function| function.state = SlotState::Free);
                self.report_slot(slot);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec;

    /// What a register may hold that leads somewhere.
    fn value() -> impl Strategy<Value = u32> {
        prop_oneof![
            any::<u32>(),
            // Pointers and capabilities, of both kinds of lists.
            (0_u32..=0xff).prop_map(|next| next << 8 | u32::from(PCI_EXPRESS)),
            (0_u32..=0xfff).prop_map(|next| next << 20 | 1 << 16 | u32::from(SERIAL_NUMBER)),
            Just(0xffff_fff4_u32),
            Just(0x0080_0000_u32),
            Just(0_u32),
        ]
    }

    fn got() -> impl Strategy<Value = Got> {
        prop_oneof![20 => value().prop_map(Got::Value), 1 => Just(Got::Nothing)]
    }

    proptest! {
        /// Whatever a device says, it is asked for registers that there are, and the look at it ends.
        #[test]
        fn a_device_may_say_anything(said in prop::collection::vec(got(), 1..2000)) {
            let said: Vec<Got> = said;
            let mut probe = Probe::new(Duration::ZERO, Duration::from_secs(1));
            let (mut want, mut answers) = (Some(probe.first()), said.iter().cycle());
            let mut asked = 0;
            while let Some(wanted) = want {
                let got = match wanted {
                    Want::Pause(_) => Got::Paused,
                    Want::Read { function, register } | Want::Write { function, register, .. } => {
                        prop_assert!(usize::from(function) < MAX_FUNCTIONS);
                        prop_assert!(register <= LAST_REGISTER && register % 4 == 0);
                        let got = *answers.next().expect("it goes round");
                        match (got, &wanted) {
                            (Got::Value(_), Want::Write { .. }) => Got::Written,
                            (got, _) => got,
                        }
                    }
                    other => panic!("a look wants no {other:?}"),
                };
                want = match probe.next(got) {
                    Step::Do(want) => Some(want),
                    Step::Found(_, _, want) => want,
                    Step::Done | Step::Failed => None,
                };
                asked += 1;
                // Of a function: its header, six memories with three questions each, two lists.
                let most = 1 + MAX_FUNCTIONS * (6 + 6 * 3 + 2 * 3 * (usize::from(LIST_BOUND) + 1));
                prop_assert!(asked <= most, "it goes on and on");
            }
        }
    }
}
