//! Erasing devices between one tenant and the next: by the device's own means, which its box uses,
//! or by a program of the operator's.
//!
//! When a binding ends, [`begin`] writes down that its device is to be erased, in the same change; a
//! slot with such a record cannot be lent. [`driver`] asks the box, or runs the program, until it is
//! over, and writes what came of it. All of it may be asked again: the binding that ended names the
//! erasure at the box.

pub mod driver;
mod hook;
pub mod request;

use crate::operations::progress;
use crate::records::Txn;
use crate::types::{
    BindingRecord, DeviceRecord, EraseRule, ErasedFunction, ErasureId, ErasureRecord, ErasureState,
    EventKind, EventRecord, FunctionAddress, FunctionEpoch, SlotAddress,
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
/// who had it, if a record says.
pub fn begin(
    txn: &mut Txn,
    rules: &[EraseRule],
    slot: &SlotAddress,
    functions: &[FunctionEpoch],
    binding: Option<&BindingRecord>,
) -> Option<ErasureId> {
    let rule = functions.iter().find_map(|f| rule_for(rules, device(txn, slot, f)?))?.clone();
    Some(record(txn, slot, functions, binding, rule))
}

/// A function of a slot, if its box reports it.
fn device<'a>(
    txn: &'a Txn,
    slot: &SlotAddress,
    function: &FunctionEpoch,
) -> Option<&'a DeviceRecord> {
    let function = function.function;
    txn.devices().get(&FunctionAddress { slot: slot.clone(), function })
}

/// Records an erasure by this rule.
fn record(
    txn: &mut Txn,
    slot: &SlotAddress,
    functions: &[FunctionEpoch],
    binding: Option<&BindingRecord>,
    rule: EraseRule,
) -> ErasureId {
    let device = |f: &FunctionEpoch| device(txn, slot, f);
    let model = functions.first().and_then(device).map(|d| d.model.clone()).unwrap_or_default();
    let functions = functions
        .iter()
        .map(|f| ErasedFunction { binding: *f, serial: device(f).map_or(0, |d| d.serial) })
        .collect();
    let id = txn.new_erasure_id();
    txn.put_erasure(ErasureRecord {
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
        detail: "waits for its turn".into(),
        since: txn.now(),
        ended: None,
    });
    id
}

/// An erasure is over.
fn end(txn: &mut Txn, id: ErasureId, state: ErasureState, detail: String) {
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
        ended,
        ..ErasureRecord::clone(&record)
    });
    progress::erased(txn, &record, state, text);
}
