//! Every field, by its path, and the bits that it has.

// Made from hw/regs/card.rdl by `cargo xtask regs`: change that file, not this one.

use card_regs::*;

/// Paths and bits.
pub(crate) fn fields() -> Vec<(&'static str, u32)> {
    vec![
        bits_of!("id.magic.magic", id::Magic, magic, with_magic, 0, u32::MAX),
        bits_of!("id.version.minor", id::Version, minor, with_minor, 0, u16::MAX),
        bits_of!("id.version.major", id::Version, major, with_major, 0, u16::MAX),
        bits_of!("id.board.letters", id::Board, letters, with_letters, 0, u32::MAX),
        bits_of!("id.revision.commit", id::Revision, commit, with_commit, 0, u32::MAX),
        bits_of!(
            "id.capabilities.host_role",
            id::Capabilities,
            host_role,
            with_host_role,
            false,
            true
        ),
        bits_of!(
            "id.capabilities.box_role",
            id::Capabilities,
            box_role,
            with_box_role,
            false,
            true
        ),
        bits_of!(
            "id.capabilities.crc_engine",
            id::Capabilities,
            crc_engine,
            with_crc_engine,
            false,
            true
        ),
        bits_of!(
            "id.capabilities.modified",
            id::Capabilities,
            modified,
            with_modified,
            false,
            true
        ),
        bits_of!(
            "id.capabilities.slots",
            id::Capabilities,
            slots,
            with_slots,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!(
            "id.capabilities.ports",
            id::Capabilities,
            ports,
            with_ports,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!(
            "id.capabilities.i2c_buses",
            id::Capabilities,
            i2c_buses,
            with_i2c_buses,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!(
            "id.capabilities.queue_order",
            id::Capabilities,
            queue_order,
            with_queue_order,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!(
            "id.capabilities.max_payload",
            id::Capabilities,
            max_payload,
            with_max_payload,
            values::PayloadSize::from_bits(0),
            values::PayloadSize::from_bits(u32::MAX)
        ),
        bits_of!("id.clock.hertz", id::Clock, hertz, with_hertz, 0, u32::MAX),
        bits_of!(
            "reset_control.status.cause",
            reset_control::Status,
            cause,
            with_cause,
            values::ResetCause::from_bits(0),
            values::ResetCause::from_bits(u32::MAX)
        ),
        bits_of!(
            "reset_control.status.count",
            reset_control::Status,
            count,
            with_count,
            0,
            u8::MAX
        ),
        bits_of!(
            "reset_control.request.cause",
            reset_control::Request,
            cause,
            with_cause,
            values::ResetCause::from_bits(0),
            values::ResetCause::from_bits(u32::MAX)
        ),
        bits_of!("reset_control.request.key", reset_control::Request, key, with_key, 0, u16::MAX),
        bits_of!(
            "reset_control.scratch.word",
            reset_control::Scratch,
            word,
            with_word,
            0,
            u32::MAX
        ),
        bits_of!("timer.low.nanoseconds", timer::Low, nanoseconds, with_nanoseconds, 0, u32::MAX),
        bits_of!("timer.high.nanoseconds", timer::High, nanoseconds, with_nanoseconds, 0, u32::MAX),
        bits_of!("timer.frequency.hertz", timer::Frequency, hertz, with_hertz, 0, u32::MAX),
        bits_of!(
            "timer.alarm_low.nanoseconds",
            timer::AlarmLow,
            nanoseconds,
            with_nanoseconds,
            0,
            u32::MAX
        ),
        bits_of!(
            "timer.alarm_high.nanoseconds",
            timer::AlarmHigh,
            nanoseconds,
            with_nanoseconds,
            0,
            u32::MAX
        ),
        bits_of!(
            "watchdog.period.microseconds",
            watchdog::Period,
            microseconds,
            with_microseconds,
            0,
            u32::MAX
        ),
        bits_of!(
            "watchdog.warning.microseconds",
            watchdog::Warning,
            microseconds,
            with_microseconds,
            0,
            u32::MAX
        ),
        bits_of!("watchdog.control.enable", watchdog::Control, enable, with_enable, false, true),
        bits_of!("watchdog.control.lock", watchdog::Control, lock, with_lock, false, true),
        bits_of!("watchdog.feed.key", watchdog::Feed, key, with_key, 0, u32::MAX),
        bits_of!(
            "watchdog.remaining.microseconds",
            watchdog::Remaining,
            microseconds,
            with_microseconds,
            0,
            u32::MAX
        ),
        bits_of!("irq.pending.timer", irq::Pending, timer, with_timer, false, true),
        bits_of!("irq.pending.watchdog", irq::Pending, watchdog, with_watchdog, false, true),
        bits_of!(
            "irq.pending.tlp_receive",
            irq::Pending,
            tlp_receive,
            with_tlp_receive,
            false,
            true
        ),
        bits_of!(
            "irq.pending.tlp_transmit",
            irq::Pending,
            tlp_transmit,
            with_tlp_transmit,
            false,
            true
        ),
        bits_of!("irq.pending.tlp_grant", irq::Pending, tlp_grant, with_tlp_grant, false, true),
        bits_of!(
            "irq.pending.mac0_fabric",
            irq::Pending,
            mac0_fabric,
            with_mac0_fabric,
            false,
            true
        ),
        bits_of!("irq.pending.mac0_other", irq::Pending, mac0_other, with_mac0_other, false, true),
        bits_of!(
            "irq.pending.mac0_transmit",
            irq::Pending,
            mac0_transmit,
            with_mac0_transmit,
            false,
            true
        ),
        bits_of!("irq.pending.mac0_link", irq::Pending, mac0_link, with_mac0_link, false, true),
        bits_of!(
            "irq.pending.mac1_fabric",
            irq::Pending,
            mac1_fabric,
            with_mac1_fabric,
            false,
            true
        ),
        bits_of!("irq.pending.mac1_other", irq::Pending, mac1_other, with_mac1_other, false, true),
        bits_of!(
            "irq.pending.mac1_transmit",
            irq::Pending,
            mac1_transmit,
            with_mac1_transmit,
            false,
            true
        ),
        bits_of!("irq.pending.mac1_link", irq::Pending, mac1_link, with_mac1_link, false, true),
        bits_of!(
            "irq.pending.uart_receive",
            irq::Pending,
            uart_receive,
            with_uart_receive,
            false,
            true
        ),
        bits_of!(
            "irq.pending.uart_transmit",
            irq::Pending,
            uart_transmit,
            with_uart_transmit,
            false,
            true
        ),
        bits_of!("irq.pending.i2c0", irq::Pending, i2c0, with_i2c0, false, true),
        bits_of!("irq.pending.i2c1", irq::Pending, i2c1, with_i2c1, false, true),
        bits_of!("irq.pending.gpio", irq::Pending, gpio, with_gpio, false, true),
        bits_of!(
            "irq.pending.queue_error",
            irq::Pending,
            queue_error,
            with_queue_error,
            false,
            true
        ),
        bits_of!("irq.enable.timer", irq::Enable, timer, with_timer, false, true),
        bits_of!("irq.enable.watchdog", irq::Enable, watchdog, with_watchdog, false, true),
        bits_of!("irq.enable.tlp_receive", irq::Enable, tlp_receive, with_tlp_receive, false, true),
        bits_of!(
            "irq.enable.tlp_transmit",
            irq::Enable,
            tlp_transmit,
            with_tlp_transmit,
            false,
            true
        ),
        bits_of!("irq.enable.tlp_grant", irq::Enable, tlp_grant, with_tlp_grant, false, true),
        bits_of!("irq.enable.mac0_fabric", irq::Enable, mac0_fabric, with_mac0_fabric, false, true),
        bits_of!("irq.enable.mac0_other", irq::Enable, mac0_other, with_mac0_other, false, true),
        bits_of!(
            "irq.enable.mac0_transmit",
            irq::Enable,
            mac0_transmit,
            with_mac0_transmit,
            false,
            true
        ),
        bits_of!("irq.enable.mac0_link", irq::Enable, mac0_link, with_mac0_link, false, true),
        bits_of!("irq.enable.mac1_fabric", irq::Enable, mac1_fabric, with_mac1_fabric, false, true),
        bits_of!("irq.enable.mac1_other", irq::Enable, mac1_other, with_mac1_other, false, true),
        bits_of!(
            "irq.enable.mac1_transmit",
            irq::Enable,
            mac1_transmit,
            with_mac1_transmit,
            false,
            true
        ),
        bits_of!("irq.enable.mac1_link", irq::Enable, mac1_link, with_mac1_link, false, true),
        bits_of!(
            "irq.enable.uart_receive",
            irq::Enable,
            uart_receive,
            with_uart_receive,
            false,
            true
        ),
        bits_of!(
            "irq.enable.uart_transmit",
            irq::Enable,
            uart_transmit,
            with_uart_transmit,
            false,
            true
        ),
        bits_of!("irq.enable.i2c0", irq::Enable, i2c0, with_i2c0, false, true),
        bits_of!("irq.enable.i2c1", irq::Enable, i2c1, with_i2c1, false, true),
        bits_of!("irq.enable.gpio", irq::Enable, gpio, with_gpio, false, true),
        bits_of!("irq.enable.queue_error", irq::Enable, queue_error, with_queue_error, false, true),
        bits_of!("crc.source.address", crc::Source, address, with_address, 0, u32::MAX),
        bits_of!("crc.seed.value", crc::Seed, value, with_value, 0, u32::MAX),
        bits_of!("crc.start.length", crc::Start, length, with_length, 0, u16::MAX),
        bits_of!(
            "crc.start.algorithm",
            crc::Start,
            algorithm,
            with_algorithm,
            values::CrcAlgorithm::from_bits(0),
            values::CrcAlgorithm::from_bits(u32::MAX)
        ),
        bits_of!("crc.start.continued", crc::Start, continued, with_continued, false, true),
        bits_of!("crc.status.busy", crc::Status, busy, with_busy, false, true),
        bits_of!("crc.status.error", crc::Status, error, with_error, false, true),
        bits_of!("crc.result.value", crc::Result, value, with_value, 0, u32::MAX),
        bits_of!("uart.transmit.data", uart::Transmit, data, with_data, 0, u8::MAX),
        bits_of!("uart.receive.data", uart::Receive, data, with_data, 0, u8::MAX),
        bits_of!("uart.receive.valid", uart::Receive, valid, with_valid, false, true),
        bits_of!(
            "uart.status.transmit_room",
            uart::Status,
            transmit_room,
            with_transmit_room,
            0,
            u8::MAX
        ),
        bits_of!(
            "uart.status.receive_level",
            uart::Status,
            receive_level,
            with_receive_level,
            0,
            u8::MAX
        ),
        bits_of!("uart.status.busy", uart::Status, busy, with_busy, false, true),
        bits_of!("uart.error.overrun", uart::Error, overrun, with_overrun, false, true),
        bits_of!("uart.error.framing", uart::Error, framing, with_framing, false, true),
        bits_of!("uart.divider.ratio", uart::Divider, ratio, with_ratio, 0, u16::MAX),
        bits_of!("spi.control.enable", spi::Control, enable, with_enable, false, true),
        bits_of!("spi.control.polarity", spi::Control, polarity, with_polarity, false, true),
        bits_of!("spi.control.phase", spi::Control, phase, with_phase, false, true),
        bits_of!(
            "spi.control.chip_select",
            spi::Control,
            chip_select,
            with_chip_select,
            0,
            u8::MAX
        ),
        bits_of!("spi.divider.ratio", spi::Divider, ratio, with_ratio, 0, u16::MAX),
        bits_of!("spi.transmit.data", spi::Transmit, data, with_data, 0, u8::MAX),
        bits_of!("spi.receive.data", spi::Receive, data, with_data, 0, u8::MAX),
        bits_of!("spi.receive.valid", spi::Receive, valid, with_valid, false, true),
        bits_of!(
            "spi.status.transmit_room",
            spi::Status,
            transmit_room,
            with_transmit_room,
            0,
            u8::MAX
        ),
        bits_of!(
            "spi.status.receive_level",
            spi::Status,
            receive_level,
            with_receive_level,
            0,
            u8::MAX
        ),
        bits_of!("spi.status.busy", spi::Status, busy, with_busy, false, true),
        bits_of!("spi.error.overrun", spi::Error, overrun, with_overrun, false, true),
        bits_of!("spi.window.enable", spi::Window, enable, with_enable, false, true),
        bits_of!(
            "spi.window.address",
            spi::Window,
            address,
            with_address,
            values::SpiAddress::from_bits(0),
            values::SpiAddress::from_bits(u32::MAX)
        ),
        bits_of!(
            "spi.window.dummy_cycles",
            spi::Window,
            dummy_cycles,
            with_dummy_cycles,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!("spi.window.opcode", spi::Window, opcode, with_opcode, 0, u8::MAX),
        bits_of!("spi.window_base.address", spi::WindowBase, address, with_address, 0, u32::MAX),
        bits_of!("spi.window_size.bytes", spi::WindowSize, bytes, with_bytes, 0, u32::MAX),
        bits_of!("i2c.control.enable", i2c::Control, enable, with_enable, false, true),
        bits_of!("i2c.control.scl_low", i2c::Control, scl_low, with_scl_low, false, true),
        bits_of!("i2c.control.sda_low", i2c::Control, sda_low, with_sda_low, false, true),
        bits_of!("i2c.timing.ratio", i2c::Timing, ratio, with_ratio, 0, u16::MAX),
        bits_of!("i2c.timing.stretch", i2c::Timing, stretch, with_stretch, 0, u8::MAX),
        bits_of!("i2c.command.data", i2c::Command, data, with_data, 0, u8::MAX),
        bits_of!("i2c.command.start", i2c::Command, start, with_start, false, true),
        bits_of!("i2c.command.write", i2c::Command, write, with_write, false, true),
        bits_of!("i2c.command.read", i2c::Command, read, with_read, false, true),
        bits_of!("i2c.command.nack", i2c::Command, nack, with_nack, false, true),
        bits_of!("i2c.command.stop", i2c::Command, stop, with_stop, false, true),
        bits_of!("i2c.status.data", i2c::Status, data, with_data, 0, u8::MAX),
        bits_of!("i2c.status.busy", i2c::Status, busy, with_busy, false, true),
        bits_of!("i2c.status.nack", i2c::Status, nack, with_nack, false, true),
        bits_of!(
            "i2c.status.arbitration_lost",
            i2c::Status,
            arbitration_lost,
            with_arbitration_lost,
            false,
            true
        ),
        bits_of!("i2c.status.timeout", i2c::Status, timeout, with_timeout, false, true),
        bits_of!("i2c.status.scl", i2c::Status, scl, with_scl, false, true),
        bits_of!("i2c.status.sda", i2c::Status, sda, with_sda, false, true),
        bits_of!("gpio.input.pins", gpio::Input, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.output.pins", gpio::Output, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.output_set.pins", gpio::OutputSet, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.output_clear.pins", gpio::OutputClear, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.direction.pins", gpio::Direction, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.rising.pins", gpio::Rising, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.falling.pins", gpio::Falling, pins, with_pins, 0, u32::MAX),
        bits_of!("gpio.event.pins", gpio::Event, pins, with_pins, 0, u32::MAX),
        bits_of!("queue.base.address", queue::Base, address, with_address, 0, u32::MAX),
        bits_of!("queue.size.order", queue::Size, order, with_order, Bits::low_of(0), Bits::MAX),
        bits_of!("queue.control.enable", queue::Control, enable, with_enable, false, true),
        bits_of!("queue.status.running", queue::Status, running, with_running, false, true),
        bits_of!("queue.tail.position", queue::Tail, position, with_position, 0, u16::MAX),
        bits_of!("queue.head.position", queue::Head, position, with_position, 0, u16::MAX),
        bits_of!(
            "queue.moderation.descriptors",
            queue::Moderation,
            descriptors,
            with_descriptors,
            0,
            u8::MAX
        ),
        bits_of!(
            "queue.moderation.microseconds",
            queue::Moderation,
            microseconds,
            with_microseconds,
            0,
            u16::MAX
        ),
        bits_of!("queue.error.bus", queue::Error, bus, with_bus, false, true),
        bits_of!("queue.error.descriptor", queue::Error, descriptor, with_descriptor, false, true),
        bits_of!("queue.error.tail", queue::Error, tail, with_tail, false, true),
        bits_of!("mac.control.receive", mac::Control, receive, with_receive, false, true),
        bits_of!("mac.control.transmit", mac::Control, transmit, with_transmit, false, true),
        bits_of!("mac.control.broadcast", mac::Control, broadcast, with_broadcast, false, true),
        bits_of!("mac.control.multicast", mac::Control, multicast, with_multicast, false, true),
        bits_of!(
            "mac.control.promiscuous",
            mac::Control,
            promiscuous,
            with_promiscuous,
            false,
            true
        ),
        bits_of!("mac.link.up", mac::Link, up, with_up, false, true),
        bits_of!("mac.link.full_duplex", mac::Link, full_duplex, with_full_duplex, false, true),
        bits_of!(
            "mac.link.speed",
            mac::Link,
            speed,
            with_speed,
            values::EthernetSpeed::from_bits(0),
            values::EthernetSpeed::from_bits(u32::MAX)
        ),
        bits_of!("mac.address_low.bytes", mac::AddressLow, bytes, with_bytes, 0, u32::MAX),
        bits_of!("mac.address_high.bytes", mac::AddressHigh, bytes, with_bytes, 0, u16::MAX),
        bits_of!("mac.max_frame.bytes", mac::MaxFrame, bytes, with_bytes, 0, u16::MAX),
        bits_of!("mac.fabric.ethertype", mac::Fabric, ethertype, with_ethertype, 0, u16::MAX),
        bits_of!("mac.fabric.udp_port", mac::Fabric, udp_port, with_udp_port, 0, u16::MAX),
        bits_of!("mac.mdio.data", mac::Mdio, data, with_data, 0, u16::MAX),
        bits_of!(
            "mac.mdio.register",
            mac::Mdio,
            register,
            with_register,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!("mac.mdio.phy", mac::Mdio, phy, with_phy, Bits::low_of(0), Bits::MAX),
        bits_of!(
            "mac.mdio.operation",
            mac::Mdio,
            operation,
            with_operation,
            values::MdioOperation::from_bits(0),
            values::MdioOperation::from_bits(u32::MAX)
        ),
        bits_of!(
            "mac.received_bytes_low.count",
            mac::ReceivedBytesLow,
            count,
            with_count,
            0,
            u32::MAX
        ),
        bits_of!(
            "mac.received_bytes_high.count",
            mac::ReceivedBytesHigh,
            count,
            with_count,
            0,
            u32::MAX
        ),
        bits_of!("mac.sent_bytes_low.count", mac::SentBytesLow, count, with_count, 0, u32::MAX),
        bits_of!("mac.sent_bytes_high.count", mac::SentBytesHigh, count, with_count, 0, u32::MAX),
        bits_of!("mac.received.count", mac::Received, count, with_count, 0, u32::MAX),
        bits_of!("mac.sent.count", mac::Sent, count, with_count, 0, u32::MAX),
        bits_of!("mac.receive_errors.count", mac::ReceiveErrors, count, with_count, 0, u32::MAX),
        bits_of!("mac.receive_lengths.count", mac::ReceiveLengths, count, with_count, 0, u32::MAX),
        bits_of!("mac.dropped_fabric.count", mac::DroppedFabric, count, with_count, 0, u32::MAX),
        bits_of!("mac.dropped_other.count", mac::DroppedOther, count, with_count, 0, u32::MAX),
        bits_of!(
            "mac.congestion_experienced.count",
            mac::CongestionExperienced,
            count,
            with_count,
            0,
            u32::MAX
        ),
        bits_of!("mac.transmit_errors.count", mac::TransmitErrors, count, with_count, 0, u32::MAX),
        bits_of!("slot.status.present", slot::Status, present, with_present, false, true),
        bits_of!("slot.status.power_good", slot::Status, power_good, with_power_good, false, true),
        bits_of!("slot.status.perst", slot::Status, perst, with_perst, false, true),
        bits_of!("slot.status.hot_reset", slot::Status, hot_reset, with_hot_reset, false, true),
        bits_of!(
            "slot.status.link",
            slot::Status,
            link,
            with_link,
            values::SlotLink::from_bits(0),
            values::SlotLink::from_bits(u32::MAX)
        ),
        bits_of!(
            "slot.status.speed",
            slot::Status,
            speed,
            with_speed,
            values::SlotSpeed::from_bits(0),
            values::SlotSpeed::from_bits(u32::MAX)
        ),
        bits_of!("slot.status.width", slot::Status, width, with_width, Bits::low_of(0), Bits::MAX),
        bits_of!("slot.status.wake", slot::Status, wake, with_wake, false, true),
        bits_of!(
            "slot.status.attention_button",
            slot::Status,
            attention_button,
            with_attention_button,
            false,
            true
        ),
        bits_of!(
            "slot.status.power_fault",
            slot::Status,
            power_fault,
            with_power_fault,
            false,
            true
        ),
        bits_of!("slot.control.perst", slot::Control, perst, with_perst, false, true),
        bits_of!("slot.control.hot_reset", slot::Control, hot_reset, with_hot_reset, false, true),
        bits_of!(
            "slot.control.link_disable",
            slot::Control,
            link_disable,
            with_link_disable,
            false,
            true
        ),
        bits_of!("slot.control.power", slot::Control, power, with_power, false, true),
        bits_of!(
            "slot.control.attention_indicator",
            slot::Control,
            attention_indicator,
            with_attention_indicator,
            values::Indicator::from_bits(0),
            values::Indicator::from_bits(u32::MAX)
        ),
        bits_of!(
            "slot.control.power_indicator",
            slot::Control,
            power_indicator,
            with_power_indicator,
            values::Indicator::from_bits(0),
            values::Indicator::from_bits(u32::MAX)
        ),
        bits_of!(
            "slot.control.max_payload",
            slot::Control,
            max_payload,
            with_max_payload,
            values::PayloadSize::from_bits(0),
            values::PayloadSize::from_bits(u32::MAX)
        ),
        bits_of!("slot.control.wake", slot::Control, wake, with_wake, false, true),
        bits_of!("slot.receive_grant.posted", slot::ReceiveGrant, posted, with_posted, 0, u8::MAX),
        bits_of!(
            "slot.receive_grant.non_posted",
            slot::ReceiveGrant,
            non_posted,
            with_non_posted,
            0,
            u8::MAX
        ),
        bits_of!(
            "slot.receive_grant.completion",
            slot::ReceiveGrant,
            completion,
            with_completion,
            0,
            u8::MAX
        ),
        bits_of!("slot.delivered.posted", slot::Delivered, posted, with_posted, 0, u8::MAX),
        bits_of!(
            "slot.delivered.non_posted",
            slot::Delivered,
            non_posted,
            with_non_posted,
            0,
            u8::MAX
        ),
        bits_of!(
            "slot.delivered.completion",
            slot::Delivered,
            completion,
            with_completion,
            0,
            u8::MAX
        ),
        bits_of!(
            "slot.transmit_grant.posted",
            slot::TransmitGrant,
            posted,
            with_posted,
            0,
            u8::MAX
        ),
        bits_of!(
            "slot.transmit_grant.non_posted",
            slot::TransmitGrant,
            non_posted,
            with_non_posted,
            0,
            u8::MAX
        ),
        bits_of!(
            "slot.transmit_grant.completion",
            slot::TransmitGrant,
            completion,
            with_completion,
            0,
            u8::MAX
        ),
        bits_of!("slot.received.count", slot::Received, count, with_count, 0, u32::MAX),
        bits_of!("slot.sent.count", slot::Sent, count, with_count, 0, u32::MAX),
        bits_of!("slot.malformed.count", slot::Malformed, count, with_count, 0, u32::MAX),
        bits_of!("slot.overflow.count", slot::Overflow, count, with_count, 0, u32::MAX),
        bits_of!("slot.aborted.count", slot::Aborted, count, with_count, 0, u32::MAX),
        bits_of!("slot.corrected.count", slot::Corrected, count, with_count, 0, u32::MAX),
        bits_of!(
            "tlp_descriptor.buffer.address",
            tlp_descriptor::Buffer,
            address,
            with_address,
            0,
            u32::MAX
        ),
        bits_of!(
            "tlp_descriptor.length.bytes",
            tlp_descriptor::Length,
            bytes,
            with_bytes,
            0,
            u16::MAX
        ),
        bits_of!(
            "tlp_descriptor.length.room",
            tlp_descriptor::Length,
            room,
            with_room,
            0,
            u16::MAX
        ),
        bits_of!(
            "tlp_descriptor.status.slot",
            tlp_descriptor::Status,
            slot,
            with_slot,
            Bits::low_of(0),
            Bits::MAX
        ),
        bits_of!(
            "tlp_descriptor.status.event",
            tlp_descriptor::Status,
            event,
            with_event,
            values::SlotEvent::from_bits(0),
            values::SlotEvent::from_bits(u32::MAX)
        ),
        bits_of!(
            "tlp_descriptor.status.class",
            tlp_descriptor::Status,
            class,
            with_class,
            values::TlpClass::from_bits(0),
            values::TlpClass::from_bits(u32::MAX)
        ),
        bits_of!(
            "tlp_descriptor.status.aborted",
            tlp_descriptor::Status,
            aborted,
            with_aborted,
            false,
            true
        ),
        bits_of!(
            "tlp_descriptor.status.malformed",
            tlp_descriptor::Status,
            malformed,
            with_malformed,
            false,
            true
        ),
        bits_of!(
            "tlp_descriptor.status.interrupt",
            tlp_descriptor::Status,
            interrupt,
            with_interrupt,
            false,
            true
        ),
        bits_of!("tlp_descriptor.status.own", tlp_descriptor::Status, own, with_own, false, true),
        bits_of!(
            "tlp_descriptor.stamp.nanoseconds",
            tlp_descriptor::Stamp,
            nanoseconds,
            with_nanoseconds,
            0,
            u32::MAX
        ),
        bits_of!(
            "frame_descriptor.buffer.address",
            frame_descriptor::Buffer,
            address,
            with_address,
            0,
            u32::MAX
        ),
        bits_of!(
            "frame_descriptor.length.bytes",
            frame_descriptor::Length,
            bytes,
            with_bytes,
            0,
            u16::MAX
        ),
        bits_of!(
            "frame_descriptor.length.room",
            frame_descriptor::Length,
            room,
            with_room,
            0,
            u16::MAX
        ),
        bits_of!(
            "frame_descriptor.status.offset",
            frame_descriptor::Status,
            offset,
            with_offset,
            0,
            u8::MAX
        ),
        bits_of!(
            "frame_descriptor.status.fabric",
            frame_descriptor::Status,
            fabric,
            with_fabric,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.status.congestion_experienced",
            frame_descriptor::Status,
            congestion_experienced,
            with_congestion_experienced,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.status.group",
            frame_descriptor::Status,
            group,
            with_group,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.status.aborted",
            frame_descriptor::Status,
            aborted,
            with_aborted,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.status.interrupt",
            frame_descriptor::Status,
            interrupt,
            with_interrupt,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.status.own",
            frame_descriptor::Status,
            own,
            with_own,
            false,
            true
        ),
        bits_of!(
            "frame_descriptor.stamp.nanoseconds",
            frame_descriptor::Stamp,
            nanoseconds,
            with_nanoseconds,
            0,
            u32::MAX
        ),
    ]
}
