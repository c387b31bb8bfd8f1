//! Lines that a thread of their own writes. Whoever reads them may stop reading, and a full pipe then
//! holds up who writes into it: that is never to be a data plane.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::{Duration, Instant};
use tracing_subscriber::fmt::MakeWriter;

/// How many lines wait; further ones are lost, and counted. Some seconds of a talkative daemon.
const WAITING: usize = 4096;

/// How often is looked whether all is written.
const LOOK: Duration = Duration::from_millis(1);

/// Where lines are put to be written.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    sender: SyncSender<Vec<u8>>,
    counts: Arc<Counts>,
}

#[derive(Debug, Default)]
struct Counts {
    /// Lines that wait, and the one that is being written.
    waiting: AtomicU64,
    /// Lines lost since this was last told.
    lost: AtomicU64,
}

impl Lines {
    /// Has a thread write into `to`, and `tell` how many lines were lost when it is through with
    /// those that waited.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub(super) fn start(
        to: impl Write + Send + 'static,
        tell: impl Fn(u64) + Send + 'static,
    ) -> io::Result<Self> {
        let (sender, receiver) = sync_channel(WAITING);
        let lines = Self { sender, counts: Arc::default() };
        let counts = Arc::clone(&lines.counts);
        let write = move || write_all(&receiver, to, &counts, tell);
        std::thread::Builder::new().name("log".into()).spawn(write)?;
        Ok(lines)
    }

    /// Puts a line to the others, or loses it.
    pub(super) fn put(&self, line: Vec<u8>) {
        self.counts.waiting.fetch_add(1, Ordering::Relaxed);
        if self.sender.try_send(line).is_err() {
            self.counts.waiting.fetch_sub(1, Ordering::Relaxed);
            self.counts.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Waits until all is written, but no longer than `bound`. Whether it is.
    pub(super) fn flush(&self, bound: Duration) -> bool {
        let deadline = Instant::now() + bound;
        while self.counts.waiting.load(Ordering::Relaxed) > 0 {
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::sleep(LOOK);
        }
        true
    }
}

fn write_all(lines: &Receiver<Vec<u8>>, mut to: impl Write, counts: &Counts, tell: impl Fn(u64)) {
    while let Ok(line) = lines.recv() {
        // What cannot be written (full disk, reader gone) is no reason to end.
        let _ = to.write_all(&line);
        // Told before it counts as written, so that a flush at the end waits for this as well. It is
        // a line itself, for which there is room now.
        let is_last = counts.waiting.load(Ordering::Relaxed) == 1;
        if is_last {
            match counts.lost.swap(0, Ordering::Relaxed) {
                0 => {}
                lost => tell(lost),
            }
        }
        counts.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Takes one event's text: `tracing_subscriber` writes it in one piece.
impl Write for &Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        self.put(line.to_vec());
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = &'a Lines;

    fn make_writer(&'a self) -> &'a Lines {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Mutex;
    use std::sync::mpsc::{Sender, channel};

    const LONG: Duration = Duration::from_secs(60);

    /// Takes each write when it is let.
    struct Held {
        let_on: Receiver<()>,
        written: Sender<Vec<u8>>,
    }

    impl Write for Held {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            // When nobody holds it any more it takes all.
            let _ = self.let_on.recv();
            let _ = self.written.send(bytes.to_vec());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_reader_that_stops_holds_up_nobody_and_lost_lines_are_told() {
        let (hold, let_on) = channel();
        let (written, read) = channel();
        let told = Arc::new(Mutex::new(Vec::new()));
        let telling = Arc::clone(&told);
        let tell = move |lost| telling.lock().unwrap().push(lost);
        let lines = Lines::start(Held { let_on, written }, tell).unwrap();
        // One is being written before the others come, so that as many wait as can.
        lines.put(b"first".to_vec());
        hold.send(()).unwrap();
        assert_eq!(read.recv_timeout(LONG).unwrap(), b"first");
        lines.put(b"held".to_vec());
        while lines.counts.waiting.load(Ordering::Relaxed) != 1 {
            std::thread::yield_now();
        }
        for _ in 0..3 * WAITING {
            lines.put(b"line".to_vec());
        }
        assert!(!lines.flush(Duration::from_millis(10)), "nothing is written");
        assert!(told.lock().unwrap().is_empty());
        drop(hold);
        assert!(lines.flush(LONG));
        let written = read.try_iter().count();
        assert!((WAITING..=WAITING + 1).contains(&written), "{written}");
        assert_eq!(*told.lock().unwrap(), [(3 * WAITING + 1 - written) as u64]);
        lines.put(b"again".to_vec());
        assert!(lines.flush(LONG));
        assert_eq!(read.recv_timeout(LONG).unwrap(), b"again");
        assert_eq!(told.lock().unwrap().len(), 1, "told once");
    }

    #[test]
    fn nothing_is_lost_when_it_cannot_be_written() {
        struct Broken;
        impl Write for Broken {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::StorageFull.into())
            }

            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let lines = Lines::start(Broken, |_| ()).unwrap();
        for _ in 0..3 {
            lines.put(b"line".to_vec());
            assert!(lines.flush(LONG));
        }
    }
}
