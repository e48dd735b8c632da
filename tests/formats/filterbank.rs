//! filterbank against independent readers and writers.
