//! dxpu-manager: pool records, placement, operations, API and command line.
