//! Mistakes that can be planted, one at a time, to see that the simulator finds them: a watch that
//! never barks may be asleep. Without the feature `canaries`, which nothing but the simulator's
//! own test turns on, none of this is compiled in.

/// A mistake that an implementation could make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(feature = "canaries"), allow(dead_code, unreachable_pub))]
pub enum Canary {
    /// Link: non-posted TLPs and completions pass posted ones.
    IgnoreOrder,
    /// Link: records of another epoch are taken for the binding that is open.
    IgnoreEpoch,
    /// Link: records are taken again when they come again.
    IgnoreDuplicates,
    /// Link: records are acknowledged that were not stored.
    AcknowledgeEarly,
    /// Link: a drained TLP's credit does not come back.
    ForgetCredit,
    /// Link: a lost record is not sent again.
    ForgetLoss,
    /// Link: a TLP's own CRC is not looked at.
    IgnoreTlpCrc,
    /// Link: that of one that came in parts is not.
    IgnoreSplitCrc,
    /// Link: what speaks of a path that has just been taken away breaks the protocol.
    RefuseLateAck,
    /// Link: a record of a closed binding becomes nothing, and what is behind it is taken.
    NothingForClosed,
    /// Link: a binding sends what it has, whatever its limit.
    IgnoreLimit,
    /// Link: a binding's turn ends when it has nothing more to send.
    EndlessTurn,
    /// Link: a binding's TLPs take any path that carries something.
    IgnorePathSet,
    /// Link: a path that is there again is not tried.
    ForgetPath,
    /// Link: a path that nothing comes back from is used like the others.
    UseDeadPaths,
    /// Link: what only acknowledges takes the quickest path, wherever that came from, and so does what
    /// is sent again when no path is good.
    AnswerByQuickest,
    /// Outstanding requests do not run out.
    DropCompletionTimer,
    /// A tag that was given up on is used again at once.
    ReuseQuarantinedTag,
    /// The first of several completions of a read ends it.
    EndSplitEarly,
    /// Host: a request is not over when its last completion came.
    CompleteTwice,
    /// Host: a posted TLP is dropped where there is no room for it.
    DropWhenFull,
    /// Host: a tag whose answer the switch lets nobody have is not used again.
    LeakTag,
    /// Host: a completion does not get its requester's tag back.
    ForgetTag,
    /// Host: the room that was kept for completions that do not come is not given back.
    KeepRoom,
    /// Host: what a root complex does not take holds up what may pass it.
    PassNothing,
    /// Host: what waits for another device is passed by what may not pass it.
    PassHeld,
    /// Host: a device's posted TLP for another one is dropped where there is no room for it.
    DropHeld,
    /// Host: what a device sent before it was reset is taken after that.
    KeepStale,
    /// Link: what was queued or stored for a device when its host asserted PERST# goes to it after
    /// that.
    KeepQueueAtPerst,
    /// Host: with a binding that fails do all others of its box.
    FailNeighbours,
    /// Box: a device goes to its next host as its last one left it.
    SkipReset,
    /// Box: a device that is not ready after a reset is not asked again.
    AskOnce,
    /// Host: once a port has memory windows they stay as they are.
    KeepWindows,
    /// Host: a device that took nothing for too long is not waited for when it takes something again.
    KeepStuck,
    /// Box: of a device's answer in several parts each is taken for the first.
    ForgetProgress,
    /// Box: what comes under the ID of a function that is not there is its first one's.
    TakeNobodys,
    /// A completion that a proxy makes is for nobody.
    RefuseAsNobody,
    /// Switch: what a device asks of another one goes aside though it is to be redirected.
    IgnoreRequestRedirect,
    /// Switch: so does what a device answers another one.
    IgnoreCompletionRedirect,
    /// Box: what a function asked before it was reset is answered after that.
    KeepTagsAtFlr,
    /// Box: what all functions of a device asked is forgotten when one of them is reset.
    FlrForAll,
    /// A manager of an earlier term is obeyed.
    IgnoreTerm,
    /// One answer in eight is not given.
    SwallowAnswer,
    /// A TLP's digest stays as it was where its tag or an ID is changed.
    StaleDigest,
    /// A completion that a proxy makes has traffic class 0.
    ForgetClass,
    /// A read's steering tag is taken for its byte enables.
    IgnoreHints,
    /// Switch: what is poisoned is dropped.
    DropPoisoned,
    /// Switch: a port whose link is down holds its INTx wires.
    KeepWires,
    /// Host: a message to all devices goes to the first one only.
    TellFirst,
    /// A frame that is none is dropped without being counted.
    DropUncounted,
    /// Box: a device that does not answer when it was reset is lent all the same.
    TrustSilent,
    /// Host: what is answered in the second half of its time is not.
    LoseLateAnswer,
    /// Switch: what a device asks goes up whether its port masters or not.
    MasterAlways,
    /// Switch: a port that does not master lets no completion up, either.
    RefuseAnswers,
    /// Host: base address registers stay where they were first.
    KeepPlaces,
}

impl Canary {
    /// Every one.
    #[cfg(feature = "canaries")]
    pub const ALL: [Canary; 55] = [
        Self::IgnoreOrder,
        Self::IgnoreEpoch,
        Self::IgnoreDuplicates,
        Self::AcknowledgeEarly,
        Self::ForgetCredit,
        Self::ForgetLoss,
        Self::IgnoreTlpCrc,
        Self::IgnoreSplitCrc,
        Self::RefuseLateAck,
        Self::NothingForClosed,
        Self::IgnoreLimit,
        Self::EndlessTurn,
        Self::IgnorePathSet,
        Self::ForgetPath,
        Self::UseDeadPaths,
        Self::AnswerByQuickest,
        Self::DropCompletionTimer,
        Self::ReuseQuarantinedTag,
        Self::EndSplitEarly,
        Self::CompleteTwice,
        Self::DropWhenFull,
        Self::LeakTag,
        Self::ForgetTag,
        Self::KeepRoom,
        Self::PassNothing,
        Self::PassHeld,
        Self::DropHeld,
        Self::KeepStale,
        Self::KeepQueueAtPerst,
        Self::FailNeighbours,
        Self::SkipReset,
        Self::AskOnce,
        Self::KeepWindows,
        Self::KeepStuck,
        Self::ForgetProgress,
        Self::TakeNobodys,
        Self::RefuseAsNobody,
        Self::IgnoreRequestRedirect,
        Self::IgnoreCompletionRedirect,
        Self::KeepTagsAtFlr,
        Self::FlrForAll,
        Self::IgnoreTerm,
        Self::SwallowAnswer,
        Self::StaleDigest,
        Self::ForgetClass,
        Self::IgnoreHints,
        Self::DropPoisoned,
        Self::KeepWires,
        Self::TellFirst,
        Self::DropUncounted,
        Self::TrustSilent,
        Self::LoseLateAnswer,
        Self::MasterAlways,
        Self::RefuseAnswers,
        Self::KeepPlaces,
    ];
}

#[cfg(feature = "canaries")]
std::thread_local! {
    static PLANTED: core::cell::Cell<Option<Canary>> = const { core::cell::Cell::new(None) };
}

/// Plants a mistake in everything that this thread runs from now on, or takes it out.
#[cfg(feature = "canaries")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// Whether this mistake is planted here.
#[cfg(feature = "canaries")]
pub(crate) fn planted(canary: Canary) -> bool {
    PLANTED.get() == Some(canary)
}

/// Whether this mistake is planted here: none is.
#[cfg(not(feature = "canaries"))]
#[inline(always)]
pub(crate) const fn planted(_: Canary) -> bool {
    false
}
