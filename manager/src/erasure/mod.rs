//! Erasing devices between one tenant and the next: by the device's own means, which its box uses,
//! or by a program of the operator's.
//!
//! When a binding ends, [`begin`] writes down that its device is to be erased, in the same change; a
//! slot with such a record cannot be lent. [`driver`] asks the box, or runs the program, until it is
//! over, and writes what came of it. All of it may be asked again: the binding that ended names the
//! erasure at the box. A device that is taken out before it is erased owes it: [`owed`].

pub mod driver;
mod hook;
pub mod owed;
pub mod request;

pub use hook::guard;

use crate::operations::progress;
use crate::records::Txn;
use crate::types::{
    BindingRecord, DeviceRecord, EraseRule, ErasedFunction, ErasureId, ErasureRecord, ErasureState,
    EventKind, EventRecord, FunctionEpoch, SlotAddress,
};

/// The first rule that is for a device.
pub fn rule_for<'a>(rules: &'a [EraseRule], device: &DeviceRecord) -> Option<&'a EraseRule> {
    rules.iter().find(|rule| {
        let model = |model: &String| model.eq_ignore_ascii_case(&device.model);
        rule.class.is_none_or(|class| class == device.pci.class)
            && rule.model.as_ref().is_none_or(model)
    })
}

/// Records that what was lent under these epochs is to be erased, if a rule says so. `binding` is
/// who had it, if a record says. Of a device that is not known any more, only a rule that is for all
/// devices can say so, unless [`owed::left`] has recorded it.
pub fn begin(
    txn: &mut Txn,
    rules: &[EraseRule],
    slot: &SlotAddress,
    functions: &[FunctionEpoch],
    binding: Option<&BindingRecord>,
) -> Option<ErasureId> {
    let devices: Vec<DeviceRecord> =
        txn.functions(slot).filter(|device| owed::is_known(device)).cloned().collect();
    let own = |d: &&DeviceRecord| functions.iter().any(|f| f.function == d.address.function);
    let rule = match devices.iter().any(|device| own(&device)) {
        true => devices.iter().filter(own).find_map(|device| rule_for(rules, device)),
        // It was taken out, and is owed already.
        false if binding.is_some_and(|b| owed::of_binding(txn, b).is_some()) => None,
        false => rules.iter().find(|rule| rule.class.is_none() && rule.model.is_none()),
    }?;
    Some(record(txn, slot, functions, &devices, binding, rule.clone()))
}

/// Records an erasure by this rule, in the place of those that the device still has. `devices` are
/// the slot's functions.
fn record(
    txn: &mut Txn,
    slot: &SlotAddress,
    functions: &[FunctionEpoch],
    devices: &[DeviceRecord],
    binding: Option<&BindingRecord>,
    rule: EraseRule,
) -> ErasureId {
    let device = |f: &FunctionEpoch| devices.iter().find(|d| d.address.function == f.function);
    let model = functions.first().and_then(device).map(|d| d.model.clone()).unwrap_or_default();
    let functions: Vec<ErasedFunction> = functions
        .iter()
        .map(|f| ErasedFunction {
            binding: *f,
            serial: device(f).map_or(0, |d| d.serial),
            kind: device(f).map(|d| d.pci.kind()),
        })
        .collect();
    let id = txn.new_erasure_id();
    let record = ErasureRecord {
        id,
        slot: slot.clone(),
        functions,
        model,
        host: binding.map(|b| b.host.clone()),
        allocation: binding.map(|b| b.allocation),
        binding: binding.map(|b| b.id),
        operation: binding.and_then(|b| b.operation),
        rule,
        state: ErasureState::Running,
        permille: 0,
        program_runs: false,
        detail: "waits for its turn".into(),
        since: txn.now(),
        ended: None,
    };
    for earlier in owed::same_device(txn, &record) {
        end(txn, earlier, ErasureState::Waived, format!("{id} is in its place"));
    }
    txn.put_erasure(record);
    id
}

/// An erasure is over, as `detail` says. Nothing happens if its state does not lead there.
pub fn end(txn: &mut Txn, id: ErasureId, state: ErasureState, detail: String) {
    let Some(record) = txn.erasures().get(&id).filter(|r| r.state.may_become(state)).cloned()
    else {
        return;
    };
    let kind = match state {
        ErasureState::Done => EventKind::Erased,
        _ => EventKind::NotErased,
    };
    let permille = if state == ErasureState::Done { 1000 } else { record.permille };
    let text = match state {
        ErasureState::Done => format!("{id}: {} is erased: {detail}", record.slot),
        ErasureState::Waived => format!("{id}: {} is taken as it is: {detail}", record.slot),
        _ if record.rule.required => format!(
            "{id}: {} is not erased and is not lent: {detail}; `dxpu-manager erase {}` tries again",
            record.slot, record.slot
        ),
        _ => format!("{id}: {} is not erased: {detail}", record.slot),
    };
    let event = EventRecord::new(kind, text.clone()).slot(&record.slot);
    txn.event(EventRecord {
        binding: record.binding,
        allocation: record.allocation,
        operation: record.operation,
        ..event
    });
    let ended = Some(txn.now());
    txn.put_erasure(ErasureRecord {
        state,
        detail,
        permille,
        program_runs: false,
        ended,
        ..ErasureRecord::clone(&record)
    });
    progress::erased(txn, &record, state, text);
}
