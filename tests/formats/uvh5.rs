//! uvh5 against independent readers and writers.
