//! Sanitize operations that end well, or fail, and what the host is told.

use super::*;

const BLOCK_ERASE: u32 = 2;
const ALLOW_EXIT: u32 = 1 << 3;
const NO_DEALLOCATE: u32 = 1 << 9;

/// The image refuses the first ones of so many operations, so that an erasing fails at once.
fn drive(refusals: usize) -> Drive {
    Drive::with_queues(odd(Odd { refusals, ..Odd::default() }), 1)
}

impl Drive {
    fn sanitize(&mut self, dword: u32) -> Result<u32, Status> {
        let result = self.admin(Sqe::admin(0x84).dword(10, dword));
        self.root.pump();
        result
    }

    fn exit_failure(&mut self) -> Result<u32, Status> {
        self.sanitize(1)
    }

    /// How the last operation stands, and what it was begun with.
    fn sanitized(&mut self) -> (u8, u32) {
        let page = self.log_page(0x81, 512).unwrap();
        (page[2], u32_at(&page, 4))
    }

    fn read_block(&mut self) -> Result<u32, Status> {
        let read = self.io_sqe(READ, 0, 1, 0, 512, 0);
        self.io(1, read)
    }
}

/// Who did not allow another way out is told of no success before there is one.
#[test]
fn only_a_restricted_sanitize_leaves_the_failure_of_one() {
    let mut d = drive(2);
    assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
    for _ in 0..2 {
        assert_eq!(d.sanitized(), (3, BLOCK_ERASE));
        assert_eq!(d.exit_failure(), Err(Status::SANITIZE_FAILED));
        assert_eq!(d.sanitize(BLOCK_ERASE | ALLOW_EXIT), Err(Status::SANITIZE_FAILED));
        assert_eq!(d.read_block(), Err(Status::SANITIZE_FAILED));
        assert_eq!(d.admin(Sqe::admin(0x80).dword(1, 1)), Err(Status::SANITIZE_FAILED));
        assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
    }
    assert_eq!((d.sanitized(), d.read_block()), ((1, BLOCK_ERASE), Ok(0)));
}

#[test]
fn the_failure_of_an_unrestricted_sanitize_is_left_and_not_forgotten() {
    let mut d = drive(1);
    assert_eq!(d.exit_failure(), Ok(0), "of nothing");
    let command = BLOCK_ERASE | ALLOW_EXIT;
    assert_eq!(d.sanitize(command), Ok(0));
    assert_eq!((d.sanitized(), d.read_block()), ((3, command), Err(Status::SANITIZE_FAILED)));
    assert_eq!(d.exit_failure(), Ok(0));
    assert_eq!((d.sanitized(), d.read_block()), ((3, command), Ok(0)));
    assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
    assert_eq!(d.sanitized(), (1, BLOCK_ERASE));
    // A reset changes nothing of that.
    let mut d = drive(1);
    assert_eq!(d.sanitize(command), Ok(0));
    d.disable();
    d.enable();
    assert_eq!((d.sanitized(), d.exit_failure()), ((3, command), Ok(0)));
}

#[test]
fn storage_is_given_up_by_a_sanitize_whatever_is_wanted() {
    let mut d = drive(0);
    assert_eq!(u32_at(&d.identify(0, 1).unwrap(), 328), 0x6000_0002, "SANICAP");
    assert_eq!(d.sanitize(BLOCK_ERASE | NO_DEALLOCATE), Err(Status::INVALID_FIELD));
    assert_eq!(d.sanitized(), (0, 0), "none was begun");
    assert_eq!(d.sanitize(1 | NO_DEALLOCATE), Ok(0), "means nothing there");
}

#[test]
fn how_far_a_sanitize_is_can_be_told_of_the_largest_drives() {
    let image = |polls_left, left| {
        let image = Odd { size: 1 << 48, polls_left, left, ..Odd::default() };
        (Box::new(image) as _, BlockSize::B512)
    };
    let mut d = Drive::with_queues(vec![image(0, 0), image(usize::MAX, 1 << 48)], 1);
    assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
    let page = d.log_page(0x81, 512).unwrap();
    assert_eq!((u16_at(&page, 0), page[2]), (32768, 2));
}

#[test]
fn the_end_of_a_sanitize_is_an_event() {
    const ENDED: Option<(u32, Status)> = Some((0x81_0106, Status::SUCCESS));
    for refusals in [0, 1] {
        let mut d = drive(refusals);
        for _ in 0..3 {
            d.post_command(0, Sqe::admin(0x0c));
        }
        assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
        assert_eq!(d.take_late(), ENDED);
        // The one of before means nothing any more when another begins.
        assert_eq!(d.sanitize(BLOCK_ERASE), Ok(0));
        assert_eq!(d.take_late(), ENDED);
        assert_eq!(d.sanitized().0, 1);
        assert_eq!(d.take_late(), None);
    }
}
