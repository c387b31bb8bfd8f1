//! Daemon for the host side: front-ends and the host role.
