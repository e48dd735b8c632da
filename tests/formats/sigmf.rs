//! sigmf against independent readers and writers.
