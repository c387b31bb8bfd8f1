//! Launches of kernels, in all forms.

use super::driver_functions;
use crate::call::Call;
use crate::driver::Handle;
use crate::ffi::In;
use crate::graph::{Kernel, Operation};
use crate::settings::settings;
use crate::status::{Answer, Status};

/// The kernel whose first parameter says how long it lasts: nanoseconds, 64 bits.
const DELAY: &str = "dxpu_delay";

/// The kernel that reads the host's memory as often as its second parameter says, 64 bits, each read
/// behind the one before.
const CHASE: &str = "dxpu_chase";

/// What a kernel's name says how long it lasts with: `last_25us`.
const LASTS: &str = "last_";

driver_functions! {
    Launch [cuLaunchKernel_ptsz] fn cuLaunchKernel(
        call, function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: Handle, parameters: In<In<u64>>,
        extra: In<u64>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(call, &Shape { function, grid, block, shared }, parameters, extra, stream)
    }

    Launch [cuLaunchCooperativeKernel_ptsz] fn cuLaunchCooperativeKernel(
        call, function: Handle, grid_x: u32, grid_y: u32, grid_z: u32, block_x: u32,
        block_y: u32, block_z: u32, shared: u32, stream: Handle, parameters: In<In<u64>>,
    ) {
        let (grid, block) = ([grid_x, grid_y, grid_z], [block_x, block_y, block_z]);
        launch(call, &Shape { function, grid, block, shared }, parameters, In::null(), stream)
    }

    Launch [cuLaunchKernelEx_ptsz] fn cuLaunchKernelEx(
        call, config: In<Config>, function: Handle, parameters: In<In<u64>>, extra: In<u64>,
    ) {
        let Config { grid, block, shared, stream, .. } = config.get()?;
        launch(call, &Shape { function, grid, block, shared }, parameters, extra, stream)
    }

    Launch fn cuLaunchCooperativeKernelMultiDevice(
        call, launches: In<Multi>, count: u32, _flags: u32,
    ) {
        for Multi { function, grid, block, shared, stream, parameters } in
            launches.all(count as usize)?
        {
            let shape = Shape { function, grid, block, shared };
            launch(call, &shape, parameters, In::null(), stream)?;
        }
        Ok(())
    }

    Launch fn cuLaunch(call, function: Handle) {
        old(call, function, 1, 1, 0)
    }

    Launch fn cuLaunchGrid(call, function: Handle, width: i32, height: i32) {
        old(call, function, width, height, 0)
    }

    Launch fn cuLaunchGridAsync(
        call, function: Handle, width: i32, height: i32, stream: Handle,
    ) {
        old(call, function, width, height, stream)
    }

    Call fn cuFuncSetBlockShape(call, function: Handle, _x: i32, _y: i32, _z: i32) {
        crate::api::module::of(call, function).map(drop)
    }
}

/// cuda.h: `CUlaunchConfig`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Config {
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    attributes: u64,
    count: u32,
}

/// cuda.h: `CUDA_LAUNCH_PARAMS`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Multi {
    function: Handle,
    grid: [u32; 3],
    block: [u32; 3],
    shared: u32,
    stream: Handle,
    parameters: In<In<u64>>,
}

/// What is launched, but for its parameters.
pub(super) struct Shape {
    pub(super) function: Handle,
    pub(super) grid: [u32; 3],
    pub(super) block: [u32; 3],
    pub(super) shared: u32,
}

fn launch(
    call: &mut Call,
    shape: &Shape,
    parameters: In<In<u64>>,
    extra: In<u64>,
    stream: Handle,
) -> Answer {
    call.context()?;
    let kernel = kernel(call, shape, parameters, extra)?;
    if kernel.name == DELAY {
        call.costs(settings().launch_ns, settings().delay_ns);
    }
    let stream = call.stream(stream)?;
    call.submit(stream, Operation::Kernel(kernel))?;
    Ok(())
}

/// Launches of CUDA 2, whose block was set before.
fn old(call: &mut Call, function: Handle, width: i32, height: i32, stream: Handle) -> Answer {
    let side = |side: i32| u32::try_from(side).map_err(|_| Status::INVALID_VALUE);
    let grid = [side(width)?, side(height)?, 1];
    let shape = Shape { function, grid, block: [1, 1, 1], shared: 0 };
    launch(call, &shape, In::null(), In::null(), stream)
}

/// The kernel of a launch, or of a node.
pub(super) fn kernel(
    call: &Call,
    shape: &Shape,
    parameters: In<In<u64>>,
    extra: In<u64>,
) -> Result<Kernel, Status> {
    let Shape { function, grid, block, shared } = *shape;
    let known = call.functions.get(&function).ok_or(Status::INVALID_HANDLE)?;
    let threads = block.iter().try_fold(1u32, |all, side| all.checked_mul(*side));
    let too_many = threads.is_none_or(|threads| threads > 1024);
    if grid.contains(&0) || block.contains(&0) || too_many {
        return Err(Status::INVALID_VALUE);
    }
    if !parameters.is_null() && !extra.is_null() {
        return Err(Status::INVALID_VALUE);
    }
    let name = known.name.to_string_lossy().into_owned();
    let duration = match said(&name) {
        _ if name == DELAY => parameters.get()?.get()?,
        _ if name == CHASE => parameters.all(2)?[1].get()?.saturating_mul(settings().read_ns),
        Some(duration) => duration,
        None => settings().kernel_ns,
    };
    let (parameters, extra) = (parameters.address(), extra.address());
    Ok(Kernel { function, name, duration, grid, block, shared, parameters, extra })
}

/// How long a kernel lasts by its name, in nanoseconds.
fn said(name: &str) -> Option<u64> {
    let rest = &name[name.find(LASTS)? + LASTS.len()..];
    let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
    let (number, unit) = rest.split_at(digits);
    let unit = [("ns", 1), ("us", 1_000), ("ms", 1_000_000)]
        .into_iter()
        .find_map(|(name, nanoseconds)| unit.starts_with(name).then_some(nanoseconds))?;
    number.parse::<u64>().ok()?.checked_mul(unit)
}
