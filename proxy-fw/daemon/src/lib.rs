//! What both daemons share: data-plane loop, control connection, configuration, logs.
