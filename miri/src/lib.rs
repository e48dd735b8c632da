//! The sources of frames and of the CUDA pipeline, between stand-ins for what they name and their
//! tests do not call.
#![allow(dead_code, unused_imports, clippy::all)]

#[path = "../../src"]
mod sources {
    pub mod device_jobs;
    pub mod frame;
}

use sources::{device_jobs, frame};

mod block {
    use crate::frame::{Frame, FrameMut, NotOnHost};
    use std::error::Error;
    use std::sync::Arc;

    #[derive(Debug, thiserror::Error)]
    #[error("{message}")]
    pub struct BlockError {
        message: String,
        #[source]
        source: Option<Box<dyn Error + Send + Sync>>,
    }

    impl BlockError {
        pub fn new(message: impl Into<String>) -> Self {
            Self { message: message.into(), source: None }
        }
        pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
            self.source = Some(Box::new(source));
            self
        }
    }

    impl From<NotOnHost> for BlockError {
        fn from(error: NotOnHost) -> Self {
            Self::new(error.to_string())
        }
    }

    pub enum Next {
        Wait,
        Finished,
    }

    pub struct Input;

    impl Input {
        pub fn pop(&mut self) -> Option<Arc<Frame>> {
            None
        }
        pub fn peek(&mut self) -> Option<&Arc<Frame>> {
            None
        }
        pub fn ended(&self) -> bool {
            true
        }
    }

    pub struct Output;

    impl Output {
        pub fn take(&mut self) -> Option<FrameMut> {
            None
        }
        pub fn has_room(&self) -> bool {
            false
        }
        pub fn push(&mut self, _: FrameMut) {}
    }

    pub struct Io<'a> {
        pub inputs: &'a mut [Input],
        pub outputs: &'a mut [Output],
    }
}

mod counter {
    use crate::device_jobs::DeviceJobs;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};

    #[derive(Clone, Debug, Default)]
    pub struct Counter(Arc<AtomicU64>);

    impl Counter {
        pub fn add(&self, n: u64) {
            self.0.fetch_add(n, Ordering::Relaxed);
        }
    }

    #[derive(Default)]
    pub struct Counters(Counter, DeviceJobs);

    impl Counters {
        pub fn device_nanoseconds(&self) -> &Counter {
            &self.0
        }
        pub fn device_jobs(&self) -> &DeviceJobs {
            &self.1
        }
    }
}

mod kind {
    use crate::counter::Counters;
    use crate::cuda::Device;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    pub struct Waker;

    impl Waker {
        pub fn wake(&self) {}
    }

    pub struct Env {
        pub name: String,
        pub counters: Counters,
        pub device: Option<Arc<Device>>,
        pub wake: Waker,
    }

    impl Env {
        pub fn detached(name: &str) -> Self {
            Self { name: name.into(), counters: Counters::default(), device: None, wake: Waker }
        }
    }
}

#[path = "../../src/cuda"]
mod cuda {
    mod calls;
    mod driver_calls;
    mod error;
    mod lane;
    mod memory;
    mod status;

    pub use error::CudaError;
    pub use lane::IN_FLIGHT;
    pub use memory::{DeviceArray, InUse, frame_address};
    use status::Status;
    use std::sync::Arc;

    /// There is no GPU.
    pub struct Device;

    impl Device {
        pub fn bind(&self) -> Result<(), CudaError> {
            Err(CudaError::NoDriver)
        }
        pub fn synchronise(&self) -> Result<(), CudaError> {
            Err(CudaError::NoDriver)
        }
        pub fn ordinal(&self) -> usize {
            0
        }
        pub fn at_work(&self) -> Vec<String> {
            Vec::new()
        }
        pub(super) fn keep_status(&self, _: &Arc<Status>) {}
    }
}
