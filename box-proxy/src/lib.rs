//! Daemon for the box side: slots, device back-ends and the box role.
