//! What stands in the way of a running operation, for a person.

use crate::control::Registry;
use crate::records::Tables;
use crate::types::{
    BindingRecord, NodeName, OperationKind, OperationRecord, Step, StepName, StepState,
};

/// The proxies that a step needs.
fn needed(step: StepName, binding: &BindingRecord) -> Vec<&NodeName> {
    let (at_host, at_box) = (&binding.host, binding.slot.box_name());
    match step {
        StepName::BindSlot | StepName::BindPort | StepName::Rebind => vec![at_host, at_box],
        // By an operation of its own, which says so itself.
        StepName::Replace => Vec::new(),
        StepName::Enumerate | StepName::UnbindPort => vec![at_host],
        StepName::UnbindSlot | StepName::Erase => vec![at_box],
    }
}

/// That a proxy, or a host's root complex, is away which a step needs, and since when.
pub fn of_step(tables: &Tables, registry: &Registry, step: &Step) -> Option<String> {
    let binding = tables.bindings().get(&step.binding)?;
    let away = needed(step.name, binding).into_iter().filter_map(|name| registry.absence(name));
    let enumerates = step.name == StepName::Enumerate;
    let off = enumerates.then(|| registry.no_root_complex(&binding.host)).flatten();
    Some(away.chain(off).collect::<Vec<_>>().join(", ")).filter(|text| !text.is_empty())
}

/// An operation with what its open steps wait for in their details, which is not recorded.
pub fn explained(
    mut operation: OperationRecord,
    tables: &Tables,
    registry: &Registry,
) -> OperationRecord {
    for step in operation.steps.iter_mut().filter(|step| step.state == StepState::Pending) {
        step.detail = of_step(tables, registry, step).or(step.detail.take());
    }
    operation
}

/// How a release that has had its time gets on, and what can be done about it.
pub fn advice(tables: &Tables, registry: &Registry, operation: &OperationRecord) -> String {
    let away = |name: StepName| {
        let open = |s: &&Step| s.name == name && s.state == StepState::Pending;
        let bindings = operation.steps.iter().filter(open).filter_map(|step| {
            let binding = tables.bindings().get(&step.binding)?;
            Some(needed(name, binding))
        });
        let gone = bindings.flatten().filter(|name| registry.absence(name).is_some());
        let mut names: Vec<&str> = gone.map(NodeName::as_str).collect();
        names.sort_unstable();
        names.dedup();
        names.join(" and ")
    };
    let (hosts, boxes) = (away(StepName::UnbindPort), away(StepName::UnbindSlot));
    let forced = matches!(
        operation.what,
        OperationKind::Release { force: true, .. } | OperationKind::Forget { .. }
    );
    let in_host = operation
        .steps
        .iter()
        .any(|s| s.name == StepName::UnbindPort && s.state == StepState::Pending);
    let back = match (&hosts[..], &boxes[..]) {
        ("", "") => String::new(),
        (one, "") | ("", one) => format!(" when {one} is back"),
        (hosts, boxes) => format!(" when {hosts} and {boxes} are back"),
    };
    let mut text = format!("It goes on by itself{back}");
    if in_host && !forced {
        text += match &hosts[..] {
            "" => "; --force takes the device without asking the operating system",
            _ => "; --force does not wait for the host",
        };
    }
    if !boxes.is_empty() {
        text +=
            "; only a box resets its device and frees the slot, and --force does not change that";
    }
    text
}
