//! What the oracle of the frames has to know: under which terms bindings were taken, how many paths
//! there are, and which of them carry something.

use super::World;
use proxy_core::control::{Event as Said, Request};

impl World {
    /// A proxy took something into its tables.
    pub(super) fn watch_wire(&mut self, node: usize, request: &Request) {
        let wire = &mut self.wire;
        match request {
            Request::SetPeer(peer) => {
                wire.introduced(node, usize::from(peer.node.get()) - 1, peer.paths.len());
            }
            Request::BindSlot(binding) => {
                let host = usize::from(binding.host.get()) - 1;
                wire.lent((node, host), binding.key, binding.share, binding.path_set);
            }
            Request::BindPort(binding) => {
                let at_box = usize::from(binding.box_node.get()) - 1;
                for (function, epoch) in &binding.functions {
                    let key = tlp_codec::ids::BindingKey {
                        slot: binding.slot,
                        function: *function,
                        epoch: *epoch,
                    };
                    wire.lent((node, at_box), key, binding.share, binding.path_set);
                }
            }
            _ => {}
        }
    }

    /// A proxy tells of its links and paths.
    pub(super) fn hear_paths(&mut self, node: usize, event: &Said) {
        let wire = &mut self.wire;
        let index = |peer: &tlp_codec::ids::NodeId| usize::from(peer.get()) - 1;
        match event {
            Said::LinkUp { peer } => wire.link(node, index(peer), true),
            Said::LinkDown { peer, .. } => wire.link(node, index(peer), false),
            Said::PathFound { peer, path } => wire.path(node, index(peer), path.get(), true),
            Said::PathLost { peer, path } => wire.path(node, index(peer), path.get(), false),
            _ => {}
        }
    }

    /// Links with bindings that are in use, of which not every path carries something.
    pub(super) fn lame_links(&self) -> Vec<(usize, usize, u8)> {
        let mut lame = self.wire.lame();
        let hosts = self.hosts.len();
        lame.retain(|(from, to, _)| {
            self.bindings.all().iter().any(|binding| {
                let (host, at_box) = (binding.host, hosts + binding.at_box);
                binding.is_sound() && (host, at_box) == (*from.min(to), *from.max(to))
            })
        });
        lame
    }
}
