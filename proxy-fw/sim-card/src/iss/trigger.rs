//! Triggers that match the address of an instruction before it is executed (debug specification
//! 0.13.2, section 5.2, `mcontrol`).

/// How many there are.
pub(super) const TRIGGERS: usize = 2;

const TYPE_MCONTROL: u32 = 2 << 28;
const DMODE: u32 = 1 << 27;
const ACTION: u32 = 0xf << 12;
const MACHINE: u32 = 1 << 6;
const EXECUTE: u32 = 1 << 2;

/// What a trigger that fires does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    Exception,
    Debug,
}

#[derive(Clone, Copy, Debug, Default)]
struct Trigger {
    /// The bits of `tdata1` that can be changed.
    control: u32,
    address: u32,
}

/// The trigger module.
#[derive(Clone, Debug, Default)]
pub(super) struct Triggers {
    select: usize,
    triggers: [Trigger; TRIGGERS],
    /// One of them may fire.
    pub(super) armed: bool,
}

impl Triggers {
    pub(super) fn select(&self) -> u32 {
        self.select as u32
    }

    /// Keeps its value when there is no such trigger.
    pub(super) fn set_select(&mut self, value: u32) {
        if (value as usize) < TRIGGERS {
            self.select = value as usize;
        }
    }

    pub(super) fn control(&self) -> u32 {
        TYPE_MCONTROL | self.triggers[self.select].control
    }

    /// What belongs to the debugger is changed in debug mode only.
    pub(super) fn set_control(&mut self, value: u32, debugging: bool) {
        let trigger = &mut self.triggers[self.select];
        if trigger.control & DMODE != 0 && !debugging {
            return;
        }
        let mut control = value & (MACHINE | EXECUTE);
        if debugging {
            control |= value & DMODE;
        }
        // Entering debug mode is for triggers of the debugger's; other actions there are not.
        if value & ACTION == 1 << 12 && control & DMODE != 0 {
            control |= 1 << 12;
        }
        trigger.control = control;
        let armed = |trigger: &Trigger| trigger.control & (MACHINE | EXECUTE) == MACHINE | EXECUTE;
        self.armed = self.triggers.iter().any(armed);
    }

    pub(super) fn address(&self) -> u32 {
        self.triggers[self.select].address
    }

    pub(super) fn set_address(&mut self, value: u32, debugging: bool) {
        let trigger = &mut self.triggers[self.select];
        if trigger.control & DMODE == 0 || debugging {
            trigger.address = value;
        }
    }

    /// What the triggers do at this address. An exception only where one can be taken: while
    /// interrupts are on (section 5.1).
    pub(super) fn matches(&self, pc: u32, interrupts_on: bool) -> Option<Action> {
        let fired = self.triggers.iter().filter(|trigger| {
            trigger.address == pc && trigger.control & (MACHINE | EXECUTE) == MACHINE | EXECUTE
        });
        fired
            .filter_map(|trigger| match trigger.control & ACTION {
                0 => interrupts_on.then_some(Action::Exception),
                _ => Some(Action::Debug),
            })
            .max_by_key(|action| *action == Action::Debug)
    }
}
