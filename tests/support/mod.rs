//! Helpers of tests.

pub mod dumps;
pub mod heaps;
pub mod http;
pub mod needs;
pub mod programs;
pub mod python;
pub mod repository;
pub mod stops;
