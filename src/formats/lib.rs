//! File formats that programs of observatories and laboratories read and write: headers, packing of
//! samples, readers and writers. No frames and no ports: the kinds of `blocks/io` connect them.
#![forbid(unsafe_code)]

pub mod codes;
pub mod dada;
pub mod filterbank;
pub mod guppi;
pub mod sigmf;
pub mod uvh5;
pub mod vdif;
