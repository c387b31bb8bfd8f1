//! Allocations and bindings.

use super::{or_dash, table, text_or_dash};
use manager_client::views::{AllocationView, BindingView, List};
use std::time::Duration;

pub(super) fn bindings<'a>(list: impl IntoIterator<Item = &'a BindingView>) -> String {
    table(
        ["BINDING", "ALLOCATION", "SLOT", "MODEL", "HOST", "PORT", "EPOCH", "PHASE", "TROUBLE"],
        list.into_iter().map(|b| {
            [
                b.id.to_string(),
                b.allocation.to_string(),
                b.slot.to_string(),
                text_or_dash(&b.model),
                b.host.to_string(),
                b.port.to_string(),
                or_dash(b.functions.first().map(|f| &f.epoch)),
                b.phase.to_string(),
                or_dash(b.trouble.as_ref()),
            ]
        }),
    )
}

/// A binding.
pub(in crate::cli) fn binding(binding: &BindingView) -> String {
    bindings([binding])
}

/// An allocation.
pub(in crate::cli) fn allocation(allocation: &AllocationView) -> String {
    let reason = allocation.reason.as_ref().map(|r| format!(" ({r})")).unwrap_or_default();
    let heading = format!(
        "{} for host {} since {}{reason}",
        allocation.id, allocation.host, allocation.since
    );
    let lease = allocation.lease.as_ref().map(|lease| {
        let left = Duration::from_secs(lease.left_ms / 1000);
        let left = humantime::format_duration(left);
        format!("\nlent until {}, for {left} from now", lease.until)
    });
    format!("{heading}{}\n\n{}", lease.unwrap_or_default(), bindings(&allocation.bindings))
}

/// All allocations.
pub(in crate::cli) fn allocations(list: &List<AllocationView>) -> String {
    bindings(list.items.iter().flat_map(|allocation| &allocation.bindings))
}
