use super::*;
use proptest::prelude::*;

fn proposal(json: &str) -> Vec<u8> {
    [&[0; 4], json.as_bytes(), &[0]].concat()
}

/// Numbers that a client may have for a capability, none of them too many for JSON.
fn number() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![Just(None), (0_u64..200).prop_map(Some), any::<u64>().prop_map(Some)]
}

proptest! {
    #[test]
    fn any_bytes_are_taken_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = negotiate(&bytes);
        let _ = negotiate(&[&[0; 4], &bytes[..], &[0]].concat());
    }

    /// What is agreed on is within both sides' limits, and the reply names what was proposed.
    #[test]
    fn what_is_agreed_on_is_within_limits(
        fds in number(), xfer in number(), maps in number(), pages in number(), twin: bool,
    ) {
        let proposed = Capabilities {
            max_msg_fds: fds,
            max_data_xfer_size: xfer,
            max_dma_maps: maps,
            pgsizes: pages,
            twin_socket: Some(TwinSocket { supported: twin, fd_index: None }),
            write_multiple: None,
        };
        let data = Data { capabilities: Some(proposed) };
        let json = serde_json::to_string(&data).unwrap();
        let small = xfer.is_some_and(|xfer| xfer < MIN_DATA_XFER as u64);
        if small {
            prop_assert_eq!(negotiate(&proposal(&json)), Err(Refused::Malformed));
            return Ok(());
        }
        let (agreed, reply) = negotiate(&proposal(&json)).unwrap();
        prop_assert!(agreed.msg_fds <= MAX_MSG_FDS);
        prop_assert!(agreed.dma_xfer as u64 <= xfer.unwrap_or(u64::MAX).min(MAX_DATA_XFER as u64));
        prop_assert!(agreed.dma_maps as u64 <= maps.unwrap_or(u64::MAX).min(MAX_DMA_MAPS as u64));
        prop_assert_eq!(agreed.twin, twin && fds != Some(0));
        let answer = parse(&reply[FIXED..]).unwrap().unwrap().capabilities.unwrap();
        prop_assert_eq!(answer.max_msg_fds.is_some(), fds.is_some());
        prop_assert_eq!(answer.max_data_xfer_size.is_some(), xfer.is_some());
        prop_assert_eq!(answer.max_dma_maps.is_some(), maps.is_some());
        prop_assert_eq!(answer.pgsizes.is_some(), pages.is_some());
        prop_assert_eq!(answer.twin_socket.is_some(), agreed.twin);
        prop_assert_eq!(answer.write_multiple, None);
    }
}
