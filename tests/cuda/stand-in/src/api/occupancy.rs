//! How many blocks fit: as many as the threads of a multiprocessor, 2,048, leave room for.

use super::{driver_functions, module::of};
use crate::driver::Handle;
use crate::ffi::{Opaque, Out};
use crate::status::{Answer, Status};

const THREADS: i32 = 2048;
const BLOCK: i32 = 1024;
const MULTIPROCESSORS: i32 = 132;

driver_functions! {
    Call fn cuOccupancyMaxActiveBlocksPerMultiprocessor(
        call, blocks: Out<i32>, function: Handle, threads: i32, _shared: usize,
    ) {
        of(call, function)?;
        blocks.put(fitting(threads)?)
    }

    Call fn cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(
        call, blocks: Out<i32>, function: Handle, threads: i32, _shared: usize, _flags: u32,
    ) {
        of(call, function)?;
        blocks.put(fitting(threads)?)
    }

    Call fn cuOccupancyMaxPotentialBlockSize(
        call, grid: Out<i32>, block: Out<i32>, function: Handle, _shared_of: Opaque,
        _shared: usize, limit: i32,
    ) {
        of(call, function)?;
        largest(grid, block, limit)
    }

    Call fn cuOccupancyMaxPotentialBlockSizeWithFlags(
        call, grid: Out<i32>, block: Out<i32>, function: Handle, _shared_of: Opaque,
        _shared: usize, limit: i32, _flags: u32,
    ) {
        of(call, function)?;
        largest(grid, block, limit)
    }
}

fn fitting(threads: i32) -> Result<i32, Status> {
    if threads <= 0 {
        return Err(Status::INVALID_VALUE);
    }
    Ok(if threads > BLOCK { 0 } else { (THREADS / threads).min(32) })
}

fn largest(grid: Out<i32>, block: Out<i32>, limit: i32) -> Answer {
    let threads = if limit > 0 { limit.min(BLOCK) } else { BLOCK };
    grid.put(MULTIPROCESSORS * fitting(threads)?)?;
    block.put(threads)
}
