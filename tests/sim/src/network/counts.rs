//! What became of frames, counted: what no count shows may just as well not be there.

use super::InFlight;

/// Why a frame is lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    CutOff,
    CutOffOneWay,
    PathDead,
    PathDeadOneWay,
    /// The switch is being rebooted.
    Rebooting,
    /// The cable died by itself.
    Died,
    /// It was in a switch that was rebooted.
    Rebooted,
    TooLarge,
    QueueFull,
    OnCable,
    Damaged,
}

/// What each name of a [`Loss`] begins with.
const LOST: &str = "frames lost: ";

impl Loss {
    const ALL: [Self; 11] = [
        Self::CutOff,
        Self::CutOffOneWay,
        Self::PathDead,
        Self::PathDeadOneWay,
        Self::Rebooting,
        Self::Died,
        Self::Rebooted,
        Self::TooLarge,
        Self::QueueFull,
        Self::OnCable,
        Self::Damaged,
    ];

    /// By which name they are counted.
    const fn name(self) -> &'static str {
        match self {
            Self::CutOff => "frames lost: the node is cut off",
            Self::CutOffOneWay => "frames lost: the node is cut off one way",
            Self::PathDead => "frames lost: the path is dead",
            Self::PathDeadOneWay => "frames lost: the path is dead one way",
            Self::Rebooting => "frames lost: the switch is being rebooted",
            Self::Died => "frames lost: the cable is dead for a while",
            Self::Rebooted => "frames lost: the switch was rebooted",
            Self::TooLarge => "frames lost: larger than the MTU",
            Self::QueueFull => "frames lost: the queue is full",
            Self::OnCable => "frames lost: on the cable",
            Self::Damaged => "frames lost: damaged, and the FCS says so",
        }
    }

    /// For a person.
    pub(crate) fn why(self) -> &'static str {
        &self.name()[LOST.len()..]
    }

    /// Whether nothing passed there, one way at least.
    pub(super) fn is_cut(self) -> bool {
        !matches!(
            self,
            Self::Rebooted | Self::TooLarge | Self::QueueFull | Self::OnCable | Self::Damaged
        )
    }
}

/// Frames that come later than they would by themselves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldUp {
    /// A pause lets nothing leave.
    pub(super) by_pauses: u64,
    pub(super) by_spikes: u64,
    /// One alone is late, and others may overtake it.
    pub(super) alone: u64,
}

/// What became of frames.
#[derive(Debug, Default)]
pub(crate) struct Counts {
    lost: [u64; Loss::ALL.len()],
    /// Of each sender, receiver and path, the number of the latest frame that came.
    latest: Vec<u64>,
    overtaken: u64,
    /// Those that were doubled.
    again: u64,
    /// With bits flipped, and right by the FCS.
    flipped: u64,
    /// TLPs that were changed in frames that are right.
    lies: u64,
}

impl Counts {
    pub(super) fn new(flows: usize) -> Self {
        Self { latest: vec![0; flows], ..Self::default() }
    }

    pub(super) fn lost(&mut self, why: Loss) {
        self.lost[why as usize] += 1;
    }

    /// A frame is at its receiver.
    pub(super) fn arrived(&mut self, flow: usize, flight: &InFlight) {
        self.flipped += u64::from(!flight.harm.flipped.is_empty());
        self.lies += flight.harm.lies.len() as u64;
        // A second one is late in any case.
        if flight.again {
            self.again += 1;
            return;
        }
        let latest = &mut self.latest[flow];
        self.overtaken += u64::from(flight.number < *latest);
        *latest = flight.number.max(*latest);
    }

    /// By their names, with those that ports have held up.
    pub(super) fn list(&self, held: HeldUp) -> impl Iterator<Item = (&'static str, u64)> {
        let lost = Loss::ALL.map(|why| (why.name(), self.lost[why as usize]));
        let others = [
            ("frames that a pause held up", held.by_pauses),
            ("frames that a delay spike held up", held.by_spikes),
            ("frames that were late by themselves", held.alone),
            ("frames that others overtook", self.overtaken),
            ("frames that came again", self.again),
            ("damaged frames that came", self.flipped),
            ("TLPs that were changed in right frames", self.lies),
        ];
        lost.into_iter().chain(others)
    }
}
