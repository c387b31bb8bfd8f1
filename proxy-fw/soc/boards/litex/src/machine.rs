//! The SoC as a board.

use crate::end;
use crate::hardware::{Registers, card, crc_failures, now, open_flash, sensors};
use crate::layout::{INTERRUPT, THERMOMETER};
use crate::panel::Panel;
use crate::shared::{Mac, Pcie};
use board_common::stack;
use card_regs::irq::{Enable, Pending};
use core::time::Duration;
use proxy_core::control::{ControlError, FirmwareRequest, ResetCause};
use proxy_core::time::Instant;
use riscv::register::{mcycle, mie};
use soc::blocks::timer::Timer;
use soc::blocks::watchdog;
use soc::board::{Board, Places};
use soc::peripherals::thermometer::Thermometer;
use soc::slots::{self, Slots};
use soc::update::FirmwareAnswer;

/// How long the watchdog waits, and how long before its reset it warns: time to write down where
/// the core is.
const PATIENCE: Duration = Duration::from_secs(6);
const WARNING: Duration = Duration::from_millis(100);

/// How long one sleep of a card takes that waits for a reset.
const NAP: Duration = Duration::from_secs(2);

/// The watchdog.
pub(crate) type Watchdog = watchdog::Watchdog<Registers>;

/// Starts the watchdog, for good, and has its warning interrupt the core.
pub(crate) fn start_watchdog() -> Watchdog {
    let watchdog = Watchdog::start(card().watchdog(), PATIENCE, WARNING);
    card().irq().enable().write(awake());
    unmask();
    // SAFETY: the one source that is enabled is handled (src/end.rs).
    unsafe {
        mie::set_mext();
        riscv::interrupt::enable();
    }
    watchdog
}

/// Whether a boot loader began this life: it starts the watchdog, which only a reset stops, before it
/// enters an image. LiteX's own loaders know nothing of it.
pub(crate) fn is_started_by_boot_loader() -> bool {
    card().watchdog().control().read().enable()
}

/// Sleeps until a person resets the card. The watchdog, which cannot be stopped, is told that it is
/// meant.
pub(crate) fn wait_for_reset(watchdog: Watchdog) -> ! {
    riscv::interrupt::disable();
    let timer = Enable::RESET.with_timer(true);
    card().irq().enable().write(timer);
    loop {
        card().irq().pending().write(Pending::from_bits(timer.bits()));
        Timer::new(card().timer()).alarm_at(now() + NAP);
        riscv::asm::wfi();
        watchdog.feed();
    }
}

/// The SoC.
pub(crate) struct Soc {
    mac: Mac,
    pcie: Pcie,
    panel: Panel,
    watchdog: Watchdog,
    /// Whether frames that come are taken, at the last look.
    receives: bool,
    /// Turns until the next one.
    looks_in: u8,
    /// Where the boot loader started it from one of them.
    slots: Option<Slots>,
}

impl Soc {
    /// Puts it together.
    pub(crate) fn new(
        mac: Mac,
        pcie: Pcie,
        panel: Panel,
        watchdog: Watchdog,
        slots: Option<Slots>,
    ) -> Self {
        Self { mac, pcie, panel, watchdog, receives: true, looks_in: 0, slots }
    }

    /// Ends a life in which a new image has not joined by then, though it had its time.
    fn end_trial(&self, by: Instant) {
        if self.slots.as_ref().is_some_and(|slots| slots.trial_is_over(by)) {
            end::end(ResetCause::Software, 0, format_args!("{}", slots::TRIAL_IS_OVER));
        }
    }
}

/// What interrupts the core: a handler takes it.
fn awake() -> Enable {
    Enable::RESET.with_watchdog(true)
}

/// What ends the core's sleep; no handler takes it.
fn asleep() -> Enable {
    let pcie = awake().with_tlp_receive(true).with_tlp_transmit(true).with_tlp_grant(true);
    let mac = pcie.with_mac0_fabric(true).with_mac0_other(true).with_mac0_transmit(true);
    mac.with_mac0_link(true).with_timer(true).with_queue_error(true)
}

/// VexRiscv in LiteX has a mask of its own in front of the machine external interrupt: CSR 0xbc0,
/// a bit for each line.
fn unmask() {
    // SAFETY: only which interrupts the core sees.
    unsafe { core::arch::asm!("csrw 0xbc0, {}", in(reg) 1_u32 << INTERRUPT) }
}

impl Board for Soc {
    type Mac = Mac;
    type Pcie = Pcie;

    fn now(&mut self) -> Instant {
        now()
    }

    fn mac(&mut self) -> &mut Mac {
        &mut self.mac
    }

    fn pcie(&mut self) -> &mut Pcie {
        &mut self.pcie
    }

    fn stack_used(&mut self) -> Option<u64> {
        Some(stack::used() as u64)
    }

    fn feed_watchdog(&mut self) {
        assert!(stack::is_within_budget(), "the stack has its {} bytes", stack::BUDGET);
        if self.slots.as_ref().is_some_and(Slots::is_on_trial) {
            // An image that always finds something to do is never idle.
            self.end_trial(now());
        }
        // A card that is never idle has to hear, too.
        self.looks_in = self.looks_in.wrapping_sub(1);
        if self.looks_in == 0 {
            self.receives = self.mac.recover();
            self.pcie.recover();
        }
        if self.receives {
            self.watchdog.feed();
        }
    }

    fn temperature(&mut self) -> Option<i32> {
        Thermometer::new(sensors(), THERMOMETER).read().ok()
    }

    fn counters(&mut self) -> impl Iterator<Item = (&'static str, u64)> {
        let crc = ("crc: ranges that the engine did not do", u64::from(crc_failures()));
        let blocks = self.mac.further_counters().into_iter().chain(self.pcie.counters());
        blocks.chain([crc])
    }

    fn show(&mut self, now: Instant, places: impl FnOnce() -> Places) {
        self.panel.show(now, places);
    }

    fn clock_failed(&mut self) {
        end::end(ResetCause::Clock, 0, format_args!("the timer stood still"));
    }

    #[inline(never)] // its stack is needed once
    fn joined(&mut self) {
        if let Some(slots) = &mut self.slots {
            slots.joined(open_flash);
        }
    }

    #[inline(never)] // its stack is needed seldom
    fn firmware(&mut self, request: &FirmwareRequest) -> Result<FirmwareAnswer, ControlError> {
        self.slots.as_mut().ok_or(ControlError::NoFirmware)?.handle(open_flash, request)
    }

    fn restart(&mut self) {
        end::end(ResetCause::Software, 0, format_args!("the manager wanted it"));
    }

    fn idle(&mut self, until: Instant) -> u32 {
        self.end_trial(until);
        let until = until.min(self.panel.poll_timeout());
        let woken = riscv::interrupt::free(|| {
            Timer::new(card().timer()).alarm_at(until);
            card().irq().enable().write(asleep());
            riscv::asm::wfi();
            let woken = mcycle::read() as u32;
            card().irq().enable().write(awake());
            // A write may be under way when the core goes on; what is read back is behind it, and what
            // ended the sleep is not taken for the watchdog's warning.
            card().irq().enable().read();
            woken
        });
        let pending = card().irq().pending();
        let was = pending.read();
        // The watchdog's stays for its handler, and what came since for the next time. What the
        // others tell of is looked at behind this.
        pending.write(Pending::from_bits(was.bits() & asleep().bits() & !awake().bits()));
        if was.queue_error() {
            self.pcie.recover();
        }
        if was.queue_error() || !self.receives {
            self.receives = self.mac.recover();
        }
        woken
    }

    fn cycles() -> u32 {
        mcycle::read() as u32
    }
}
