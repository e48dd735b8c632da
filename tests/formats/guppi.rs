//! guppi against independent readers and writers.
