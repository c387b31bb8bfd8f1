//! Who is let in.

use super::session::Identity;
use crate::manager::Manager;
use crate::records::Txn;
use crate::types::{EventKind, EventRecord, NodeName, NodeRecord, Problem, Role};
use proxy_core::control::{CONTROL_VERSION, Hello, RoleKind};
use proxy_core::limits::{MAX_PORTS, MIN_FRAME};
use std::net::SocketAddr;
use tlp_codec::ids::NodeId;

/// Checks what a proxy says of itself and gives it its node number. The number is in the store
/// before this returns.
///
/// # Errors
///
/// Why it is not let in, for a person who reads the proxy's log.
pub async fn admit(
    manager: &Manager,
    hello: &Hello,
    remote: SocketAddr,
) -> Result<Identity, String> {
    let (name, role, size) = check(hello)?;
    let own_term = manager.term();
    if hello.term > own_term {
        let later = hello.term.0;
        let learned = manager.records.apply(|txn| {
            txn.learn_term(later);
        });
        learned.await.map_err(|problem| problem.to_string())?;
        let how = match manager.records.snapshot().meta().highest_term_seen >= later {
            true => format!(
                "another manager is or was in charge, or this one's store was put back. If this \
                 one is to be in charge, restart it; it then begins a term above {later}"
            ),
            false => "no manager begins terms so far above; restart the proxy".to_owned(),
        };
        let own = own_term.0;
        return Err(format!(
            "{name} obeyed a manager with the later term {later}, this one has {own}: {how}"
        ));
    }
    let claimed = hello.node;
    let entered = manager.records.change(|txn| Ok(enter(txn, &name, role, size, claimed)));
    let record = entered.await.map_err(|problem: Problem| problem.to_string())??;
    Ok(Identity {
        name,
        role,
        size,
        node: record.node,
        incarnation: hello.incarnation,
        paths: hello.paths.iter().copied().collect(),
        mtu: hello.mtu,
        remote,
        since: record.last_connected,
    })
}

/// What can be told from the message alone.
fn check(hello: &Hello) -> Result<(NodeName, Role, u8), String> {
    if hello.version != CONTROL_VERSION {
        return Err(format!(
            "the proxy speaks version {} of the control protocol, this manager version \
             {CONTROL_VERSION}; use releases of both that have the same",
            hello.version
        ));
    }
    let name = NodeName::new(hello.name.as_str()).map_err(|error| error.to_string())?;
    let (role, size) = match hello.role {
        RoleKind::Host { ports } if ports == 0 || usize::from(ports) > MAX_PORTS => {
            return Err(format!("a host proxy has 1 to {MAX_PORTS} ports, {name} has {ports}"));
        }
        RoleKind::Host { ports } => (Role::Host, ports),
        RoleKind::Box { slots: 0 } => return Err(format!("{name} has no slots")),
        RoleKind::Box { slots } => (Role::Box, slots),
    };
    if hello.paths.is_empty() {
        return Err(format!("{name} has no path; give it an interface or a UDP address"));
    }
    if usize::from(hello.mtu) < MIN_FRAME {
        return Err(format!("{name} takes frames of {} bytes; {MIN_FRAME} are needed", hello.mtu));
    }
    Ok((name, role, size))
}

/// Most contradictions between the inventory and a proxy that become events when it joins; the
/// inventory's warnings name all.
const MAX_MISPLACED: usize = 16;

/// Enters it in the records. Says why not for a person. A proxy that has a number in this life keeps
/// it, if the records do not know better: they are new, or older than the proxy.
fn enter(
    txn: &mut Txn,
    name: &NodeName,
    role: Role,
    size: u8,
    claimed: Option<NodeId>,
) -> Result<NodeRecord, String> {
    let now = txn.now();
    let owner = claimed.and_then(|node| txn.node_by_number(node));
    if let (Some(node), Some(owner)) = (claimed, owner)
        && owner.name != *name
    {
        return Err(format!(
            "{name} is node {node} in this life, and the records have {} under that number: they \
             are not those that numbered it. Restart {name}, or this manager on the store that it \
             had",
            owner.name
        ));
    }
    if let (Some(node), Some(owner)) = (claimed, claimed.and_then(|node| txn.forgotten(node)))
        && owner != name
    {
        return Err(format!(
            "{name} is node {node} in this life, and that number was {owner}'s, which was forgotten: \
             it is given to no other. Restart {name}"
        ));
    }
    if let Some(known) = txn.nodes().get(name) {
        if let Some(node) = claimed.filter(|&node| node != known.node) {
            return Err(format!(
                "{name} is node {node} in this life and {} in the records: they are not those \
                 that numbered it. Restart {name}, or this manager on the store that it had",
                known.node
            ));
        }
        if known.role != role {
            return Err(format!(
                "{name} is known as a {}, and its name cannot become a {role}'s; give the {role} \
                 another name",
                known.role
            ));
        }
        let is_as_it_was = known.size == size;
        let record = NodeRecord { size, last_connected: now, ..known.clone() };
        txn.put_node(record.clone());
        if !is_as_it_was {
            say_misplaced(txn, &record);
        }
        return Ok(record);
    }
    let free = || txn.new_node_id().ok_or("all node numbers have been given out");
    let node = claimed.map_or_else(free, Ok)?;
    let record = NodeRecord::new(name.clone(), node, role, size, now);
    if let Some(node) = claimed {
        txn.learn_node_id(node);
    }
    txn.put_node(record.clone());
    let detail = format!("{role} {name} is node {node} from now on");
    txn.event(EventRecord::new(EventKind::NodeAdded, detail).node(name));
    say_misplaced(txn, &record);
    Ok(record)
}

/// Says what the inventory says of a proxy that is here now, or is another size now, and is not so.
fn say_misplaced(txn: &mut Txn, node: &NodeRecord) {
    for warning in txn.misplaced_of(node).into_iter().take(MAX_MISPLACED) {
        txn.event(EventRecord::new(EventKind::InventoryContradicted, warning).node(&node.name));
    }
}
