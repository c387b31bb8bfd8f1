-- Wireshark dissector of DxPU: PCIe TLPs between two proxies (tlp-codec/docs/wire.md, version 1).
--
-- Frames in EtherType 0x88B5 and in UDP (found by their content), the records in them, the TLPs in
-- those. README.md beside this file says how to install and use it.
--
-- Runs with Wireshark 3.6 and later (Lua 5.2 to 5.4). Bytes are looked at before they are read:
-- nothing here raises an error on a frame that is cut short or made up.

local dxpu = Proto("dxpu", "DxPU Fabric")
local bare_tlp = Proto("dxpu_tlp", "DxPU TLP")

dxpu.prefs.crc = Pref.bool("Check CRCs", true, "Compute the CRCs of frames, TLPs and digests")

local VERSION, ETHERTYPE = 1, 0x88b5
local HEADER, FRAME_CRC, SACK, MAX_SACKS = 48, 4, 4, 8
local RECORD_HEADER, TLP_OVERHEAD, MIN_TLP = 16, 20, 12
local OPEN, DATA, CLOSE, PROBE = 1, 2, 3, 4
local NOP, TLP, SPLIT_HEADER, SPLIT_DATA, SIDEBAND, CREDITS, UNBIND = 0, 1, 2, 3, 4, 5, 6
local MAX_PREFIXES, MAX_NODE, MAX_PATH = 5, 0xfffe, 7
-- So much of a frame tells that it is one.
local SIGN = 24

-- ---------------------------------------------------------------------------------------------
-- Names

local KINDS = { [OPEN] = "Open", [DATA] = "Data", [CLOSE] = "Close", [PROBE] = "Probe" }
local REASONS = {
    [1] = "removed", [2] = "gave up waiting for an acknowledgement", [3] = "protocol broken",
    [4] = "no version in common", [5] = "peer restarted",
}
local RECORDS = {
    [NOP] = "NOP", [TLP] = "TLP", [SPLIT_HEADER] = "Split header", [SPLIT_DATA] = "Split data",
    [SIDEBAND] = "Sideband", [CREDITS] = "Credits", [UNBIND] = "Unbind",
}
local CLASSES = { [0] = "posted", [1] = "non-posted", [2] = "completion" }
local SIDEBANDS = {
    [1] = "hot reset", [2] = "PERST# assert", [3] = "PERST# deassert", [4] = "link up",
    [5] = "link down", [6] = "link disable", [7] = "link enable", [8] = "power off",
    [9] = "power on", [10] = "power state", [11] = "flush", [12] = "device ready",
    [13] = "device gone",
}
local FLUSHES = { [1] = true, [2] = true, [5] = true, [6] = true, [8] = true, [11] = true,
    [13] = true }
local POWER_STATES = { [0] = "D0", [1] = "D1", [2] = "D2", [3] = "D3hot", [4] = "D3cold" }
-- Link Status, Current Link Speed (PCIe 5.0 section 7.5.3.8).
local SPEEDS = { [1] = "2.5 GT/s", [2] = "5 GT/s", [3] = "8 GT/s", [4] = "16 GT/s",
    [5] = "32 GT/s" }

local STATUSES = { [0] = "SC", [1] = "UR", [2] = "CRS", [4] = "CA" }
local STATUS_TEXTS = { [0] = "Successful Completion", [1] = "Unsupported Request",
    [2] = "Configuration Request Retry Status", [4] = "Completer Abort" }
local ADDRESS_TYPES = { [0] = "untranslated", [1] = "translation-request", [2] = "translated",
    [3] = "reserved" }
local ROUTINGS = { [0] = "to-root", [1] = "by-address", [2] = "by-id", [3] = "broadcast",
    [4] = "local", [5] = "gathered", [6] = "reserved6", [7] = "reserved7" }
local PREFIXES = {
    [0x00] = "MR-IOV", [0x0e] = "vendor-defined local 0", [0x0f] = "vendor-defined local 1",
    [0x10] = "Extended TPH", [0x11] = "PASID", [0x1e] = "vendor-defined end-to-end 0",
    [0x1f] = "vendor-defined end-to-end 1",
}

-- Type field (PCIe 5.0 table 2-3): name without data, name with data, whether the header's width
-- is free ("any") or fixed in doublewords.
local TYPES = {
    [0x00] = { "MRd", "MWr", "any" }, [0x01] = { "MRdLk", nil, "any" },
    [0x02] = { "IORd", "IOWr", 3 }, [0x04] = { "CfgRd0", "CfgWr0", 3 },
    [0x05] = { "CfgRd1", "CfgWr1", 3 }, [0x0a] = { "Cpl", "CplD", 3 },
    [0x0b] = { "CplLk", "CplDLk", 3 }, [0x0c] = { nil, "FetchAdd", "any" },
    [0x0d] = { nil, "Swap", "any" }, [0x0e] = { nil, "CAS", "any" },
    [0x1b] = { nil, "DMWr", "any" },
}
for routing = 0, 7 do TYPES[0x10 + routing] = { "Msg", "MsgD", 4 } end

-- Message codes (PCIe 5.0 section 2.2.8): name, the routings that go with it, the fewest and most
-- bytes of data ("plain": none needed), whether the traffic class must be 0.
local TO_ROOT, BY_ID, BROADCAST, LOCAL, GATHERED = 0, 2, 3, 4, 5
local function message(name, routings, options)
    local entry = { name = name, routings = {}, plain = true, min = 0, max = 0, tc0 = true }
    for _, routing in ipairs(routings) do entry.routings[routing] = true end
    for key, value in pairs(options or {}) do entry[key] = value end
    return entry
end
local any_tc, vendor = { tc0 = false }, { TO_ROOT, BY_ID, BROADCAST, LOCAL }
local MESSAGES = {
    [0x00] = message("Unlock", { BROADCAST }),
    [0x01] = message("Invalidate_Request", { BY_ID },
        { plain = false, min = 8, max = 8, tc0 = false }),
    [0x02] = message("Invalidate_Completion", { BY_ID }, any_tc),
    [0x04] = message("Page_Request", { TO_ROOT }, any_tc),
    [0x05] = message("PRG_Response", { BY_ID }, any_tc),
    [0x10] = message("LTR", { LOCAL }),
    [0x12] = message("OBFF", { LOCAL }),
    [0x14] = message("PM_Active_State_Nak", { LOCAL }),
    [0x18] = message("PM_PME", { TO_ROOT }),
    [0x19] = message("PME_Turn_Off", { BROADCAST }),
    [0x1b] = message("PME_TO_Ack", { GATHERED }),
    [0x30] = message("ERR_COR", { TO_ROOT }),
    [0x31] = message("ERR_NONFATAL", { TO_ROOT }),
    [0x33] = message("ERR_FATAL", { TO_ROOT }),
    [0x40] = message("Attention_Indicator_Off", { LOCAL }, any_tc),
    [0x41] = message("Attention_Indicator_On", { LOCAL }, any_tc),
    [0x43] = message("Attention_Indicator_Blink", { LOCAL }, any_tc),
    [0x44] = message("Power_Indicator_Off", { LOCAL }, any_tc),
    [0x45] = message("Power_Indicator_On", { LOCAL }, any_tc),
    [0x47] = message("Power_Indicator_Blink", { LOCAL }, any_tc),
    [0x48] = message("Attention_Button_Pressed", { LOCAL }, any_tc),
    [0x50] = message("Set_Slot_Power_Limit", { LOCAL }, { plain = false, min = 4, max = 4 }),
    [0x52] = message("PTM_Request", { LOCAL }),
    [0x53] = message("PTM_Response", { LOCAL }, { min = 4, max = 4 }),
    [0x7e] = message("Vendor_Defined_Type_0", vendor, { min = 4, max = 4096, tc0 = false }),
    [0x7f] = message("Vendor_Defined_Type_1", vendor, { min = 4, max = 4096, tc0 = false }),
}
for pin = 0, 3 do
    local letter = string.char(string.byte("A") + pin)
    MESSAGES[0x20 + pin] = message("Assert_INT" .. letter, { LOCAL })
    MESSAGES[0x24 + pin] = message("Deassert_INT" .. letter, { LOCAL })
end

-- ---------------------------------------------------------------------------------------------
-- Fields

local f = {
    version = ProtoField.uint8("dxpu.version", "Version"),
    kind = ProtoField.uint8("dxpu.kind", "Kind", base.DEC, KINDS),
    length = ProtoField.uint16("dxpu.length", "Length"),
    destination = ProtoField.uint16("dxpu.destination", "Destination node"),
    source = ProtoField.uint16("dxpu.source", "Source node"),
    node = ProtoField.uint16("dxpu.node", "Source or destination node"),
    source_incarnation = ProtoField.uint32("dxpu.source_incarnation", "Source incarnation",
        base.HEX),
    destination_incarnation = ProtoField.uint32("dxpu.destination_incarnation",
        "Destination incarnation", base.HEX),
    session = ProtoField.uint32("dxpu.session", "Session", base.HEX),
    path = ProtoField.uint8("dxpu.path", "Path"),
    flags = ProtoField.uint8("dxpu.flags", "Flags", base.HEX),
    flag_known = ProtoField.bool("dxpu.flags.destination_known",
        "Destination incarnation is known", 8, nil, 0x01),
    flag_ack = ProtoField.bool("dxpu.flags.ack", "Acknowledgement is meaningful", 8, nil, 0x02),
    key = ProtoField.uint16("dxpu.key", "Key ID"),
    packet = ProtoField.uint32("dxpu.packet", "Packet number"),
    sequence = ProtoField.uint32("dxpu.sequence", "Link sequence"),
    ack = ProtoField.uint32("dxpu.ack", "Acknowledges records before"),
    ack_packet = ProtoField.uint32("dxpu.ack.packet", "Largest packet received"),
    ack_delay = ProtoField.uint16("dxpu.ack.delay", "Microseconds since it came"),
    ack_path = ProtoField.uint8("dxpu.ack.path", "Of path"),
    ack_ranges = ProtoField.uint8("dxpu.ack.ranges", "Selective ranges"),
    ack_ce = ProtoField.uint16("dxpu.ack.ce", "Frames with Congestion Experienced"),
    sack = ProtoField.string("dxpu.sack", "Selective range"),
    sack_first = ProtoField.uint32("dxpu.sack.first", "First sequence"),
    sack_last = ProtoField.uint32("dxpu.sack.last", "Last sequence"),
    sack_offset = ProtoField.uint16("dxpu.sack.offset", "Offset"),
    sack_length = ProtoField.uint16("dxpu.sack.length", "Records"),
    crc = ProtoField.uint32("dxpu.crc", "Frame CRC", base.HEX),
    crc_ok = ProtoField.bool("dxpu.crc.ok", "Frame CRC is right"),
    padding = ProtoField.bytes("dxpu.padding", "Padding"),
    undecoded = ProtoField.bytes("dxpu.undecoded", "Not decoded"),
    duplicate_of = ProtoField.framenum("dxpu.duplicate_of", "Same packet number as in", base.NONE,
        frametype.DUP_ACK),

    open_min = ProtoField.uint8("dxpu.open.min_version", "Lowest version"),
    open_max = ProtoField.uint8("dxpu.open.max_version", "Highest version"),
    open_max_frame = ProtoField.uint16("dxpu.open.max_frame", "Largest frame"),
    open_window = ProtoField.uint16("dxpu.open.window", "Window"),
    open_max_tlp = ProtoField.uint16("dxpu.open.max_tlp", "Largest TLP"),
    open_session = ProtoField.uint32("dxpu.open.session", "Session of the sender", base.HEX),
    open_token = ProtoField.uint64("dxpu.open.token", "Token", base.HEX),
    open_echo = ProtoField.uint64("dxpu.open.echo", "Echo", base.HEX),
    open_answers = ProtoField.framenum("dxpu.open.answers", "Answers the token of", base.NONE,
        frametype.REQUEST),
    close_reason = ProtoField.uint8("dxpu.close.reason", "Reason", base.DEC, REASONS),

    record = ProtoField.none("dxpu.record", "Record"),
    record_kind = ProtoField.uint8("dxpu.record.kind", "Kind", base.DEC, RECORDS),
    record_flags = ProtoField.uint8("dxpu.record.flags", "Flags", base.HEX),
    record_class = ProtoField.uint8("dxpu.record.class", "Class", base.DEC, CLASSES, 0x03),
    record_relaxed = ProtoField.bool("dxpu.record.relaxed", "Relaxed ordering", 8, nil, 0x04),
    record_has_outstanding = ProtoField.bool("dxpu.record.has_outstanding",
        "Names an outstanding entry", 8, nil, 0x08),
    record_sampled = ProtoField.bool("dxpu.record.sampled", "Sampled", 8, nil, 0x10),
    record_announce = ProtoField.bool("dxpu.record.announce", "Announce", 8, nil, 0x20),
    record_length = ProtoField.uint16("dxpu.record.length", "Length"),
    record_sequence = ProtoField.uint32("dxpu.record.sequence", "Link sequence"),
    source_slot = ProtoField.uint8("dxpu.record.source_slot", "Source slot"),
    destination_slot = ProtoField.uint8("dxpu.record.destination_slot", "Destination slot"),
    slot_function = ProtoField.uint16("dxpu.record.function", "Function"),
    epoch = ProtoField.string("dxpu.record.epoch", "Epoch"),
    epoch_generation = ProtoField.uint8("dxpu.record.epoch.generation", "Generation"),
    epoch_counter = ProtoField.uint24("dxpu.record.epoch.counter", "Counter"),
    outstanding = ProtoField.string("dxpu.record.outstanding", "Outstanding entry"),
    outstanding_index = ProtoField.uint16("dxpu.record.outstanding.index", "Index"),
    outstanding_generation = ProtoField.uint16("dxpu.record.outstanding.generation",
        "Generation"),
    tlp_crc = ProtoField.uint32("dxpu.record.tlp_crc", "TLP CRC", base.HEX),
    tlp_crc_ok = ProtoField.bool("dxpu.record.tlp_crc.ok", "TLP CRC is right"),
    retransmission_of = ProtoField.framenum("dxpu.record.retransmission_of", "First sent in",
        base.NONE, frametype.RETRANS_PREV),
    newer_epoch_in = ProtoField.framenum("dxpu.record.newer_epoch_in",
        "A newer epoch was seen in"),
    response_in = ProtoField.framenum("dxpu.response_in", "Completed in", base.NONE,
        frametype.RESPONSE),
    request_in = ProtoField.framenum("dxpu.request_in", "Completes the request in", base.NONE,
        frametype.REQUEST),
    response_time = ProtoField.relative_time("dxpu.response_time", "Time since the request"),

    split_total = ProtoField.uint16("dxpu.split.total", "Bytes of the whole TLP"),
    split_parts = ProtoField.uint16("dxpu.split.parts", "Data records that follow"),
    split_part = ProtoField.uint16("dxpu.split.part", "Data record"),
    split_offset = ProtoField.uint16("dxpu.split.offset", "Offset in the TLP"),
    split_bytes = ProtoField.bytes("dxpu.split.bytes", "Bytes of the TLP"),
    split_header_in = ProtoField.framenum("dxpu.split.header_in", "Header record is in"),
    split_whole_in = ProtoField.framenum("dxpu.split.reassembled_in", "TLP is reassembled in"),

    sideband_code = ProtoField.uint8("dxpu.sideband.code", "Code", base.DEC, SIDEBANDS),
    sideband_argument = ProtoField.uint16("dxpu.sideband.argument", "Argument", base.HEX),
    sideband_speed = ProtoField.uint8("dxpu.sideband.speed", "Link speed", base.DEC, SPEEDS),
    sideband_width = ProtoField.uint8("dxpu.sideband.width", "Link width in lanes"),
    sideband_power = ProtoField.uint16("dxpu.sideband.power_state", "Power state", base.DEC,
        POWER_STATES),
    sideband_flushes = ProtoField.bool("dxpu.sideband.flushes", "Flushes the binding"),
    credits_posted = ProtoField.uint32("dxpu.credits.posted", "Posted"),
    credits_non_posted = ProtoField.uint32("dxpu.credits.non_posted", "Non-posted"),
    credits_completion = ProtoField.uint32("dxpu.credits.completion", "Completion"),
    credits_sideband = ProtoField.uint32("dxpu.credits.sideband", "Sideband"),
}

local t = {
    tlp = ProtoField.none("dxpu.tlp", "TLP"),
    prefix = ProtoField.bytes("dxpu.tlp.prefixes", "Prefix"),
    prefix_kind = ProtoField.string("dxpu.tlp.prefix.kind", "Prefix is"),
    pasid = ProtoField.uint24("dxpu.tlp.pasid", "PASID", base.HEX),
    pasid_execute = ProtoField.bool("dxpu.tlp.pasid.execute", "Execute requested", 8, nil, 0x10),
    pasid_privileged = ProtoField.bool("dxpu.tlp.pasid.privileged", "Privileged mode requested",
        8, nil, 0x20),
    type = ProtoField.string("dxpu.tlp.type", "Type"),
    fmt = ProtoField.uint8("dxpu.tlp.fmt", "Fmt field", base.HEX, nil, 0xe0),
    type_bits = ProtoField.uint8("dxpu.tlp.type_field", "Type field", base.HEX, nil, 0x1f),
    tc = ProtoField.uint8("dxpu.tlp.tc", "Traffic class", base.DEC, nil, 0x70),
    ido = ProtoField.bool("dxpu.tlp.ido", "ID-based ordering", 8, nil, 0x04),
    ln = ProtoField.bool("dxpu.tlp.ln", "Lightweight notification", 8, nil, 0x02),
    th = ProtoField.bool("dxpu.tlp.th", "Processing hints present", 8, nil, 0x01),
    td = ProtoField.bool("dxpu.tlp.td", "Digest present", 8, nil, 0x80),
    poisoned = ProtoField.bool("dxpu.tlp.poisoned", "Poisoned (EP)", 8, nil, 0x40),
    ro = ProtoField.bool("dxpu.tlp.ro", "Relaxed ordering", 8, nil, 0x20),
    ns = ProtoField.bool("dxpu.tlp.ns", "No snoop", 8, nil, 0x10),
    at = ProtoField.uint8("dxpu.tlp.at", "Address type", base.DEC, ADDRESS_TYPES, 0x0c),
    length = ProtoField.uint16("dxpu.tlp.length", "Length in doublewords"),
    requester = ProtoField.string("dxpu.tlp.requester", "Requester"),
    completer = ProtoField.string("dxpu.tlp.completer", "Completer"),
    destination = ProtoField.string("dxpu.tlp.destination", "Destination"),
    tag = ProtoField.uint16("dxpu.tlp.tag", "Tag"),
    first_be = ProtoField.uint8("dxpu.tlp.first_be", "First byte enables", base.HEX, nil, 0x0f),
    last_be = ProtoField.uint8("dxpu.tlp.last_be", "Last byte enables", base.HEX, nil, 0xf0),
    address = ProtoField.uint64("dxpu.tlp.address", "Address", base.HEX),
    ph = ProtoField.uint8("dxpu.tlp.ph", "Processing hint", base.DEC, nil, 0x03),
    st = ProtoField.uint8("dxpu.tlp.st", "Steering tag"),
    register = ProtoField.uint16("dxpu.tlp.register", "Register", base.HEX),
    routing = ProtoField.uint8("dxpu.tlp.routing", "Routing", base.DEC, ROUTINGS, 0x07),
    code = ProtoField.string("dxpu.tlp.code", "Message"),
    code_byte = ProtoField.uint8("dxpu.tlp.code.byte", "Message code", base.HEX),
    fields = ProtoField.bytes("dxpu.tlp.fields", "Fields of the message"),
    vendor = ProtoField.uint16("dxpu.tlp.vendor", "Vendor ID", base.HEX),
    snoop = ProtoField.string("dxpu.tlp.ltr.snoop", "Snoop latency"),
    no_snoop = ProtoField.string("dxpu.tlp.ltr.no_snoop", "No-snoop latency"),
    power = ProtoField.string("dxpu.tlp.power_limit", "Slot power limit"),
    status = ProtoField.uint8("dxpu.tlp.status", "Completion status", base.DEC, STATUS_TEXTS,
        0xe0),
    status_name = ProtoField.string("dxpu.tlp.status.name", "Status"),
    bcm = ProtoField.bool("dxpu.tlp.bcm", "Byte count is of this completion only (BCM)", 8, nil,
        0x10),
    byte_count = ProtoField.uint16("dxpu.tlp.byte_count", "Byte count"),
    lower_address = ProtoField.uint8("dxpu.tlp.lower_address", "Lower address", base.DEC, nil,
        0x7f),
    data = ProtoField.bytes("dxpu.tlp.data", "Data"),
    ecrc = ProtoField.bytes("dxpu.tlp.ecrc", "ECRC"),
    ecrc_ok = ProtoField.bool("dxpu.tlp.ecrc.ok", "ECRC is right"),
    rule = ProtoField.string("dxpu.tlp.rule", "Breaks rule"),
    info = ProtoField.string("dxpu.tlp.summary", "Summary"),
}

local fields = {}
for _, list in ipairs({ f, t }) do
    for _, field in pairs(list) do fields[#fields + 1] = field end
end
dxpu.fields = fields

local function expert_item(name, text, group, severity)
    return ProtoExpert.new("dxpu.expert." .. name, text, expert.group[group],
        expert.severity[severity])
end
local e = {
    cut = expert_item("cut", "The capture holds only the start", "UNDECODED", "NOTE"),
    frame = expert_item("frame", "The receiver drops this frame", "MALFORMED", "ERROR"),
    crc = expert_item("crc", "Frame CRC is wrong", "CHECKSUM", "ERROR"),
    tlp_crc = expert_item("tlp_crc", "TLP CRC is wrong", "CHECKSUM", "ERROR"),
    ecrc = expert_item("ecrc", "ECRC is wrong", "CHECKSUM", "ERROR"),
    record = expert_item("record", "Records do not parse: the link goes down", "MALFORMED",
        "ERROR"),
    class = expert_item("class", "Class is not that of the TLP's type", "PROTOCOL", "ERROR"),
    split = expert_item("split", "Parts of a split TLP do not fit together", "REASSEMBLE",
        "ERROR"),
    malformed = expert_item("tlp", "TLP breaks a rule", "MALFORMED", "ERROR"),
    poisoned = expert_item("poisoned", "TLP is poisoned", "RESPONSE_CODE", "WARN"),
    status = expert_item("status", "Request was not successful", "RESPONSE_CODE", "NOTE"),
    retransmission = expert_item("retransmission", "Record was sent before", "SEQUENCE", "NOTE"),
    duplicate = expert_item("duplicate", "Packet number was seen before", "SEQUENCE", "NOTE"),
    stale = expert_item("stale", "Epoch is over", "SEQUENCE", "WARN"),
    no_request = expert_item("no_request", "Request is not in the capture", "SEQUENCE", "NOTE"),
    unanswered = expert_item("unanswered", "No completion in the capture", "SEQUENCE", "NOTE"),
    closed = expert_item("close", "The link goes down", "SEQUENCE", "WARN"),
    sideband = expert_item("sideband", "Sideband record", "SEQUENCE", "CHAT"),
}
local experts = {}
for _, item in pairs(e) do experts[#experts + 1] = item end
dxpu.experts = experts

-- ---------------------------------------------------------------------------------------------
-- Numbers

local floor, format, byte = math.floor, string.format, string.byte
-- Lua 5.3 and later have an operator, which earlier ones cannot even parse.
local native = load("return function(a, b, c, d) return a ~ b ~ (c or 0) ~ (d or 0) end")
local exclusive_or = native and native() or (bit32 or bit).bxor

-- `width` bits of a number, from bit `low` on.
local function bits(value, low, width)
    return floor(value / 2 ^ low) % 2 ^ width
end

-- Lua 5.3 and later print a float as such where a whole number is meant.
local function whole(value)
    return math.tointeger and math.tointeger(value) or value
end

-- Four tables of 256 for a reflected CRC of 32 bits, so that four bytes are taken at a time.
local function crc_tables(polynomial)
    local tables = { {}, {}, {}, {} }
    for n = 0, 255 do
        local crc = n
        for _ = 1, 8 do
            local low = crc % 2
            crc = floor((crc % 2 ^ 32) / 2)
            if low == 1 then crc = exclusive_or(crc, polynomial) % 2 ^ 32 end
        end
        tables[1][n] = crc
    end
    for n = 0, 255 do
        for k = 2, 4 do
            local before = tables[k - 1][n]
            tables[k][n] = exclusive_or(floor(before / 256), tables[1][before % 256]) % 2 ^ 32
        end
    end
    return tables
end

local CRC32C = crc_tables(0x82f63b78)
local CRC32 = crc_tables(0xedb88320)

local function crc(tables, text)
    local t1, t2, t3, t4 = tables[1], tables[2], tables[3], tables[4]
    local value, at, len = 0xffffffff, 1, #text
    while at + 3 <= len do
        local a, b, c, d = byte(text, at, at + 3)
        -- No call but these two: remainders are right also where the library's numbers are signed.
        local x = exclusive_or(value, a + b * 0x100 + c * 0x10000 + d * 0x1000000)
        local x0 = x % 256
        x = (x - x0) / 256
        local x1 = x % 256
        x = (x - x1) / 256
        local x2 = x % 256
        x = (x - x2) / 256
        value = exclusive_or(t4[x0], t3[x1], t2[x2], t1[x % 256])
        at = at + 4
    end
    while at <= len do
        local low = exclusive_or(value % 256, byte(text, at))
        value = exclusive_or(floor(value % 2 ^ 32 / 256), t1[low])
        at = at + 1
    end
    return exclusive_or(value, 0xffffffff) % 2 ^ 32
end

-- Sequences wrap around.
local function after(sequence, distance)
    return whole((sequence + distance) % 2 ^ 32)
end

local function bdf(id)
    return format("%02x:%02x.%x", bits(id, 8, 8), bits(id, 3, 5), bits(id, 0, 3))
end

local function epoch_text(epoch)
    return format("%d.%d", bits(epoch, 24, 8), bits(epoch, 0, 24))
end

local function hex64(high, low)
    return high == 0 and format("0x%x", low) or format("0x%x%08x", high, low)
end

-- ---------------------------------------------------------------------------------------------
-- What earlier frames of the capture said
--
-- Wireshark reads a capture once from its start and then single frames in any order. What a frame
-- learns from earlier ones is worked out the first time and kept under the packet's number and the
-- frame's place in it.

local links      -- one direction of a link -> packets and records seen
local requests   -- outstanding entry -> the request that is in it
local epochs     -- function lent to a life of a host -> the newest epoch, and where it was seen
local tokens     -- token -> frame
local learnt     -- packet number -> place in the packet -> what the frame there learnt

local function forget()
    links, requests, epochs, tokens, learnt = {}, {}, {}, {}, {}
end
dxpu.init = forget
forget()

local function link_of(header)
    local name = format("%d %d %d %d %d", header.source, header.source_incarnation,
        header.destination, header.destination_incarnation, header.session)
    local link = links[name]
    if not link then
        link = { packets = {}, records = {}, splits = {} }
        links[name] = link
    end
    return link
end

-- The name of an outstanding entry, from the node that owns the table.
local function entry_name(owner, owner_life, peer, peer_life, record)
    return format("%d %d %d %d %d %d %d %d %d", owner, owner_life, peer, peer_life, record.slot,
        record.slot_function, record.epoch, record.index, record.generation)
end

local function learn_packet(header, number)
    local packets = link_of(header).packets
    local name = format("%d %d", header.path, header.packet)
    local first = packets[name]
    packets[name] = first or number
    return first
end

local function learn_epoch(header, record, number)
    local from = format("%d %d", header.source, header.source_incarnation)
    local to = format("%d %d", header.destination, header.destination_incarnation)
    local box, host = record.from_box and from or to, record.from_box and to or from
    local name = format("%s %d %d %s", box, record.slot, record.slot_function, host)
    local newest = epochs[name]
    if not newest or record.epoch > newest.epoch then
        epochs[name] = { epoch = record.epoch, frame = number }
    elseif record.epoch < newest.epoch then
        return newest
    end
end

local function learn_request(header, record, number, time)
    local name = entry_name(header.source, header.source_incarnation, header.destination,
        header.destination_incarnation, record)
    local request = { frame = number, time = time, responses = {} }
    requests[name] = request
    return request
end

local function find_request(header, record)
    return requests[entry_name(header.destination, header.destination_incarnation, header.source,
        header.source_incarnation, record)]
end

-- The parts of a split TLP, by the sequence of its header record. Gives what the frame that
-- completes it shows.
local function learn_split(link, first, number, add)
    local split = link.splits[first]
    if not split then
        split = { pieces = {}, count = 0 }
        link.splits[first] = split
    end
    if not split.whole and not split.broken then
        add(split)
        if split.total and split.count == split.parts then
            local text, at = { split.start }, #split.start
            for part = 1, split.parts do
                local piece = split.pieces[part]
                if not piece or piece.offset ~= at then split.broken = true break end
                text[#text + 1], at = piece.bytes, at + #piece.bytes
            end
            if at ~= split.total then split.broken = true end
            if not split.broken then split.whole, split.whole_in = table.concat(text), number end
            split.completed_by = number
            split.start, split.pieces = nil, nil
        end
    end
    return split
end

-- ---------------------------------------------------------------------------------------------
-- TLPs

-- The first rule that a TLP breaks, by the name that the codec's `Rule` gives it, or nil. The
-- order is the codec's. `tlp` is what `dissect_tlp` has read.
local function broken_enables(tlp)
    local first, last = tlp.first_be, tlp.last_be
    if tlp.dw == 1 then return last ~= 0 and "LastEnablesOfOneDw" or nil end
    if first == 0 then return "FirstEnablesEmpty" end
    if last == 0 then return "LastEnablesEmpty" end
    if tlp.dw == 2 and bits(tlp.low, 2, 1) == 0 then return nil end
    local upward = { [15] = true, [14] = true, [12] = true, [8] = true }
    local downward = { [15] = true, [7] = true, [3] = true, [1] = true }
    if not upward[first] then return "FirstEnablesGap" end
    if not downward[last] then return "LastEnablesGap" end
end

local function broken_memory(tlp)
    local rule = broken_enables(tlp)
    if rule then return rule end
    if tlp.low % 4096 - tlp.low % 4 + tlp.dw * 4 > 4096 then return "Crosses4K" end
    if tlp.name == "DMWr" and tlp.dw > 32 then return "DeferrableWriteTooLong" end
end

local function broken_atomic(tlp)
    local operand, largest = tlp.dw * 4, 8
    if tlp.name == "CAS" then operand, largest = tlp.dw * 2, 16 end
    if operand > largest or not (operand == 4 or operand == 8 or operand == 16) then
        return "AtomicLength"
    end
    if (tlp.low - tlp.low % 4) % operand ~= 0 then return "AtomicAlignment" end
end

local function broken_message(tlp)
    local form = MESSAGES[tlp.code]
    if not form then return nil end
    local len = tlp.has_data and tlp.dw * 4 or 0
    if not form.routings[tlp.routing] then return "MessageRouting" end
    if len == 0 and not form.plain or len > 0 and (len < form.min or len > form.max) then
        return "MessageData"
    end
    if form.tc0 and tlp.tc ~= 0 then return "MessageTrafficClass" end
end

local function broken_completion(tlp)
    local len = tlp.has_data and tlp.dw * 4 or 0
    local reach = tlp.lower_address % 4 + tlp.byte_count
    if len > floor((reach + 3) / 4) * 4 then return "CompletionByteCount" end
end

local function broken_fixed(tlp)
    if tlp.tc ~= 0 then return "RequestTrafficClass" end
    if tlp.ro or tlp.ns then return "RequestAttributes" end
    if tlp.at ~= 0 then return "RequestAddressType" end
end

local function broken_prefixes(kinds)
    local end_to_end = 0
    for _, kind in ipairs(kinds) do
        if kind >= 0x10 then
            end_to_end = end_to_end + 1
        elseif end_to_end > 0 then
            return "LocalPrefixBehindEndToEnd"
        end
    end
    if end_to_end >= MAX_PREFIXES then return "TooManyPrefixes" end
end

local CHECKS = { memory = broken_memory, atomic = broken_atomic, message = broken_message,
    completion = broken_completion, fixed = broken_fixed }

local function broken_rule(tlp)
    if tlp.bytes ~= tlp.needs then return "LengthMismatch" end
    if not tlp.name then return "ReservedType" end
    if tlp.shape == "fixed" then
        if tlp.dw ~= 1 then return "RequestLengthNotOne" end
        if tlp.last_be ~= 0 then return "LastEnablesOfOneDw" end
    end
    return broken_prefixes(tlp.prefixes) or CHECKS[tlp.shape](tlp)
end

local SHAPES = {
    MRd = "memory", MRdLk = "memory", MWr = "memory", DMWr = "memory", FetchAdd = "atomic",
    Swap = "atomic", CAS = "atomic", IORd = "fixed", IOWr = "fixed", CfgRd0 = "fixed",
    CfgWr0 = "fixed", CfgRd1 = "fixed", CfgWr1 = "fixed", Msg = "message", MsgD = "message",
    Cpl = "completion", CplD = "completion", CplLk = "completion", CplDLk = "completion",
}

local function class_of(name)
    if not name then return nil end
    if name == "MWr" or SHAPES[name] == "message" then return 0 end
    return SHAPES[name] == "completion" and 2 or 1
end

-- Steering tag, processing hint and byte enables of a memory or atomic request. Where the hint's
-- steering tag takes the enables' place, all bytes are meant (PCIe 5.0 section 2.2.7.1).
local function add_hints_and_enables(tree, tvb, h, tlp)
    local hinted = tlp.th
    local tag_in_enables = hinted and tlp.name ~= "MWr"
    if tag_in_enables then
        tree:add(t.st, tvb(h + 7, 1))
        tlp.first_be, tlp.last_be = 15, tlp.dw > 1 and 15 or 0
    elseif tlp.shape == "memory" then
        tree:add(t.first_be, tvb(h + 7, 1))
        tree:add(t.last_be, tvb(h + 7, 1))
    end
    if hinted then
        if not tag_in_enables then tree:add(t.st, tvb(h + 6, 1)) end
        tree:add(t.ph, tvb(tlp.low_at + 3, 1))
    end
end

local function add_request(tree, tvb, h, tlp)
    tlp.requester, tlp.tag = tvb(h + 4, 2):uint(), tlp.tag_high + tvb(h + 6, 1):uint()
    if tlp.th and tlp.name == "MWr" then tlp.tag = tlp.tag_high end
    tlp.first_be, tlp.last_be = tvb(h + 7, 1):bitfield(4, 4), tvb(h + 7, 1):bitfield(0, 4)
    tree:add(t.requester, tvb(h + 4, 2), bdf(tlp.requester))
    tree:add(t.tag, tvb(h + 6, 1), whole(tlp.tag))
end

local function add_address(tree, tvb, h, tlp)
    local high = tlp.wide and tvb(h + 8, 4):uint() or 0
    tlp.low_at = tlp.wide and h + 12 or h + 8
    tlp.low = tvb(tlp.low_at, 4):uint()
    local low = tlp.low - tlp.low % 4
    local range = tlp.wide and tvb(h + 8, 8) or tvb(h + 8, 4)
    tree:add(t.address, range, UInt64(whole(low), whole(high)))
    return hex64(whole(high), whole(low))
end

local function latency(field)
    local scale = bits(field, 10, 3)
    if field < 0x8000 then return "any" end
    if scale > 5 then return "of a reserved scale" end
    return format("%.0f ns", bits(field, 0, 10) * 32 ^ scale)
end

local function add_message(tree, tvb, h, tlp)
    tlp.routing, tlp.code = bits(tvb(h, 1):uint(), 0, 3), tvb(h + 7, 1):uint()
    local form = MESSAGES[tlp.code]
    local name = form and form.name or format("0x%02x", tlp.code)
    tree:add(t.routing, tvb(h, 1))
    tree:add(t.code, tvb(h + 7, 1), name)
    tree:add(t.code_byte, tvb(h + 7, 1))
    tree:add(t.fields, tvb(h + 8, 8))
    if tlp.routing == BY_ID then
        tree:add(t.destination, tvb(h + 8, 2), bdf(tvb(h + 8, 2):uint()))
    end
    if name == "LTR" then
        tree:add(t.no_snoop, tvb(h + 12, 2), latency(tvb(h + 12, 2):uint()))
        tree:add(t.snoop, tvb(h + 14, 2), latency(tvb(h + 14, 2):uint()))
    elseif tlp.code == 0x7e or tlp.code == 0x7f then
        tree:add(t.vendor, tvb(h + 10, 2))
    elseif tlp.code == 0x50 and tlp.has_data and tvb:captured_len() >= h + 20 then
        local value, scale = tvb(h + 16, 1):uint(), bits(tvb(h + 17, 1):uint(), 0, 2)
        local watts = format("%.3g W", value / 10 ^ scale)
        -- PCIe 5.0 section 7.5.3.9: of whole watts these are for more.
        if scale == 0 and value >= 0xf0 then
            watts = ({ "250 W", "275 W", "300 W" })[value - 0xef] or "of a reserved value"
        end
        tree:add(t.power, tvb(h + 16, 2), watts)
    end
    return name .. " from " .. bdf(tlp.requester)
end

local function add_completion(tree, tvb, h, tlp, data)
    tlp.requester, tlp.tag = tvb(h + 8, 2):uint(), tlp.tag_high + tvb(h + 10, 1):uint()
    tlp.status, tlp.lower_address = tvb(h + 6, 1):bitfield(0, 3), tvb(h + 11, 1):bitfield(1, 7)
    tlp.byte_count = tvb(h + 6, 2):bitfield(4, 12)
    if tlp.byte_count == 0 then tlp.byte_count = 4096 end
    local name = STATUSES[tlp.status] or tostring(tlp.status)
    tree:add(t.completer, tvb(h + 4, 2), bdf(tvb(h + 4, 2):uint()))
    local item = tree:add(t.status, tvb(h + 6, 1))
    tree:add(t.status_name, tvb(h + 6, 1), name):set_generated()
    tree:add(t.bcm, tvb(h + 6, 1))
    tree:add(t.byte_count, tvb(h + 6, 2), tlp.byte_count)
    tree:add(t.requester, tvb(h + 8, 2), bdf(tlp.requester))
    tree:add(t.tag, tvb(h + 10, 1), whole(tlp.tag))
    tree:add(t.lower_address, tvb(h + 11, 1))
    if tlp.status ~= 0 then
        item:add_proto_expert_info(e.status, STATUS_TEXTS[tlp.status] or "Reserved status")
    end
    return format("%s%s tag %d", name, data, tlp.tag)
end

-- The part of the header that the type decides. Gives a few words for the Info column.
local function add_by_shape(tree, tvb, h, tlp)
    local data = tlp.has_data and format(" %d B", tlp.dw * 4) or ""
    if tlp.shape == "completion" then return add_completion(tree, tvb, h, tlp, data) end
    add_request(tree, tvb, h, tlp)
    if tlp.shape == "message" then return add_message(tree, tvb, h, tlp) end
    if tlp.name:sub(1, 3) == "Cfg" then
        local destination = tvb(h + 8, 2):uint()
        local register = whole(bits(tvb(h + 10, 2):uint(), 2, 10) * 4)
        tree:add(t.first_be, tvb(h + 7, 1))
        tree:add(t.last_be, tvb(h + 7, 1))
        tree:add(t.destination, tvb(h + 8, 2), bdf(destination))
        tree:add(t.register, tvb(h + 10, 2), register)
        return format("%s reg 0x%x tag %d", bdf(destination), register, tlp.tag)
    end
    local address = add_address(tree, tvb, h, tlp)
    if tlp.shape == "fixed" then
        tree:add(t.first_be, tvb(h + 7, 1))
        tree:add(t.last_be, tvb(h + 7, 1))
    else
        add_hints_and_enables(tree, tvb, h, tlp)
    end
    local posted = tlp.name == "MWr"
    return posted and format("%s%s", address, data)
        or format("%s %d B tag %d", address, tlp.dw * 4, tlp.tag)
end

-- The prefixes in front of the header. Gives where the header begins, or nil and what is wrong.
local function add_prefixes(tree, tvb, have, tlp)
    local at = 0
    while true do
        if at >= have then return nil, "HeaderCutShort" end
        local first = tvb(at, 1):uint()
        if floor(first / 32) ~= 4 then return at end
        if at + 4 > 4 * MAX_PREFIXES then return nil, "TooManyPrefixes" end
        if at + 4 > have then return nil, "HeaderCutShort" end
        local kind = first % 32
        local fallback = kind < 16 and "unknown local" or "unknown end-to-end"
        local item = tree:add(t.prefix, tvb(at, 4))
        item:add(t.prefix_kind, tvb(at, 1), PREFIXES[kind] or fallback)
        if kind == 0x11 then
            item:add(t.pasid, tvb(at + 1, 3), whole(bits(tvb(at + 1, 3):uint(), 0, 20)))
            item:add(t.pasid_execute, tvb(at + 1, 1))
            item:add(t.pasid_privileged, tvb(at + 1, 1))
        end
        tlp.prefixes[#tlp.prefixes + 1] = kind
        at = at + 4
    end
end

-- The bytes that the digest covers: local prefixes left out, Type bit 0 and EP taken as 1.
local function ecrc_of(tvb, h, len, prefixes)
    local from = 0
    for n, kind in ipairs(prefixes) do if kind < 16 then from = 4 * n end end
    local text = tvb:raw(from, len - from)
    local at = h - from + 1
    local a, b, c = byte(text, at, at + 2)
    if a % 2 == 0 then a = a + 1 end
    if bits(c, 6, 1) == 0 then c = c + 0x40 end
    return crc(CRC32, text:sub(1, at - 1) .. string.char(a, b, c) .. text:sub(at + 3))
end

local function add_tail(tree, tvb, h, have, tlp)
    local data_at = h + (tlp.wide and 16 or 12)
    local data_len = tlp.has_data and tlp.dw * 4 or 0
    if data_len > 0 and have > data_at then
        tree:add(t.data, tvb(data_at, math.min(data_len, have - data_at)))
    end
    local digest_at = data_at + data_len
    if not tlp.td or have < digest_at + 4 then return end
    local item = tree:add(t.ecrc, tvb(digest_at, 4))
    if dxpu.prefs.crc then
        local good = ecrc_of(tvb, h, digest_at, tlp.prefixes) == tvb(digest_at, 4):le_uint()
        item:add(t.ecrc_ok, tvb(digest_at, 4), good):set_generated()
        if not good then item:add_proto_expert_info(e.ecrc) end
    end
end

local function add_first_doubleword(tree, tvb, h, tlp)
    local b0, b1, b2 = tvb(h, 1):uint(), tvb(h + 1, 1):uint(), tvb(h + 2, 1):uint()
    local dw = tvb(h + 2, 2):bitfield(6, 10)
    tlp.wide, tlp.has_data, tlp.dw = bits(b0, 5, 1) == 1, bits(b0, 6, 1) == 1, dw
    if dw == 0 then tlp.dw = 1024 end
    tlp.tc, tlp.th, tlp.td = bits(b1, 4, 3), b1 % 2 == 1, b2 >= 0x80
    tlp.ro, tlp.ns, tlp.at = bits(b2, 5, 1) == 1, bits(b2, 4, 1) == 1, bits(b2, 2, 2)
    tlp.poisoned = bits(b2, 6, 1) == 1
    tlp.tag_high = bits(b1, 7, 1) * 512 + bits(b1, 3, 1) * 256
    local entry = b0 < 0x80 and TYPES[b0 % 32]
    if entry and (entry[3] == "any" or entry[3] == (tlp.wide and 4 or 3)) then
        tlp.name = tlp.has_data and entry[2] or not tlp.has_data and entry[1] or nil
    end
    tlp.shape = tlp.name and SHAPES[tlp.name]
    tree:add(t.type, tvb(h, 1), tlp.name or "reserved")
    tree:add(t.fmt, tvb(h, 1))
    tree:add(t.type_bits, tvb(h, 1))
    for _, field in ipairs({ t.tc, t.ido, t.ln, t.th }) do tree:add(field, tvb(h + 1, 1)) end
    local item
    for _, field in ipairs({ t.td, t.poisoned, t.ro, t.ns, t.at }) do
        local added = tree:add(field, tvb(h + 2, 1))
        if field == t.poisoned then item = added end
    end
    if tlp.poisoned and tlp.has_data then item:add_proto_expert_info(e.poisoned) end
    tree:add(t.length, tvb(h + 2, 2), tlp.dw)
end

-- A TLP. `declared` is how many bytes it was said to have, of which the capture may hold fewer.
-- Gives a few words for the Info column, and the class of its type if there is one.
local function dissect_tlp(tvb, parent, declared)
    local have = math.min(tvb:captured_len(), declared)
    if have == 0 then return "TLP", nil end
    local tree = parent:add(t.tlp, tvb(0, have))
    local cut = have < declared
    local tlp = { prefixes = {}, bytes = declared }
    local function malformed(rule)
        if cut then return "TLP cut short" end
        tree:add(t.rule, tvb(0, have), rule):set_generated()
        tree:add_proto_expert_info(e.malformed, "TLP breaks the rule " .. rule)
        return "Malformed TLP (" .. rule .. ")"
    end
    local h, wrong = add_prefixes(tree, tvb, have, tlp)
    if not h then return malformed(wrong), nil end
    if have < h + 12 then return malformed("HeaderCutShort"), nil end
    add_first_doubleword(tree, tvb, h, tlp)
    if tlp.wide and have < h + 16 then return malformed("HeaderCutShort"), nil end
    tlp.needs = h + (tlp.wide and 16 or 12) + (tlp.has_data and tlp.dw * 4 or 0)
        + (tlp.td and 4 or 0)
    local text = tlp.name or "Reserved TLP"
    if tlp.name then text = text .. " " .. add_by_shape(tree, tvb, h, tlp) end
    add_tail(tree, tvb, h, have, tlp)
    local rule = broken_rule(tlp)
    if rule then
        local what = malformed(rule)
        if not cut or rule ~= "LengthMismatch" then text = text .. " [" .. what .. "]" end
    end
    if tlp.poisoned and tlp.has_data then text = text .. " [poisoned]" end
    tree:set_text("TLP: " .. text)
    tree:add(t.info, tvb(0, have), text):set_generated():set_hidden()
    return text, class_of(tlp.name)
end

-- ---------------------------------------------------------------------------------------------
-- Records

-- Why a record does not parse (wire.md section 10), or nil. `record` is what has been read.
local SIZES = { [NOP] = { 4, 4 }, [TLP] = { TLP_OVERHEAD + MIN_TLP },
    [SPLIT_HEADER] = { RECORD_HEADER + 8 + MIN_TLP }, [SPLIT_DATA] = { RECORD_HEADER + 4 },
    [SIDEBAND] = { 16, 16 }, [CREDITS] = { 32, 32 }, [UNBIND] = { 16, 16 } }

local function broken_shape(kind, length)
    local size = SIZES[kind]
    if not size then return format("unknown record kind %d", kind) end
    if length < size[1] or length % 4 ~= 0 or size[2] and length ~= size[2] then
        return format("record length %d does not fit the record's kind", length)
    end
end

local function broken_address(record)
    if record.source_slot == 0 and record.destination_slot == 0 then
        return "source and destination slot are both 0"
    end
    if record.slot_function > 255 then return "no slot function" end
    if bits(record.epoch, 0, 24) == 0 then return "no epoch: its counter is 0" end
    local classed = record.kind == TLP or record.kind == SPLIT_HEADER or record.kind == SPLIT_DATA
    if classed and record.class == 3 then return "no class" end
end

local function add_address_of(tree, tvb, at, record)
    record.source_slot, record.destination_slot = tvb(at + 4, 1):uint(), tvb(at + 5, 1):uint()
    record.slot_function, record.epoch = tvb(at + 6, 2):le_uint(), tvb(at + 8, 4):le_uint()
    record.from_box = record.source_slot ~= 0
    record.slot = record.from_box and record.source_slot or record.destination_slot
    tree:add(f.source_slot, tvb(at + 4, 1))
    tree:add(f.destination_slot, tvb(at + 5, 1))
    tree:add_le(f.slot_function, tvb(at + 6, 2))
    local item = tree:add(f.epoch, tvb(at + 8, 4), epoch_text(record.epoch))
    item:add_le(f.epoch_counter, tvb(at + 8, 3))
    item:add(f.epoch_generation, tvb(at + 11, 1))
    record.epoch_item = item
end

local function add_traits(tree, tvb, at, record)
    tree:add(f.record_relaxed, tvb(at + 1, 1))
    tree:add(f.record_has_outstanding, tvb(at + 1, 1))
    tree:add(f.record_sampled, tvb(at + 1, 1))
    if record.has_outstanding then
        record.index, record.generation = tvb(at + 12, 2):le_uint(), tvb(at + 14, 2):le_uint()
        local text = format("%d.%d", record.index, record.generation)
        local item = tree:add(f.outstanding, tvb(at + 12, 4), text)
        item:add_le(f.outstanding_index, tvb(at + 12, 2))
        item:add_le(f.outstanding_generation, tvb(at + 14, 2))
    end
end

-- The CRC of a TLP, if the capture holds all of it.
local function add_tlp_crc(tree, range, text)
    local item = tree:add_le(f.tlp_crc, range)
    if not dxpu.prefs.crc or not text then return true end
    local computed = crc(CRC32, text)
    local good = computed == range:le_uint()
    item:add(f.tlp_crc_ok, range, good):set_generated()
    if not good then
        item:add_proto_expert_info(e.tlp_crc, format(
            "TLP CRC is wrong in a right frame: its bytes give 0x%08x; the binding fails", computed))
    end
    return good
end

local function check_class(tree, record, class)
    if class and class ~= record.class then
        tree:add_proto_expert_info(e.class, format("Class is %s, the TLP's type is %s",
            CLASSES[record.class] or "reserved", CLASSES[class]))
    end
end

local function add_tlp_record(tree, tvb, at, have, record)
    add_traits(tree, tvb, at, record)
    local declared = record.length - TLP_OVERHEAD
    local there = math.min(declared, have - RECORD_HEADER)
    if there <= 0 then return "TLP" end
    local inner = tvb(at + RECORD_HEADER, there):tvb()
    local text, class = dissect_tlp(inner, tree, declared)
    check_class(tree, record, class)
    if have == record.length then
        local range = tvb(at + record.length - 4, 4)
        if not add_tlp_crc(tree, range, inner:raw(0, there)) then text = text .. " [bad CRC]" end
    end
    return text
end

-- Where the other records of a split TLP are, and the TLP itself in the frame that completes it.
local function add_split_links(tree, tvb, at, record, split)
    if not split then return "" end
    if split.header_in then
        tree:add(f.split_header_in, tvb(at, 1), split.header_in):set_generated()
    end
    if split.broken then
        tree:add_proto_expert_info(e.split)
        return " [does not fit]"
    end
    if not split.whole then return "" end
    tree:add(f.split_whole_in, tvb(at, 1), split.whole_in):set_generated()
    if not record.learnt.completes then return "" end
    local whole_tvb = ByteArray.new(split.whole, true):tvb("Reassembled TLP")
    local text, class = dissect_tlp(whole_tvb, tree, split.total)
    check_class(tree, record, class)
    if dxpu.prefs.crc then
        local good = crc(CRC32, split.whole) == split.crc
        tree:add(f.tlp_crc_ok, tvb(at, 1), good):set_generated()
        if not good then
            tree:add_proto_expert_info(e.tlp_crc)
            text = text .. " [bad CRC]"
        end
    end
    return ": " .. text
end

local function add_split_header(tree, tvb, at, have, record)
    add_traits(tree, tvb, at, record)
    if have < 24 then return "Split header" end
    local total, parts = tvb(at + 16, 2):le_uint(), tvb(at + 18, 2):le_uint()
    tree:add_le(f.split_total, tvb(at + 16, 2))
    tree:add_le(f.split_parts, tvb(at + 18, 2))
    tree:add_le(f.tlp_crc, tvb(at + 20, 4))
    local length = record.length - 24
    if parts == 0 or total % 4 ~= 0 or length >= total then
        record.broken = "parts of a split TLP do not fit together"
        return "Split header"
    end
    if have > 24 then tree:add(f.split_bytes, tvb(at + 24, have - 24)) end
    record.split = { total = total, parts = parts, crc = tvb(at + 20, 4):le_uint() }
    if have == record.length then record.split.start = tvb:raw(at + 24, length) end
    return format("Split header %d B", total)
end

local function add_split_data(tree, tvb, at, have, record)
    local part, offset = tvb(at + 12, 2):le_uint(), tvb(at + 14, 2):le_uint()
    local length = record.length - RECORD_HEADER
    tree:add_le(f.split_part, tvb(at + 12, 2))
    tree:add_le(f.split_offset, tvb(at + 14, 2))
    if part == 0 or offset % 4 ~= 0 or offset + length > 0xffff then
        record.broken = "parts of a split TLP do not fit together"
        return "Split data"
    end
    if have > RECORD_HEADER then
        tree:add(f.split_bytes, tvb(at + RECORD_HEADER, have - RECORD_HEADER))
    end
    record.split = { part = part, offset = offset }
    if have == record.length then record.split.bytes = tvb:raw(at + RECORD_HEADER, length) end
    return format("Split data %d", part)
end

local function add_sideband(tree, tvb, at)
    local code, argument = tvb(at + 12, 1):uint(), tvb(at + 14, 2):le_uint()
    tree:add(f.sideband_code, tvb(at + 12, 1))
    local item = tree:add_le(f.sideband_argument, tvb(at + 14, 2))
    local text = SIDEBANDS[code] or format("unknown sideband %d", code)
    if code == 4 then
        item:add(f.sideband_width, tvb(at + 14, 1))
        item:add(f.sideband_speed, tvb(at + 15, 1))
        text = format("%s x%d", text, argument % 256)
    elseif code == 10 then
        item:add_le(f.sideband_power, tvb(at + 14, 2))
        text = text .. " " .. (POWER_STATES[argument] or "unknown")
    end
    tree:add(f.sideband_flushes, tvb(at + 12, 1), FLUSHES[code] or false):set_generated()
    tree:add_proto_expert_info(e.sideband, text)
    return "Sideband " .. text
end

local function add_credits(tree, tvb, at)
    local limits = {}
    for n, field in ipairs({ f.credits_posted, f.credits_non_posted, f.credits_completion,
        f.credits_sideband }) do
        local range = tvb(at + 12 + 4 * n, 4)
        tree:add_le(field, range)
        limits[n] = format("%d", range:le_uint())
    end
    local announce = bits(tvb(at + 1, 1):uint(), 5, 1) == 1
    return "Credits " .. table.concat(limits, "/") .. (announce and " announce" or "")
end

-- What the record is by what earlier frames said, the first time that this frame is read.
local function learn_record(header, record, number, time)
    local known, link = {}, link_of(header)
    -- A recording has those in place of records that it does not show.
    if record.kind == NOP then return known end
    local first = link.records[record.sequence]
    if first and first ~= number then known.retransmission_of = first end
    link.records[record.sequence] = first or number
    if record.broken then return known end
    known.newer = learn_epoch(header, record, number)
    if record.has_outstanding and record.class == 1 then
        if first then
            known.request = link.requests and link.requests[record.sequence]
        else
            known.request = learn_request(header, record, number, time)
            link.requests = link.requests or {}
            link.requests[record.sequence] = known.request
        end
    elseif record.has_outstanding and record.class == 2 then
        known.is_response = true
        known.response_to = find_request(header, record)
        if known.response_to then
            known.response_time = time - known.response_to.time
            local responses = known.response_to.responses
            if not first then responses[#responses + 1] = number end
        end
    end
    if record.split then
        local at = after(record.sequence, -(record.split.part or 0))
        known.split = learn_split(link, at, number, function(split)
            local part = record.split
            if part.start and not split.start then
                split.total, split.parts, split.crc = part.total, part.parts, part.crc
                split.start, split.header_in = part.start, number
            elseif part.bytes and not split.pieces[part.part] then
                split.pieces[part.part] = { offset = part.offset, bytes = part.bytes }
                split.count = split.count + 1
            end
        end)
        known.completes = known.split.completed_by == number and not known.split.shown
        if known.completes then known.split.shown = true end
    end
    return known
end

local function add_request_and_response(tree, range, known, visited)
    for _, response in ipairs(known.request and known.request.responses or {}) do
        tree:add(f.response_in, range, response):set_generated()
    end
    if visited and known.request and #known.request.responses == 0 then
        tree:add_proto_expert_info(e.unanswered)
    end
    if known.response_to then
        -- Rounded before it is taken apart: a hair below a second is one second.
        local ns = floor(math.max(known.response_time, 0) * 1e9 + 0.5)
        tree:add(f.request_in, range, known.response_to.frame):set_generated()
        tree:add(f.response_time, range,
            NSTime(whole(floor(ns / 1e9)), whole(ns % 1e9))):set_generated()
    elseif known.is_response then
        tree:add_proto_expert_info(e.no_request)
    end
end

-- What `learn_record` found. Gives words for the Info column.
local function add_learnt(tree, tvb, at, record, visited)
    local known, range, marks = record.learnt, tvb(at, 1), ""
    if known.retransmission_of then
        tree:add(f.retransmission_of, range, known.retransmission_of):set_generated()
        tree:add_proto_expert_info(e.retransmission)
        marks = " [again]"
    end
    if known.newer then
        record.epoch_item:add(f.newer_epoch_in, range, known.newer.frame):set_generated()
        record.epoch_item:add_proto_expert_info(e.stale, format(
            "Epoch is over: %s was seen in frame %d", epoch_text(known.newer.epoch),
            known.newer.frame))
        marks = marks .. " [stale]"
    end
    add_request_and_response(tree, range, known, visited)
    return marks .. add_split_links(tree, tvb, at, record, known.split)
end

local BODIES = {
    [TLP] = add_tlp_record, [SPLIT_HEADER] = add_split_header, [SPLIT_DATA] = add_split_data,
    [SIDEBAND] = add_sideband, [CREDITS] = add_credits,
    [UNBIND] = function() return "Unbind" end,
}

-- One record of `have` bytes that the capture holds. Gives a few words for the Info column.
local function add_record(tree, tvb, at, have, record)
    tree:add(f.record_kind, tvb(at, 1))
    local flags = tree:add(f.record_flags, tvb(at + 1, 1))
    tree:add_le(f.record_length, tvb(at + 2, 2))
    tree:add(f.record_sequence, tvb(at, 1), record.sequence):set_generated()
    if record.kind == NOP then return "NOP" end
    if have < RECORD_HEADER then return RECORDS[record.kind] end
    local bits_of = tvb(at + 1, 1):uint()
    record.class, record.has_outstanding = bits_of % 4, bits(bits_of, 3, 1) == 1
    if record.kind == TLP or record.kind == SPLIT_HEADER or record.kind == SPLIT_DATA then
        flags:add(f.record_class, tvb(at + 1, 1))
    else
        record.has_outstanding = false
    end
    if record.kind == SPLIT_DATA then record.has_outstanding = false end
    if record.kind == CREDITS then flags:add(f.record_announce, tvb(at + 1, 1)) end
    add_address_of(tree, tvb, at, record)
    record.broken = broken_address(record)
    if record.broken or record.kind == CREDITS and have < 32 then return RECORDS[record.kind] end
    return BODIES[record.kind](tree, tvb, at, have, record)
end

-- The records between `at` and `stop`, of which the capture holds those before `have`.
local function dissect_records(tvb, pinfo, tree, header, at, stop, have)
    local texts, sequence = {}, header.sequence
    local known = header.learnt and header.learnt.records
    while at < stop do
        if at + 4 > stop or at + 4 > have then
            local item = tree:add(f.undecoded, tvb(at, math.min(have, stop) - at))
            if at + 4 > stop then item:add_proto_expert_info(e.record) end
            return texts
        end
        local record = { kind = tvb(at, 1):uint(), length = tvb(at + 2, 2):le_uint(),
            sequence = sequence }
        local wrong = at + record.length > stop and "record is longer than the frame"
            or broken_shape(record.kind, record.length)
        if wrong then
            local item = tree:add(f.undecoded, tvb(at, math.min(have, stop) - at))
            item:add_proto_expert_info(e.record, "The link goes down: " .. wrong)
            texts[#texts + 1] = "[" .. wrong .. "]"
            return texts
        end
        local there = math.min(record.length, have - at)
        local branch = tree:add(f.record, tvb(at, there))
        local text = add_record(branch, tvb, at, there, record)
        if record.broken then
            branch:add_proto_expert_info(e.record, "The link goes down: " .. record.broken)
            texts[#texts + 1] = text .. " [" .. record.broken .. "]"
            return texts
        end
        if known and record.epoch or known and record.kind == NOP then
            if not known[sequence] and not pinfo.visited then
                known[sequence] = learn_record(header, record, pinfo.number, pinfo.rel_ts)
            end
            record.learnt = known[sequence]
            if record.learnt then
                text = text .. add_learnt(branch, tvb, at, record, pinfo.visited)
            end
        end
        branch:set_text(format("Record %d: %s", sequence, text))
        texts[#texts + 1] = text
        at, sequence = at + record.length, after(sequence, 1)
        if at >= have and at < stop then return texts end
    end
    return texts
end

-- ---------------------------------------------------------------------------------------------
-- Frames

local function valid_node(node)
    return node >= 1 and node <= MAX_NODE
end

-- Why a receiver drops a frame (wire.md section 10, in its order), or nil. The CRC is apart.
local function broken_frame(header, declared)
    if declared < HEADER + FRAME_CRC then return "shorter than 52 bytes" end
    if header.version ~= VERSION then return format("version is %d", header.version) end
    if header.length < HEADER + FRAME_CRC then return "length is below 52" end
    if header.length > declared then return "length is above the bytes that came" end
end

local function broken_fields(header)
    if header.key ~= 0 then return "key ID is not 0" end
    if not KINDS[header.kind] then return format("kind is %d", header.kind) end
    if not valid_node(header.source) or not valid_node(header.destination) then
        return "source or destination is no node"
    end
    if header.path > MAX_PATH or header.ack_path > MAX_PATH then return "no path" end
    if header.ranges > MAX_SACKS or HEADER + SACK * header.ranges + FRAME_CRC > header.length then
        return "selective ranges do not fit"
    end
end

-- Fields of the header that are one number each, with their offset and size.
local FIXED = {
    { f.version, 0, 1 }, { f.kind, 1, 1 }, { f.length, 2, 2 }, { f.destination, 4, 2 },
    { f.source, 6, 2 }, { f.source_incarnation, 8, 4 }, { f.destination_incarnation, 12, 4 },
    { f.session, 16, 4 }, { f.path, 20, 1 }, { f.flags, 21, 1 }, { f.key, 22, 2 },
    { f.packet, 24, 4 }, { f.sequence, 28, 4 },
}
local ACK = {
    { f.ack_packet, 36, 4 }, { f.ack_delay, 40, 2 }, { f.ack_path, 42, 1 },
    { f.ack_ranges, 43, 1 }, { f.ack_ce, 44, 2 },
}

local function read_header(tvb)
    local flags = tvb(21, 1):uint()
    return {
        version = tvb(0, 1):uint(), kind = tvb(1, 1):uint(), length = tvb(2, 2):le_uint(),
        destination = tvb(4, 2):le_uint(), source = tvb(6, 2):le_uint(),
        source_incarnation = tvb(8, 4):le_uint(),
        destination_incarnation = flags % 2 == 1 and tvb(12, 4):le_uint() or 0,
        session = tvb(16, 4):le_uint(), path = tvb(20, 1):uint(),
        has_ack = bits(flags, 1, 1) == 1, key = tvb(22, 2):le_uint(),
        packet = tvb(24, 4):le_uint(), sequence = tvb(28, 4):le_uint(),
        ack = tvb(32, 4):le_uint(), ack_path = tvb(42, 1):uint(), ranges = tvb(43, 1):uint(),
    }
end

local function add_fixed(tree, tvb, have)
    for _, entry in ipairs(FIXED) do
        local field, at, size = entry[1], entry[2], entry[3]
        if at + size <= have then
            local item = tree:add_le(field, tvb(at, size))
            if field == f.flags then
                item:add(f.flag_known, tvb(at, 1))
                item:add(f.flag_ack, tvb(at, 1))
            elseif field == f.source or field == f.destination then
                tree:add_le(f.node, tvb(at, size)):set_hidden()
            end
        end
    end
end

-- The ranges, as sequences. Gives how many there are, or nil if they are wrong.
local function add_ranges(tree, tvb, have, header)
    local last = 0
    for n = 0, header.ranges - 1 do
        local at = HEADER + SACK * n
        if at + SACK > have then return n end
        local offset, length = tvb(at, 2):le_uint(), tvb(at + 2, 2):le_uint()
        local first, final = after(header.ack, offset), after(header.ack, offset + length - 1)
        local item = tree:add(f.sack, tvb(at, SACK), format("%d to %d", first, final))
        item:add(f.sack_first, tvb(at, 2), first):set_generated()
        item:add(f.sack_last, tvb(at, SACK), final):set_generated()
        item:add_le(f.sack_offset, tvb(at, 2))
        item:add_le(f.sack_length, tvb(at + 2, 2))
        if length == 0 or offset <= last then
            item:add_proto_expert_info(e.frame, "The receiver drops this frame: selective "
                .. "ranges are empty or out of order")
            return nil
        end
        last = offset + length
    end
    return header.ranges
end

local function add_ack(tree, tvb, have, header)
    if not header.has_ack then return add_ranges(tree, tvb, have, header) end
    local branch = tree:add_le(f.ack, tvb(32, 4))
    for _, entry in ipairs(ACK) do branch:add_le(entry[1], tvb(entry[2], entry[3])) end
    return add_ranges(branch, tvb, have, header)
end

local function dissect_open(tvb, pinfo, tree, header, at, stop, have)
    if stop - at ~= 32 then
        tree:add_proto_expert_info(e.frame, "The receiver drops this frame: body of another size")
        return "Open"
    end
    local layout = { { f.open_min, 0, 1 }, { f.open_max, 1, 1 }, { f.open_max_frame, 2, 2 },
        { f.open_window, 4, 2 }, { f.open_max_tlp, 6, 2 }, { f.open_session, 8, 4 },
        { f.open_token, 16, 8 }, { f.open_echo, 24, 8 } }
    local items = {}
    for n, entry in ipairs(layout) do
        if at + entry[2] + entry[3] <= have then
            items[n] = tree:add_le(entry[1], tvb(at + entry[2], entry[3]))
        end
    end
    if have < at + 32 then return "Open" end
    if tvb(at, 1):uint() > tvb(at + 1, 1):uint() then
        items[1]:add_proto_expert_info(e.frame,
            "The receiver drops this frame: lowest version above highest")
    end
    local token, echo = tvb:raw(at + 16, 8), tvb:raw(at + 24, 8)
    local none = string.rep("\0", 8)
    local known = header.learnt
    if known and not pinfo.visited then
        if token ~= none then
            tokens[format("%d ", header.source) .. token] = pinfo.number
        end
        known.answers = echo ~= none and tokens[format("%d ", header.destination) .. echo] or nil
    end
    if known and known.answers then
        items[8]:add(f.open_answers, tvb(at + 24, 8), known.answers):set_generated()
    end
    local words = {}
    if token ~= none then words[#words + 1] = "token" end
    if echo ~= none then words[#words + 1] = "echo" end
    return "Open " .. table.concat(words, " and ")
end

local function dissect_close(tvb, tree, at, stop, have)
    if stop - at ~= 4 then
        tree:add_proto_expert_info(e.frame, "The receiver drops this frame: body of another size")
        return "Close"
    end
    if have <= at then return "Close" end
    local reason = tvb(at, 1):uint()
    local text = REASONS[reason] or format("reason %d", reason)
    tree:add(f.close_reason, tvb(at, 1)):add_proto_expert_info(e.closed,
        "The link goes down: " .. text)
    return "Close: " .. text
end

-- The CRC, if the capture holds it. Gives whether the frame may be believed.
local function add_crc(tree, tvb, header, have)
    if have < header.length then return true end
    local range = tvb(header.length - FRAME_CRC, FRAME_CRC)
    local item = tree:add_le(f.crc, range)
    if not dxpu.prefs.crc then return true end
    local computed = crc(CRC32C, tvb:raw(0, header.length - FRAME_CRC))
    local good = computed == range:le_uint()
    item:add(f.crc_ok, range, good):set_generated()
    if not good then
        item:add_proto_expert_info(e.crc,
            format("Frame CRC is wrong: the bytes give 0x%08x", computed))
    end
    return good
end

local function info_of(header, texts)
    local shown, most = {}, 6
    for n = 1, math.min(#texts, most) do shown[n] = texts[n] end
    if #texts > most then shown[#shown + 1] = format("and %d more", #texts - most) end
    local info = format("%d → %d ", header.source, header.destination)
    if #texts == 0 then return info .. "Ack" end
    return info .. table.concat(shown, " | ")
end

-- What a right frame learns from earlier ones.
local function learn_frame(header, pinfo, place)
    local packet = learnt[pinfo.number] or {}
    local known = packet[place]
    if not known and not pinfo.visited then
        known = { records = {} }
        if header.kind ~= OPEN then known.duplicate_of = learn_packet(header, pinfo.number) end
        packet[place] = known
        learnt[pinfo.number] = packet
    end
    return known
end

local function dissect_body(tvb, pinfo, tree, header, have)
    local at, stop = HEADER + SACK * header.ranges, header.length - FRAME_CRC
    local there = math.min(have, stop)
    if header.kind == OPEN then
        return info_of(header, { dissect_open(tvb, pinfo, tree, header, at, stop, there) })
    elseif header.kind == CLOSE then
        return info_of(header, { dissect_close(tvb, tree, at, stop, there) })
    end
    local texts = {}
    if header.kind == PROBE then
        texts = { format("Probe of path %d with %d bytes", header.path, header.length) }
    elseif at < there then
        texts = dissect_records(tvb, pinfo, tree, header, at, stop, there)
    end
    local info = info_of(header, texts)
    if header.has_ack then
        info = info .. format(", ack %d", header.ack)
        if header.ranges > 0 then info = info .. format(" +%d", header.ranges) end
    end
    return info
end

-- A frame in the `declared` bytes of `tvb`, of which the capture holds `have`; behind it the packet
-- may be cut. Gives words for the Info column.
local function dissect_frame(tvb, pinfo, root, place, have, declared, cut_behind)
    local tree = root:add(dxpu, tvb(0, have))
    if cut_behind then tree:add_proto_expert_info(e.cut) end
    if have < HEADER then
        add_fixed(tree, tvb, have)
        local cut = have < declared
        tree:add_proto_expert_info(cut and e.cut or e.frame)
        return cut and "Frame cut short by the capture" or "Frame too short"
    end
    local header = read_header(tvb)
    add_fixed(tree, tvb, have)
    local wrong = broken_frame(header, declared)
    if wrong then
        tree:add_proto_expert_info(e.frame, "The receiver drops this frame: " .. wrong)
        return "Dropped: " .. wrong
    end
    if have < header.length then tree:add_proto_expert_info(e.cut) end
    local good = add_crc(tree, tvb, header, have)
    wrong = broken_fields(header)
    local ranges = not wrong and add_ack(tree, tvb, have, header)
    if wrong or not ranges then
        if wrong then
            tree:add_proto_expert_info(e.frame, "The receiver drops this frame: " .. wrong)
        end
        return "Dropped: " .. (wrong or "selective ranges")
    end
    if good then header.learnt = learn_frame(header, pinfo, place) end
    local info = dissect_body(tvb, pinfo, tree, header, have)
    local duplicate_of = header.learnt and header.learnt.duplicate_of
    if duplicate_of and duplicate_of ~= pinfo.number then
        tree:add(f.duplicate_of, tvb(24, 4), duplicate_of):set_generated()
        tree:add_proto_expert_info(e.duplicate)
        info = info .. " [duplicate]"
    end
    if have > header.length then
        tree:add(f.padding, tvb(header.length, have - header.length))
    end
    tree:append_text(format(", %s, node %d to node %d, path %d", KINDS[header.kind],
        header.source, header.destination, header.path))
    return (good and "" or "[bad frame CRC] ") .. info
end

-- Whether bytes from `at` on look like a frame of so many bytes.
local function begins_frame(tvb, at, size)
    local have, declared = tvb:captured_len() - at, tvb:reported_len() - at
    if declared < size or size < HEADER + FRAME_CRC or have < SIGN then return false end
    return tvb(at, 1):uint() == VERSION and KINDS[tvb(at + 1, 1):uint()] ~= nil
        and tvb(at + 2, 2):le_uint() == size
        and valid_node(tvb(at + 4, 2):le_uint()) and valid_node(tvb(at + 6, 2):le_uint())
        and tvb(at + 20, 1):uint() <= MAX_PATH and tvb(at + 21, 1):uint() < 4
        and tvb(at + 22, 2):uint() == 0
end

-- How long each of several frames in a UDP packet is, but the last, or nil. A datagram has one frame.
-- But a machine that sends gives its kernel several at once, and one that receives is given several
-- (segmentation offload, GRO), and a capture there has them as one packet: all are as long as the
-- first, and the last may be shorter. A later one has to begin where the first one's length says, so
-- one that is damaged hides no other; where the capture has the start of none, the first says it all.
local function segment_size(tvb)
    local have, declared = tvb:captured_len(), tvb:reported_len()
    local size = have >= 4 and tvb(2, 2):le_uint() or 0
    if size >= declared or not begins_frame(tvb, 0, size) then return nil end
    local last = declared % size
    if last ~= 0 and last < HEADER + FRAME_CRC then return nil end
    if have < size + SIGN then return size end
    for at = size, have - 1, size do
        if begins_frame(tvb, at, math.min(size, declared - at)) then return size end
    end
end

-- A packet of one frame, or in UDP of several. Gives how many bytes it took.
function dxpu.dissector(tvb, pinfo, root)
    local have, declared = tvb:captured_len(), tvb:reported_len()
    if have == 0 then return 0 end
    pinfo.cols.protocol = "DxPU"
    -- Behind a frame in Ethernet there is only padding.
    local size = pinfo.src_port ~= 0 and segment_size(tvb) or declared
    local infos, count, most = {}, math.ceil(declared / size), 3
    for place = 1, count do
        local at = (place - 1) * size
        if at >= have then break end
        local stop = math.min(at + size, declared)
        local there = math.min(have, stop)
        local frame = at == 0 and tvb or tvb(at, there - at):tvb()
        local cut_behind = have == stop and have < declared
        local info = dissect_frame(frame, pinfo, root, place, there - at, stop - at, cut_behind)
        if place <= most then infos[place] = info end
    end
    local info = table.concat(infos, " ‖ ")
    if count > #infos then info = info .. format(" ‖ %d more frames", count - #infos) end
    pinfo.cols.info = info
    return have
end

-- A TLP alone, for captures of bare TLPs (link types USER0 to USER15: README.md).
function bare_tlp.dissector(tvb, pinfo, root)
    if tvb:captured_len() == 0 then return 0 end
    pinfo.cols.protocol = "TLP"
    local text = dissect_tlp(tvb, root, tvb:reported_len())
    pinfo.cols.info = text
    return tvb:captured_len()
end

-- A frame in UDP has no port of its own: the manager gives ports. It is told by what it says.
local function is_ours(tvb)
    return begins_frame(tvb, 0, tvb:reported_len()) or segment_size(tvb) ~= nil
end

dxpu:register_heuristic("udp", function(tvb, pinfo, root)
    if not is_ours(tvb) then return false end
    -- Later frames of this pair of ports are ours, also those that were damaged.
    pinfo.conversation = dxpu
    dxpu.dissector(tvb, pinfo, root)
    return true
end)

DissectorTable.get("ethertype"):add(ETHERTYPE, dxpu)
DissectorTable.get("udp.port"):add_for_decode_as(dxpu)
