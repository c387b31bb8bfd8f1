//! Round trips of bare frames between two ports: the floor that a proxy's round trip is measured
//! against, on the same interfaces in the same run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::{Address, BATCH, NetError, Port, Sent};

/// How long a frame may be away before it counts as lost and the next one is sent.
const LOST_AFTER: Duration = Duration::from_millis(100);

/// Frames in a row that may be lost before nobody is there.
const LOST_IN_A_ROW: u32 = 10;

/// Sends every frame back to where it came from, spinning, until told to stop.
///
/// # Errors
///
/// When the port is broken.
pub fn reflect(port: &mut dyn Port, stop: &AtomicBool) -> Result<(), NetError> {
    let mut frames = vec![(port.local_address(), Vec::with_capacity(port.mtu())); BATCH];
    while !stop.load(Ordering::Relaxed) {
        let mut count = 0;
        port.receive(&mut |from, bytes| {
            if let Some((address, frame)) = frames.get_mut(count) {
                *address = from.address;
                frame.clear();
                frame.extend_from_slice(bytes);
                count += 1;
            }
        })?;
        if count == 0 {
            std::hint::spin_loop();
            continue;
        }
        for (from, frame) in &frames[..count] {
            // A frame without room is lost; the other end counts that.
            let _: Sent = port.send(from, frame)?;
        }
        port.flush()?;
    }
    Ok(())
}

/// What [`round_trips`] saw.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoundTrips {
    /// The times, shortest first. Not empty.
    sorted: Vec<Duration>,
    /// Frames that did not come back in time.
    pub lost: u32,
}

impl RoundTrips {
    /// The time that so many in a thousand round trips did not exceed: 500 is the median.
    ///
    /// # Panics
    ///
    /// When `per_mille` is over 1000.
    pub fn quantile(&self, per_mille: usize) -> Duration {
        assert!(per_mille <= 1000, "{per_mille} in a thousand");
        self.sorted[(self.sorted.len() - 1) * per_mille / 1000]
    }

    /// The number of round trips measured.
    pub fn count(&self) -> usize {
        self.sorted.len()
    }
}

/// Sends frames of `len` bytes one at a time to a port that [`reflect`]s, spinning, and takes the
/// time until each is back. A tenth of `count` are sent before that, to warm up.
///
/// # Errors
///
/// When the port is broken, or `Ok(None)` when nothing comes back.
///
/// # Panics
///
/// When `len` is under 8 bytes or `count` is zero.
pub fn round_trips(
    port: &mut dyn Port,
    to: &Address,
    len: usize,
    count: u32,
) -> Result<Option<RoundTrips>, NetError> {
    assert!(len >= 8 && count > 0, "frames carry a number, and at least one is sent");
    let warm_up = count / 10;
    let mut frame = vec![0; len];
    let mut sorted = Vec::with_capacity(count as usize);
    let (mut lost, mut in_a_row) = (0, 0);
    for number in 0..u64::from(warm_up) + u64::from(count) {
        frame[..8].copy_from_slice(&number.to_be_bytes());
        let time = round_trip(port, to, &frame)?;
        in_a_row = if time.is_some() { 0 } else { in_a_row + 1 };
        if in_a_row == LOST_IN_A_ROW {
            return Ok(None);
        }
        if number >= u64::from(warm_up) {
            lost += u32::from(time.is_none());
            sorted.extend(time);
        }
    }
    sorted.sort_unstable();
    Ok((!sorted.is_empty()).then_some(RoundTrips { sorted, lost }))
}

fn round_trip(
    port: &mut dyn Port,
    to: &Address,
    frame: &[u8],
) -> Result<Option<Duration>, NetError> {
    let start = Instant::now();
    if port.send(to, frame)? == Sent::Full {
        return Ok(None);
    }
    port.flush()?;
    let mut back = false;
    while !back {
        // Late answers to earlier frames carry other numbers.
        let got = port.receive(&mut |_, answer| back |= answer.get(..8) == frame.get(..8))?;
        if got == 0 && start.elapsed() > LOST_AFTER {
            return Ok(None);
        }
    }
    Ok(Some(start.elapsed()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryPort;

    #[test]
    fn every_frame_comes_back_once() {
        let (mut a, mut b) = MemoryPort::pair(100, 8);
        let to = b.local_address();
        let stop = AtomicBool::new(false);
        let trips = std::thread::scope(|scope| {
            scope.spawn(|| reflect(&mut b, &stop).unwrap());
            let trips = round_trips(&mut a, &to, 64, 100).unwrap();
            stop.store(true, Ordering::Relaxed);
            trips.unwrap()
        });
        assert!(trips.quantile(0) <= trips.quantile(500));
        assert!(trips.quantile(500) <= trips.quantile(1000));
        assert_eq!(trips.count() + trips.lost as usize, 100);
        assert_eq!(a.counters().sent_frames, 110);
    }

    #[test]
    fn nobody_there_is_noticed() {
        let (mut a, _b) = MemoryPort::pair(100, 1000);
        // The port that this is sent to does not answer; each frame is waited for.
        assert_eq!(round_trips(&mut a, &Address::Memory(1), 8, 1000).unwrap(), None);
    }
}
