//! Ethernet for software proxies: raw AF_PACKET, UDP with batching, in-memory.
