//! Having a device that is not lent erase itself, between its release and the next binding.

use super::BoxRole;
use super::config::Got;
use super::nvme::{Eraser, MAX_READ, Step};
use super::slot::Work;
use crate::control::{ControlError, EraseFailure, EraseRequest, Erasure, SlotState};
use crate::outstanding::RequestInfo;
use crate::role::Backpressure;
use crate::time::Instant;
use core::time::Duration;
use tlp_codec::ids::Epoch;
use tlp_codec::tlp::{AddressType, Class, Packet, TlpType};

/// Class code of an NVMe I/O controller (PCI Code and ID Assignment, mass storage).
const NVME_CLASS: u32 = 0x01_08_02;

/// An erasure that is going on in a slot.
#[derive(Debug)]
pub(super) struct Erase {
    pub(super) function: usize,
    pub(super) eraser: Eraser,
}

/// The last erasure of a function: the epoch that names it, and what came of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Erased {
    pub(super) epoch: Epoch,
    pub(super) result: Erasure,
}

impl BoxRole {
    /// Begins an erasure, or says how the one of this name stands.
    pub(super) fn erase(
        &mut self,
        now: Instant,
        request: &EraseRequest,
    ) -> Result<Erasure, ControlError> {
        let key = request.key;
        let (slot, function) = self.place(&key)?;
        if let Some(erasure) = self.erasure(slot, function, key.epoch) {
            return Ok(erasure);
        }
        let entry = &self.slots[slot];
        let found = &entry.functions[function];
        if let Some(binding) = &found.binding {
            return Err(ControlError::InUse(binding.request.key.epoch));
        }
        if let Ok(highest) = Epoch::from_bits(found.highest_epoch)
            && key.epoch < highest
        {
            return Err(ControlError::StaleEpoch(highest));
        }
        if found.facts.serial != request.serial {
            return Err(ControlError::SlotEmpty(key.slot));
        }
        match found.state {
            SlotState::Free => {}
            SlotState::Quarantined => return Err(ControlError::Quarantined(key.slot)),
            _ => return Err(ControlError::Busy),
        }
        // The means of a device are the whole device's.
        let at_rest = matches!(entry.work, Work::Idle) && found.renewal.is_over();
        if entry.bound_functions() > 0 || !at_rest {
            return Err(ControlError::Busy);
        }
        let is_nvme = found.facts.class == NVME_CLASS;
        let number = found.number.get() as u8;
        let result = match is_nvme {
            true => Erasure::Running(0),
            false => Erasure::Failed(EraseFailure::NoMeans),
        };
        let entry = &mut self.slots[slot];
        entry.functions[function].highest_epoch = key.epoch.bits();
        entry.functions[function].erased = Some(Erased { epoch: key.epoch, result });
        if is_nvme {
            let until = now + Duration::from_secs(request.within_s.into());
            let eraser = Eraser::new(number, request.methods, until);
            entry.access.begin(now, eraser.first(), now + self.config.readiness_bound);
            entry.work = Work::Erase(Erase { function, eraser });
            self.set_state(slot, function, SlotState::Releasing);
        }
        Ok(result)
    }

    /// How the erasure of this name stands, if the function's last one has it.
    fn erasure(&self, slot: usize, function: usize, epoch: Epoch) -> Option<Erasure> {
        let entry = &self.slots[slot].functions[function];
        let erased = entry.erased.filter(|erased| erased.epoch == epoch)?;
        Some(match (&self.slots[slot].work, erased.result) {
            (Work::Erase(erase), _) if erase.function == function => {
                Erasure::Running(erase.eraser.permille())
            }
            // It is reset before anybody hears that it is done.
            _ if entry.state == SlotState::Releasing => Erasure::Running(1000),
            (_, Erasure::Done(_)) if entry.state == SlotState::Quarantined => {
                Erasure::Failed(EraseFailure::NotReady)
            }
            (_, result) => result,
        })
    }

    /// Goes on with an erasure. The slot's work is taken out of its place meanwhile.
    pub(super) fn continue_erase(&mut self, now: Instant, slot: usize, mut erase: Erase, got: Got) {
        let function = erase.function;
        let result = match erase.eraser.next(now, got) {
            Step::Do(want) => {
                let entry = &mut self.slots[slot];
                entry.access.begin(now, want, now + self.config.readiness_bound);
                entry.work = Work::Erase(erase);
                return;
            }
            Step::End(Ok(method)) => Erasure::Done(method),
            Step::End(Err(failure)) => Erasure::Failed(failure),
        };
        let entry = &mut self.slots[slot].functions[function];
        let erased = entry.erased.as_mut().expect("it was entered when it began");
        erased.result = result;
        self.start_release(now, slot, function, None);
    }

    /// Whether a function that was reset after its erasure is not to be lent: the erasure began
    /// and failed.
    pub(super) fn is_half_erased(&self, slot: usize, function: usize) -> bool {
        use EraseFailure::{NoMeans, NotOffered};
        let erased = self.slots[slot].functions[function].erased.map(|erased| erased.result);
        matches!(erased, Some(Erasure::Failed(failure)) if !matches!(failure, NoMeans | NotOffered))
    }

    /// Whether a request of a device is for the proxy, which is erasing it.
    pub(super) fn is_for_eraser(&self, slot: usize, function: Option<usize>) -> bool {
        matches!(&self.slots[slot].work, Work::Erase(erase) if Some(erase.function) == function)
    }

    /// Takes a request of a device that is being erased.
    pub(super) fn request_for_eraser(
        &mut self,
        now: Instant,
        slot: usize,
        packet: &Packet<&[u8]>,
        class: Class,
    ) -> Result<(), Backpressure> {
        let Work::Erase(Erase { eraser, .. }) = &mut self.slots[slot].work else {
            unreachable!("the caller looked");
        };
        let whole = {
            let enables = packet.byte_enables();
            let last = if packet.length_dw() == 1 { 0 } else { 0xf };
            (enables.first, enables.last) == (0xf, last)
        };
        let untranslated = packet.address_type() == AddressType::Untranslated;
        let plain = whole && untranslated && !packet.is_poisoned();
        match packet.tlp_type() {
            TlpType::MWr if plain => {
                if eraser.written(packet.address(), packet.payload()) {
                    self.slots[slot].access.wake();
                    self.continue_work(now, slot);
                }
                Ok(())
            }
            TlpType::MRd if plain => {
                let bytes = usize::from(packet.length_dw()) * 4;
                match (Eraser::readable(packet.address(), bytes), RequestInfo::of(packet)) {
                    (Some(_), _) if eraser.read.is_some() => Err(Backpressure),
                    (Some(offset), Some(info)) => {
                        eraser.read = Some((info, offset));
                        Ok(())
                    }
                    _ => self.refuse(slot, packet),
                }
            }
            _ => {
                self.count_unbound(class);
                self.refuse(slot, packet)
            }
        }
    }

    /// Writes the answer to a read of a device that is being erased into `buf`; its length.
    pub(super) fn answer_of_eraser(&mut self, slot: usize, buf: &mut [u8]) -> Option<usize> {
        let Work::Erase(Erase { eraser, .. }) = &mut self.slots[slot].work else { return None };
        let (info, offset) = eraser.read.take()?;
        let mut data = [0; MAX_READ];
        let data = &mut data[..usize::from(info.byte_count())];
        eraser.submission(offset, data);
        let Ok(length) = info.completion_with(super::from_device::PORT, data, buf) else {
            unreachable!("it fits a buffer")
        };
        Some(length)
    }
}
