use super::*;
use proptest::prelude::*;

/// The numbers on the wire: the specification's table of commands.
#[test]
fn numbers_of_the_commands() {
    let named = [
        Command::Version,
        Command::DmaMap,
        Command::DmaUnmap,
        Command::DeviceGetInfo,
        Command::DeviceGetRegionInfo,
        Command::DeviceGetRegionIoFds,
        Command::DeviceGetIrqInfo,
        Command::DeviceSetIrqs,
        Command::RegionRead,
        Command::RegionWrite,
        Command::DmaRead,
        Command::DmaWrite,
        Command::DeviceReset,
        Command::Unknown(14),
        Command::RegionWriteMulti,
        Command::DeviceFeature,
        Command::MigDataRead,
        Command::MigDataWrite,
        Command::Unknown(19),
    ];
    for (number, command) in (1..).zip(named) {
        assert_eq!(Command::from(number), command);
        assert_eq!(u16::from(command), number);
    }
}

#[test]
fn headers() {
    let command = Header {
        id: 0x1234,
        command: Command::RegionWrite,
        size: 36,
        kind: Kind::Command { no_reply: true },
    };
    let bytes = command.emit();
    assert_eq!(bytes[0..2], 0x1234_u16.to_ne_bytes());
    assert_eq!(bytes[2..4], 10_u16.to_ne_bytes());
    assert_eq!(bytes[4..8], 36_u32.to_ne_bytes());
    assert_eq!(bytes[8..12], 0x10_u32.to_ne_bytes());
    assert_eq!(bytes[12..16], [0; 4]);
    let error = Header { kind: Kind::Reply { error: Some(Errno::INVAL) }, ..command };
    assert_eq!(error.emit()[8..12], 0x21_u32.to_ne_bytes());
    assert_eq!(error.emit()[12..16], 22_u32.to_ne_bytes());
    for header in [command, error, Header { kind: Kind::Reply { error: None }, ..command }] {
        assert_eq!(Header::parse(&header.emit()), header);
    }
}

/// Every payload of every command is read without a panic, and what is read is what was there.
fn read(payload: &[u8]) {
    if let Ok(map) = DmaMap::parse(payload) {
        assert_eq!(
            payload[8..32],
            [map.offset, map.address, map.size].map(u64::to_ne_bytes).concat()
        );
        let flags = u32::from(map.readable) | u32::from(map.writable) << 1;
        assert_eq!(payload[4..8], flags.to_ne_bytes());
    }
    if let Ok(DmaUnmap::One { address, size }) = DmaUnmap::parse(payload) {
        assert_eq!(
            payload[4..24],
            [&[0; 4][..], &address.to_ne_bytes(), &size.to_ne_bytes()].concat()
        );
    }
    if let Ok(set) = IrqSet::parse(payload) {
        assert_eq!(
            payload[8..20],
            [set.index, set.start, set.count].map(u32::to_ne_bytes).concat()
        );
        if let Which::Chosen(chosen) = set.which {
            assert_eq!((chosen, chosen.len()), (&payload[20..], set.count as usize));
        }
    }
    if let Ok((access, data)) = RegionAccess::parse(payload) {
        assert_eq!([&access.emit()[..], data].concat(), payload);
    }
    if let Ok(entries) = multi_entries(payload) {
        for number in 0..entries {
            let entry = MultiEntry::parse(payload, number);
            assert!(entry.data_at + MultiEntry::DATA <= payload.len());
        }
    }
    let _ = (DeviceInfo::parse(payload), RegionInfo::parse(payload), IrqInfo::parse(payload));
    let _ = (RegionIoFds::parse(payload).map(|asked| asked.index), Feature::refusal(payload));
    for count in [0, 1, 4, u64::from(u32::MAX)] {
        let access = DmaAccess { address: 0, count };
        let _ = (access.is_answered_by(payload), access.is_acknowledged_by(payload));
    }
}

proptest! {
    #[test]
    fn any_header_is_read(bytes in any::<[u8; HEADER]>()) {
        let header = Header::parse(&bytes);
        prop_assert_eq!(&header.emit()[..8], &bytes[..8]);
        prop_assert_eq!(Header::parse(&header.emit()), header);
    }

    #[test]
    fn any_payload_is_read(payload in prop::collection::vec(any::<u8>(), 0..120)) {
        read(&payload);
    }

    /// The first fields small, as they are in messages that mean something.
    #[test]
    fn likely_payloads_are_read(
        words in prop::collection::vec(prop_oneof![0_u32..70, any::<u32>()], 0..30),
        cut in 0_usize..4,
    ) {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        read(&bytes[..bytes.len().saturating_sub(cut)]);
    }

    #[test]
    fn as_many_writes_as_the_message_says(entries in 0_usize..50, said in 0_u64..50) {
        let mut payload = said.to_ne_bytes().to_vec();
        payload.resize(8 + 24 * entries, 0);
        prop_assert_eq!(multi_entries(&payload).ok(), (said == entries as u64).then_some(entries));
    }
}
