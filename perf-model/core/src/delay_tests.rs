//! The delaying kernel's text, run instruction by instruction beside a model of its arithmetic.

use std::collections::HashMap;

use proptest::prelude::*;

use crate::ptx;

/// What the nanoseconds of earlier delays stay under.
const NANOS: u64 = 1 << 21;

/// What their cycles stay under.
const CYCLES: u64 = 1 << 25;

/// What earlier delays took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sums {
    cycles: u64,
    nanos: u64,
}

impl Sums {
    fn of(word: u64) -> Self {
        Self { cycles: word >> 32, nanos: word & 0xffff_ffff }
    }

    fn word(self) -> u64 {
        self.cycles << 32 | self.nanos
    }

    /// The cycles that a delay of `wanted` ns has.
    fn target(self, wanted: u64, nominal: u32) -> u64 {
        let (cycles, nanos) = match self.nanos {
            131_072.. => (self.cycles, self.nanos),
            _ => (nominal.into(), 1_000_000),
        };
        let target = u128::from(wanted.min(1 << 48)) * u128::from(cycles) / u128::from(nanos);
        u64::try_from(target).expect("three days of a clock of 4 THz are fewer")
    }

    /// The sums after one more delay.
    fn with(self, cycles: u64, nanos: u64) -> Self {
        let shift = (u64::BITS - nanos.leading_zeros()).saturating_sub(20);
        let (cycles, nanos) = (cycles >> shift, nanos >> shift);
        let steps = 1 << 17;
        if cycles >= 16 * nanos + steps || nanos >= 16 * cycles + steps {
            return self;
        }
        let sums = Self { cycles: self.cycles + cycles, nanos: self.nanos + nanos };
        let half = u32::from(sums.nanos >= NANOS || sums.cycles >= CYCLES);
        Self { cycles: sums.cycles >> half, nanos: sums.nanos >> half }
    }
}

/// An instruction: the predicate that it needs, its name, its operands.
type Instruction<'a> = (Option<&'a str>, &'a str, Vec<&'a str>);

/// The kernel's instructions, and where its labels are.
struct Program {
    instructions: Vec<Instruction<'static>>,
    labels: HashMap<&'static str, usize>,
}

impl Program {
    fn new() -> Self {
        let text = ptx::DELAY_MODULE.to_str().expect("the text is ASCII");
        let body = text.split_once("\n{").expect("the kernel has a body").1;
        let (mut instructions, mut labels) = (Vec::new(), HashMap::new());
        for line in body.lines() {
            let line = line.split("//").next().unwrap_or("").trim().trim_end_matches(';');
            if let Some(label) = line.strip_suffix(':') {
                labels.insert(label, instructions.len());
            } else if !line.is_empty() && !line.starts_with(['.', '}']) {
                let (predicate, line) = match line.strip_prefix('@') {
                    Some(line) => line.split_once(' ').map(|(p, line)| (Some(p), line)).unwrap(),
                    None => (None, line),
                };
                let (name, operands) = line.split_once(' ').unwrap_or((line, ""));
                instructions.push((predicate, name, operands.split(", ").collect()));
            }
        }
        Self { instructions, labels }
    }

    /// Runs it: `clock` gives `%globaltimer` and `%clock64`, `sums` is the module's memory and
    /// `meanwhile` what another delay leaves there before this one ends. Gives the registers.
    fn run(
        &self,
        (nanos, nominal): (u64, u32),
        sums: &mut u64,
        meanwhile: Option<u64>,
        mut clock: impl FnMut(&str) -> u64,
    ) -> HashMap<&'static str, u64> {
        let mut registers: HashMap<&'static str, u64> = HashMap::new();
        let mut at = 0;
        loop {
            let (predicate, name, operands) = &self.instructions[at];
            at += 1;
            if predicate.is_some_and(|predicate| registers[predicate] == 0) {
                continue;
            }
            let value = |place: usize| match operands[place] {
                "[nanos]" => nanos,
                "[nominal]" => u64::from(nominal),
                register if register.starts_with('%') => registers[register],
                number => number.parse().expect("an operand is a register or a number"),
            };
            let result = match *name {
                "ret" => return registers,
                "bra" => {
                    at = self.labels[operands[0]];
                    continue;
                }
                "mov.u64" => clock(operands[1]),
                "ld.param.u64" | "ld.param.u32" | "cvt.u64.u32" => value(1),
                "ld.volatile.global.u64" => *sums,
                "add.u64" => value(1).wrapping_add(value(2)),
                "sub.u64" | "sub.u32" => value(1).wrapping_sub(value(2)),
                "mul.lo.u64" => value(1).checked_mul(value(2)).expect("64 bits are enough"),
                "div.u64" => value(1) / value(2),
                "min.u64" | "min.u32" => value(1).min(value(2)),
                "shr.u64" => value(1) >> value(2),
                "shl.b64" => value(1) << value(2),
                "clz.b64" => value(1).leading_zeros().into(),
                "and.b64" => value(1) & value(2),
                "or.b64" | "or.pred" => value(1) | value(2),
                "setp.ge.u64" => (value(1) >= value(2)).into(),
                "setp.lt.u64" => (value(1) < value(2)).into(),
                "selp.b64" | "selp.u32" => value(if value(3) == 0 { 2 } else { 1 }),
                "atom.global.cas.b64" => {
                    let old = meanwhile.unwrap_or(*sums);
                    *sums = if old == value(2) { value(3) } else { old };
                    old
                }
                other => panic!("this test does not know the instruction {other}"),
            };
            registers.insert(operands[0], result);
        }
    }
}

/// A processor whose clock runs at its own rate, and a timer in steps.
struct Gpu {
    program: Program,
    sums: u64,
    /// ns.
    now: u64,
    /// The processor's, and the one that the driver names, kHz.
    clock: u32,
    nominal: u32,
    /// The timer's, ns.
    step: u64,
}

impl Gpu {
    /// A delay, with as many looks at the clock. Gives how long it took, ns.
    fn delay(&mut self, nanos: u64, looks: u64) -> u64 {
        let before = Sums::of(self.sums);
        let (mut now, clock, step) = (self.now, self.clock, self.step);
        let parameters = (nanos, self.nominal);
        let mut reads = 0;
        let registers = self.program.run(parameters, &mut self.sums, None, |name| {
            reads += 1;
            // The timer and the clock first, then the clock until the time is over.
            now += if reads > 2 && name == "%clock64" { 7 + nanos / looks } else { 7 };
            match name {
                "%globaltimer" => now - now % step,
                _ => u64::try_from(u128::from(now) * u128::from(clock) / 1_000_000).unwrap(),
            }
        });
        let spent = now - self.now;
        self.now = now + 1_300;
        let passed = |to, from| registers[to] - registers[from];
        assert_eq!(registers["%target"], before.target(nanos, self.nominal));
        let after = before.with(passed("%c1", "%c0"), passed("%t1", "%t0"));
        assert_eq!(Sums::of(self.sums), after);
        assert!(after.nanos < NANOS && after.cycles < CYCLES, "{after:?}");
        spent
    }

    /// How far a delay of 100 us is off, in thousandths, after 16 ms of short ones.
    fn learned(&mut self) -> u64 {
        for _ in 0..1600 {
            self.delay(10_000, 20);
        }
        self.delay(100_000, 1000).abs_diff(100_000) / 100
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn delays_of_all_lengths_are_learned_from_and_a_clock_that_changes_is_followed(
        clocks in [200_000..3_000_000_u32, 200_000..3_000_000_u32],
        nominal in 1_000_000..3_000_000_u32,
        step in prop_oneof![Just(1_u64), Just(32), Just(1_000)],
        lengths in prop::collection::vec(
            prop_oneof![8 => 0..20_000_u64, 2 => 0..4_000_000_u64, 1 => 0..36_000_000_000_000_u64],
            0..100,
        ),
    ) {
        let [clock, _] = clocks;
        let mut gpu = Gpu { program: Program::new(), sums: 0, now: 1 << 50, clock, nominal, step };
        for clock in clocks {
            gpu.clock = clock;
            for nanos in &lengths {
                gpu.delay(*nanos, 20);
            }
            let off = gpu.learned();
            prop_assert!(off <= 20, "{off} thousandths");
        }
    }

    #[test]
    fn no_clock_spoils_the_sums(
        cycles in 0..CYCLES, nanos in 0..NANOS, clock in prop::array::uniform2(any::<u64>()),
        timer in prop::array::uniform2(any::<u64>()), shifts in prop::array::uniform2(0..64_u32),
        meanwhile in prop::option::of(any::<u64>()),
    ) {
        let before = Sums { cycles, nanos };
        let mut sums = before.word();
        let ends = [clock[0].wrapping_add(clock[1] >> shifts[0]), timer[0].wrapping_add(timer[1] >> shifts[1])];
        let (mut clocks, mut timers) = ([clock[0], ends[0]].into_iter(), [timer[0], ends[1]].into_iter());
        Program::new().run((0, 1), &mut sums, meanwhile, |name| {
            if name == "%clock64" { clocks.next().unwrap() } else { timers.next().unwrap() }
        });
        let after = before.with(clock[1] >> shifts[0], timer[1] >> shifts[1]);
        prop_assert!(after.nanos < NANOS && after.cycles < CYCLES, "{after:?}");
        match meanwhile {
            Some(other) if other != before.word() && after != before => prop_assert_eq!(sums, other),
            _ => prop_assert_eq!(Sums::of(sums), after),
        }
    }

    #[test]
    fn the_cycles_of_any_time_are_right(
        cycles in 1..CYCLES, nanos in 0..NANOS, nominal: u32, wanted: u64, shift in 0..64_u32,
    ) {
        let sums = Sums { cycles, nanos };
        let wanted = wanted >> shift;
        // The clock comes to its end at once.
        let mut reads = 0;
        let registers = Program::new().run((wanted, nominal), &mut sums.word(), None, |_| {
            reads += 1;
            if reads <= 2 { 0 } else { u64::MAX }
        });
        prop_assert_eq!(registers["%target"], sums.target(wanted, nominal));
    }
}
