//! The machine's interrupt controller: it ends the core's sleep, no handler is called.

const BASE: usize = 0x0c00_0000;
const PRIORITIES: usize = BASE;
const ENABLES: usize = BASE + 0x2000;
const THRESHOLD: usize = BASE + 0x20_0000;
const CLAIM: usize = BASE + 0x20_0004;

fn write(address: usize, value: u32) {
    // SAFETY: the PLIC's registers of the one hart's machine mode are at these addresses, and
    // only this module writes them.
    unsafe { (address as *mut u32).write_volatile(value) }
}

/// Interrupts of these sources (1 to 31) become pending at the core.
pub(crate) fn enable(sources: &[u32]) {
    write(THRESHOLD, 0);
    let mut mask = 0;
    for source in sources {
        write(PRIORITIES + 4 * *source as usize, 1);
        mask |= 1 << source;
    }
    write(ENABLES, mask);
}

/// The sources that are pending, each once; it is pending again if its device still says so.
pub(crate) fn claim(mut handle: impl FnMut(u32)) {
    loop {
        // SAFETY: reading the claim register takes the interrupt, which is what this is for.
        let source = unsafe { (CLAIM as *const u32).read_volatile() };
        if source == 0 {
            return;
        }
        handle(source);
        write(CLAIM, source);
    }
}
