//! What the box's log has of what a host does to a drive again and again.

use super::*;
use std::sync::{Arc, Mutex};
use tlp_codec::tlp::CplStatus;
use tracing::field::{Field, Visit};
use tracing::{Event, Metadata, span};

/// Counts the lines of the log.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

struct Message(String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            self.0 = format!("{value:?}");
        }
    }
}

impl tracing::Subscriber for Log {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.is_event()
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut message = Message(String::new());
        event.record(&mut message);
        self.0.lock().unwrap().push(message.0);
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

/// The lines of a hundred times.
fn lines(mut once: impl FnMut()) -> Vec<String> {
    let log = Log::default();
    tracing::subscriber::with_default(log.clone(), || (0..100).for_each(|_| once()));
    let lines = log.0.lock().unwrap().clone();
    assert_eq!(lines.len(), 7, "1, 2, 4 to 64: {lines:?}");
    lines
}

#[test]
fn a_queue_that_cannot_be_read_fills_no_log() {
    let mut d = Drive::on(Config::default(), memory(1 << 20));
    d.root.answers = Answers::Status(CplStatus::UnsupportedRequest);
    let lines = lines(|| {
        d.post_command(0, Sqe::admin(0x06));
        d.ring_all();
        assert_ne!(d.csts() & regs::CSTS_CFS, 0);
        d.disable();
        d.enable();
    });
    let told = "NVMe submission queue 0: a read failed (64 so far): UnsupportedRequest";
    assert_eq!(lines[6], told);
}

#[test]
fn an_image_on_which_everything_fails_fills_no_log() {
    let drive = || Drive::with_queues(odd(Odd { failing: true, ..Odd::default() }), 1);
    let zeroes = Sqe::nvm(0x08).dword(1, 1).dword(12, 1 << 25);
    for (sqe, what) in [
        (Sqe::nvm(0x00).dword(1, 1), "a flush or zeroing"),
        (zeroes, "a flush or zeroing"),
        (drive().io_sqe(READ, 3, 1, 0, 512, 0), "read at byte 1536"),
    ] {
        let mut d = drive();
        let lines = lines(|| assert!(d.io(1, sqe).is_err()));
        let told = format!("NVMe image of namespace 1: {what} failed (64 so far): planned");
        assert_eq!(lines[6], told);
    }
    let mut d = drive();
    let lines_of_sanitize = lines(|| {
        assert_eq!(d.admin(Sqe::admin(0x84).dword(10, 2)), Ok(0));
        d.root.pump();
    });
    assert!(lines_of_sanitize[0].contains("the erasing of a sanitize operation failed (1 so far)"));
    let mut d = drive();
    let lines_of_shutdowns = lines(|| {
        let cc = d.root.read32(d.bar + regs::CC);
        d.root.write32(d.bar + regs::CC, cc | 1 << 14);
        d.root.pump();
        d.disable();
        d.enable();
    });
    assert!(lines_of_shutdowns[0].contains("the flush of a shutdown failed (1 so far)"));
}
