//! What is asked about erasing by hand: try again, erase now, or take a device as it is.

use super::{end, record, rule_for};
use crate::records::Txn;
use crate::types::{
    DEFAULT_ERASE_WITHIN_S, DeviceState, EraseMeans, EraseRule, ErasureId, ErasureRecord,
    ErasureState, FunctionEpoch, Problem, ProblemCode, SlotAddress,
};
use std::sync::Arc;

/// What an erasure by hand does where no rule is for the device: any means, and the slot is kept
/// until it is erased.
fn any_means() -> EraseRule {
    let means = EraseMeans::ALL.to_vec();
    let within_s = DEFAULT_ERASE_WITHIN_S;
    EraseRule { class: None, model: None, means, hook: None, within_s, required: true }
}

/// Records that the device in a slot that is not lent is to be erased now.
///
/// # Errors
///
/// When it is lent, empty, not ready, or erased already at the moment; when it is quarantined, and
/// would have to be erased by its own means.
pub fn erase(
    txn: &mut Txn,
    rules: &[EraseRule],
    slot: &SlotAddress,
) -> Result<Arc<ErasureRecord>, Problem> {
    free_to_erase(txn, slot)?;
    let devices: Vec<_> = txn.functions(slot).cloned().collect();
    let rule = devices.iter().find_map(|d| rule_for(rules, d)).cloned().unwrap_or_else(any_means);
    if rule.hook.is_none() && devices.iter().any(|d| d.state == DeviceState::Quarantined) {
        let detail = format!(
            "slot {slot} is quarantined, and its box does not touch the device: `dxpu-manager \
             recover {slot}` first"
        );
        return Err(Problem::new(ProblemCode::SlotQuarantined, detail));
    }
    let mut functions = Vec::new();
    for device in &devices {
        let epoch = txn.new_epoch(&device.address)?;
        functions.push(FunctionEpoch { function: device.address.function, epoch });
    }
    let id = record(txn, slot, &functions, &devices, None, rule);
    Ok(txn.erasures()[&id].clone())
}

/// Takes the device in a slot that could not be erased, or cannot be now, as it is; of an empty slot,
/// what was taken out of it.
///
/// # Errors
///
/// When there is nothing to take.
pub fn waive(
    txn: &mut Txn,
    slot: &SlotAddress,
    reason: &str,
) -> Result<Arc<ErasureRecord>, Problem> {
    let Some(id) = txn.erasure_at(slot).map(|record| record.id) else {
        let detail = format!("slot {slot} has no erasure that failed");
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    };
    waive_one(txn, id, reason)
}

/// Takes the device of an erasure as it is, wherever it is.
///
/// # Errors
///
/// When there is no such erasure, it is over, or a program is at it.
pub fn waive_one(
    txn: &mut Txn,
    id: ErasureId,
    reason: &str,
) -> Result<Arc<ErasureRecord>, Problem> {
    let Some(record) = txn.erasures().get(&id).cloned() else {
        let detail = format!("there is no erasure {id}, or it is no longer kept");
        return Err(Problem::new(ProblemCode::NoSuchErasure, detail));
    };
    if !record.state.may_become(ErasureState::Waived) {
        let detail = format!("{id} is {} already: {}", record.state, record.detail);
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    // A box keeps a device that it is at from others; a program does not.
    if record.state == ErasureState::Running && record.program_runs {
        let (slot, since) = (&record.slot, record.since);
        let detail = format!("slot {slot} is being erased by a program ({id}) since {since}");
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    end(txn, id, ErasureState::Waived, reason.to_owned());
    Ok(txn.erasures()[&id].clone())
}

fn free_to_erase(txn: &Txn, slot: &SlotAddress) -> Result<(), Problem> {
    if let Some(binding) = txn.binding_at_slot(slot) {
        let owner = binding.owner();
        let detail = format!("slot {slot} is lent to {owner}; release it first");
        return Err(Problem::new(ProblemCode::SlotInUse, detail).owned_by(owner));
    }
    if let Some(there) = txn.erasure_at(slot)
        && there.state == ErasureState::Running
    {
        let (id, since) = (there.id, there.since);
        let detail = format!("slot {slot} is being erased already ({id}) since {since}");
        return Err(Problem::new(ProblemCode::SlotBusy, detail));
    }
    let is_empty = |state| state == DeviceState::Empty;
    if txn.functions(slot).all(|device| is_empty(device.state)) {
        return Err(Problem::new(ProblemCode::SlotEmpty, format!("slot {slot} has no device")));
    }
    Ok(())
}
