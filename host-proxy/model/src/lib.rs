//! A model of a host: root complex, memory, enumeration, hot-plug handling, drivers, using only TLPs.
