//! dada against independent readers and writers.
