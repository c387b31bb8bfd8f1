//! Messages from below: kept, and errors served as an operating system does.

use super::{HostEvent, ModelHost};
use crate::error::AccessError;
use crate::port::{PortError, TlpPort};
use crate::regs;
use crate::root::{MESSAGE_LOG, Message};
use tlp_codec::ids::Bdf;
use tlp_codec::tlp::MsgCode;

impl<P: TlpPort> ModelHost<P> {
    pub(super) fn serve_message(&mut self, message: Message) -> Result<(), PortError> {
        tracing::debug!(?message, "message from below");
        if self.messages.len() == MESSAGE_LOG {
            self.messages.pop_front();
        }
        self.messages.push_back(message);
        let (severity, register) = match message.code {
            MsgCode::ErrCor => ("correctable", regs::AER_CORRECTABLE),
            MsgCode::ErrNonFatal => ("non-fatal", regs::AER_UNCORRECTABLE),
            MsgCode::ErrFatal => ("fatal", regs::AER_UNCORRECTABLE),
            _ => return Ok(()),
        };
        let status = match self.take_error(message.requester, register) {
            Ok(status) => status,
            Err(AccessError::Port(error)) => return Err(error),
            Err(error) => {
                tracing::debug!(%error, "no error status");
                None
            }
        };
        self.event(HostEvent::ErrorMessage { requester: message.requester, severity, status });
        Ok(())
    }

    /// Reads and clears what a function has latched of an error, so that the next one is told.
    fn take_error(&mut self, bdf: Bdf, register: u16) -> Result<Option<u32>, AccessError> {
        let Some(node) = self.topology.get(bdf) else { return Ok(None) };
        let aer = node.extended_capability(regs::EXT_AER);
        if let Some(express) = node.capability(regs::CAP_EXPRESS) {
            let all = regs::DEVCTL_ERRORS.into();
            self.root.config_write(bdf, express + regs::EXP_DEVSTA, 2, all)?;
        }
        let Some(at) = aer else { return Ok(None) };
        let status = self.root.config_read(bdf, at + register)?;
        self.root.config_write(bdf, at + register, 4, status)?;
        Ok(Some(status))
    }
}
