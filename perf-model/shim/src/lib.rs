//! The CUDA shim: hooks the driver's functions in an unmodified program and adds the time that a
//! disaggregated GPU would cost.

pub mod table;
