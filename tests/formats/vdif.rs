//! vdif against independent readers and writers.
