//! A network that loses frames: an XDP program on an interface, which throws away what arrives at
//! random. It costs nothing else, needs no traffic control in the kernel and no process between.

use anyhow::{Context, Result, bail};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

/// Commands of bpf(2) and constants of linux/bpf.h, linux/if_link.h.
const PROG_LOAD: libc::c_int = 5;
const LINK_CREATE: libc::c_int = 28;
const PROG_TYPE_XDP: u32 = 6;
const ATTACH_XDP: u32 = 37;
const XDP_SKB_MODE: u32 = 2;
const HELPER_RANDOM: i32 = 7;
const XDP_DROP: i32 = 1;
const XDP_PASS: i32 = 2;

/// An instruction (struct bpf_insn).
#[repr(C)]
#[derive(Clone, Copy)]
struct Instruction {
    code: u8,
    registers: u8,
    offset: i16,
    immediate: i32,
}

const fn op(code: u8, to: u8, from: u8, offset: i16, immediate: i32) -> Instruction {
    Instruction { code, registers: from << 4 | to, offset, immediate }
}

/// The first fields of union bpf_attr for PROG_LOAD.
#[repr(C)]
struct LoadAttributes {
    kind: u32,
    count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_size: u32,
    log: u64,
}

/// The first fields of union bpf_attr for LINK_CREATE.
#[repr(C)]
struct LinkAttributes {
    program: u32,
    interface: u32,
    attach: u32,
    flags: u32,
}

/// Frames of the fabric that arrive at an interface are lost as long as this is alive.
pub(crate) struct Loss {
    _link: OwnedFd,
}

impl Loss {
    /// One in so many of the fabric's frames that arrive at an interface of this thread's
    /// namespace is lost; all of them with 1, none with `None`.
    ///
    /// # Errors
    ///
    /// When the kernel has no such programs, or they are not allowed.
    pub(crate) fn attach(interface: &str, one_in: Option<u32>) -> Result<Self> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: a string that ends in zero.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            bail!("there is no interface {interface}");
        }
        let program = load(&program(one_in))?;
        let attributes = LinkAttributes {
            program: program.as_raw_fd() as u32,
            interface: index,
            attach: ATTACH_XDP,
            flags: XDP_SKB_MODE,
        };
        // SAFETY: the attributes of LINK_CREATE, without pointers.
        let link = unsafe { bpf(LINK_CREATE, &attributes) };
        Ok(Self { _link: link.with_context(|| format!("attaching to {interface}"))? })
    }
}

/// Drops one in so many frames whose EtherType is the fabric's.
fn program(one_in: Option<u32>) -> Vec<Instruction> {
    let ethertype = i32::from(proxy_net::ETHERTYPE.to_be());
    // Opcodes of RFC 9669; jumps lead to `pass`.
    let mut program = vec![
        op(0x61, 2, 1, 0, 0),                                 // r2 = context.data
        op(0x61, 3, 1, 4, 0),                                 // r3 = context.data_end
        op(0xbf, 4, 2, 0, 0),                                 // r4 = r2
        op(0x07, 4, 0, 0, 14),                                // r4 += 14
        op(0x2d, 4, 3, 7, 0),                                 // if r4 > r3 goto pass
        op(0x69, 5, 2, 12, 0),                                // r5 = the EtherType
        op(0x55, 5, 0, 5, ethertype),                         // if r5 != ours goto pass
        op(0x85, 0, 0, 0, HELPER_RANDOM),                     // r0 = a random number
        op(0x94, 0, 0, 0, one_in.unwrap_or(1).max(1) as i32), // w0 %= one_in
        op(0x55, 0, 0, 2, 0),                                 // if r0 != 0 goto pass
        op(0xb7, 0, 0, 0, XDP_DROP),
        op(0x95, 0, 0, 0, 0),
        op(0xb7, 0, 0, 0, XDP_PASS), // pass:
        op(0x95, 0, 0, 0, 0),
    ];
    if one_in.is_none() {
        program[10].immediate = XDP_PASS;
    }
    program
}

fn load(program: &[Instruction]) -> Result<OwnedFd> {
    let attributes = LoadAttributes {
        kind: PROG_TYPE_XDP,
        count: program.len() as u32,
        instructions: program.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        log_level: 0,
        log_size: 0,
        log: 0,
    };
    // SAFETY: the attributes of PROG_LOAD; the instructions and the license outlive the call.
    unsafe { bpf(PROG_LOAD, &attributes) }.context("loading a program that drops frames")
}

/// bpf(2) with commands that give a descriptor.
///
/// # Safety
///
/// `T` is what the command takes, and pointers in it are valid for the call.
unsafe fn bpf<T>(command: libc::c_int, attributes: &T) -> std::io::Result<OwnedFd> {
    // SAFETY: the kernel reads size_of::<T>() bytes from a live reference; the caller vouches for
    // what they mean.
    let fd = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command,
            &raw const *attributes,
            size_of::<T>() as libc::c_uint,
        )
    };
    if fd < 0 {
        return Err(std::io::Error::last_os_error());
    }
    // SAFETY: a new descriptor that nobody else has.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) })
}
