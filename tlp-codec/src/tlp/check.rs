//! The rules, checked on what a TLP says: the same for what came and for what is to be sent.

use super::{
    AddressType, AtomicOp, Attributes, ByteEnables, Kind, MAX_PREFIXES, MsgCode, MsgRouting,
    Packet, Prefixes, Repr, Rule, RuleError,
};

/// `Err` with the rule and the value, unless the condition holds.
fn require(holds: bool, rule: Rule, found: impl Into<u64>) -> Result<(), RuleError> {
    if holds { Ok(()) } else { Err(rule.broken_by(found.into())) }
}

impl Repr<'_> {
    /// Checks every rule that does not depend on how the receiver is configured.
    ///
    /// # Errors
    ///
    /// The first rule that is broken.
    #[inline]
    pub fn check(&self) -> Result<(), RuleError> {
        let Self { prefixes, kind, traffic_class, attributes, address_type, .. } = self;
        check(prefixes, kind, *traffic_class, *attributes, *address_type)
    }

    /// Checks the data against the Max_Payload_Size in force, in bytes.
    ///
    /// # Errors
    ///
    /// [`Rule::PayloadAboveMax`], with the data's length in bytes.
    pub fn check_max_payload(&self, max: usize) -> Result<(), RuleError> {
        let len = self.data().len();
        require(len <= max, Rule::PayloadAboveMax, len as u64)
    }

    /// Checks that a completion that is not the last of its memory read ends at the read
    /// completion boundary, `boundary` bytes (64 or 128). Anything else passes.
    ///
    /// # Errors
    ///
    /// [`Rule::ReadCompletionBoundary`], with the lower address where the data ends.
    pub fn check_read_completion_boundary(&self, boundary: u8) -> Result<(), RuleError> {
        let Kind::Completion { byte_count, lower_address, data, bcm: false, .. } = self.kind else {
            return Ok(());
        };
        let touched = data.len().saturating_sub(usize::from(lower_address & 3));
        let last = data.is_empty() || usize::from(byte_count) <= touched;
        let end = usize::from(lower_address) + touched;
        let at_boundary = end % usize::from(boundary.max(1)) == 0;
        require(last || at_boundary, Rule::ReadCompletionBoundary, end as u64)
    }

    /// Checks that the data, if there is any, is not poisoned.
    ///
    /// # Errors
    ///
    /// [`Rule::Poisoned`], with the data's length in bytes.
    pub fn check_poison(&self) -> Result<(), RuleError> {
        let len = self.data().len();
        require(!self.poisoned || len == 0, Rule::Poisoned, len as u64)
    }

    /// Checks that a message is one that somebody defined. Anything else passes.
    ///
    /// # Errors
    ///
    /// [`Rule::UnknownMessage`], with the code.
    pub fn check_known_message(&self) -> Result<(), RuleError> {
        let Kind::Message { code: MsgCode::Unknown(code), .. } = self.kind else { return Ok(()) };
        Err(Rule::UnknownMessage.broken_by(code.into()))
    }
}

/// [`Repr::check`] on what the rules are about.
#[inline(always)]
pub(super) fn check(
    prefixes: &Prefixes,
    kind: &Kind<'_>,
    traffic_class: u8,
    attributes: Attributes,
    address_type: AddressType,
) -> Result<(), RuleError> {
    if !prefixes.is_empty() {
        check_prefixes(prefixes)?;
    }
    match *kind {
        Kind::MemRead { address, length_dw, enables, .. } => {
            check_memory(address, length_dw, enables)
        }
        Kind::MemWrite { address, enables, data, .. } => {
            check_memory(address, (data.len() / 4) as u16, enables)
        }
        Kind::DeferrableMemWrite { address, enables, data, .. } => {
            check_memory(address, (data.len() / 4) as u16, enables)?;
            require(data.len() <= 128, Rule::DeferrableWriteTooLong, data.len() as u64)
        }
        Kind::IoRead { .. }
        | Kind::IoWrite { .. }
        | Kind::ConfigRead { .. }
        | Kind::ConfigWrite { .. } => check_fixed_request(traffic_class, attributes, address_type),
        Kind::Message { routing, code, data, .. } => {
            check_message(routing, code, data.len(), traffic_class)
        }
        Kind::Completion { byte_count, lower_address, data, .. } => {
            check_completion(byte_count, lower_address, data.len())
        }
        Kind::Atomic { op, address, data, .. } => check_atomic(op, address, data.len()),
    }
}

/// What holds for all I/O and configuration requests.
fn check_fixed_request(
    traffic_class: u8,
    attributes: Attributes,
    at: AddressType,
) -> Result<(), RuleError> {
    let ordered = attributes.relaxed_ordering || attributes.no_snoop;
    require(traffic_class == 0, Rule::RequestTrafficClass, traffic_class)?;
    require(!ordered, Rule::RequestAttributes, attributes.bits())?;
    require(at == AddressType::Untranslated, Rule::RequestAddressType, at.bits())
}

impl<T: AsRef<[u8]>> Packet<T> {
    /// Checks the digest, if there is one.
    ///
    /// # Errors
    ///
    /// [`Rule::Ecrc`], with the digest that was found.
    pub fn check_digest(&self) -> Result<(), RuleError> {
        let good = self.digest_is_good().unwrap_or(true);
        require(good, Rule::Ecrc, self.digest().unwrap_or_default())
    }
}

/// Local prefixes first, then at most four end-to-end ones.
#[cold]
fn check_prefixes(prefixes: &Prefixes) -> Result<(), RuleError> {
    let mut end_to_end = 0_u8;
    for (i, prefix) in prefixes.iter().enumerate() {
        if prefix.is_end_to_end() {
            end_to_end += 1;
        } else {
            require(end_to_end == 0, Rule::LocalPrefixBehindEndToEnd, i as u64)?;
        }
    }
    require(end_to_end < MAX_PREFIXES as u8, Rule::TooManyPrefixes, end_to_end)
}

#[inline]
fn check_memory(address: u64, length_dw: u16, enables: ByteEnables) -> Result<(), RuleError> {
    check_enables(address, length_dw, enables)?;
    let end = (address & 0xffc) + u64::from(length_dw) * 4;
    require(end <= 4096, Rule::Crosses4K, address)
}

#[inline]
fn check_enables(address: u64, length_dw: u16, enables: ByteEnables) -> Result<(), RuleError> {
    let ByteEnables { first, last } = enables;
    if length_dw == 1 {
        return require(last == 0, Rule::LastEnablesOfOneDw, last);
    }
    require(first != 0, Rule::FirstEnablesEmpty, first)?;
    require(last != 0, Rule::LastEnablesEmpty, last)?;
    if length_dw == 2 && address & 4 == 0 {
        return Ok(());
    }
    let upward = matches!(first, 0b1111 | 0b1110 | 0b1100 | 0b1000);
    let downward = matches!(last, 0b1111 | 0b0111 | 0b0011 | 0b0001);
    require(upward, Rule::FirstEnablesGap, first)?;
    require(downward, Rule::LastEnablesGap, last)
}

fn check_atomic(op: AtomicOp, address: u64, len: usize) -> Result<(), RuleError> {
    let (operand, largest) = match op {
        AtomicOp::FetchAdd | AtomicOp::Swap => (len, 8),
        AtomicOp::Cas => (len / 2, 16),
    };
    let architected = matches!(operand, 4 | 8 | 16) && operand <= largest;
    require(architected, Rule::AtomicLength, len as u64 / 4)?;
    require(address & (operand as u64 - 1) == 0, Rule::AtomicAlignment, address)
}

/// More data than `byte_count` bytes from `lower_address` on touch. A completion without data
/// may say anything: its byte count is 4 or that of the read that it ends.
#[inline]
fn check_completion(byte_count: u16, lower_address: u8, len: usize) -> Result<(), RuleError> {
    let reach = usize::from(lower_address & 3) + usize::from(byte_count);
    require(len <= reach.next_multiple_of(4), Rule::CompletionByteCount, byte_count)
}

fn check_message(
    routing: MsgRouting,
    code: MsgCode,
    len: usize,
    traffic_class: u8,
) -> Result<(), RuleError> {
    let Some(form) = code.form() else { return Ok(()) };
    require(form.allows_routing(routing), Rule::MessageRouting, routing as u8)?;
    require(form.allows_data(len), Rule::MessageData, len as u64)?;
    require(!form.traffic_class_0 || traffic_class == 0, Rule::MessageTrafficClass, traffic_class)
}
