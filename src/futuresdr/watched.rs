//! Wrapper that stores the errors of a FutureSDR block: FutureSDR itself only logs them.

use futuresdr::runtime::__private::KernelInterface;
use futuresdr::runtime::buffer::BufferReader;
use futuresdr::runtime::dev::{BlockInbox, BlockMeta, Kernel, MessageOutputs, WorkIo};
use futuresdr::runtime::{BlockId, Error, Pmt, PortId, Result};
use fxgraph::lock::lock;
use std::sync::{Arc, Mutex};

/// The first error of a sub-flowgraph.
pub(crate) type Cause = Arc<Mutex<Option<Failed>>>;

/// Failure of a block of the sub-flowgraph.
#[derive(Clone, Debug, thiserror::Error)]
#[error("its block `{block}` failed: {reason}")]
pub(crate) struct Failed {
    block: &'static str,
    reason: String,
}

/// Wraps `kernel` and stores its first error in `cause`.
pub(crate) struct Watched<K> {
    kernel: K,
    cause: Cause,
}

impl<K: KernelInterface> Watched<K> {
    pub fn new(kernel: K, cause: Cause) -> Self {
        Self { kernel, cause }
    }

    fn note<T, E>(&self, result: Result<T, E>, text: impl FnOnce(&E) -> String) -> Result<T, E> {
        if let Err(error) = &result {
            let failed = Failed { block: K::type_name(), reason: text(error) };
            lock(&self.cause).get_or_insert(failed);
        }
        result
    }
}

impl<K: Kernel + KernelInterface> Kernel for Watched<K> {
    async fn work(
        &mut self,
        io: &mut WorkIo,
        mo: &mut MessageOutputs,
        meta: &mut BlockMeta,
    ) -> Result<()> {
        let result = self.kernel.work(io, mo, meta).await;
        self.note(result, |error| format!("{error:#}"))
    }

    async fn init(&mut self, mo: &mut MessageOutputs, meta: &mut BlockMeta) -> Result<()> {
        let result = self.kernel.init(mo, meta).await;
        self.note(result, |error| format!("{error:#}"))
    }

    async fn deinit(&mut self, mo: &mut MessageOutputs, meta: &mut BlockMeta) -> Result<()> {
        let result = self.kernel.deinit(mo, meta).await;
        self.note(result, |error| format!("{error:#}"))
    }
}

impl<K: Kernel + KernelInterface> KernelInterface for Watched<K> {
    fn is_blocking() -> bool {
        K::is_blocking()
    }
    fn type_name() -> &'static str {
        K::type_name()
    }
    fn stream_inputs(&self) -> Vec<String> {
        self.kernel.stream_inputs()
    }
    fn stream_outputs(&self) -> Vec<String> {
        self.kernel.stream_outputs()
    }
    fn stream_ports_init(&mut self, block_id: BlockId, inbox: BlockInbox) {
        self.kernel.stream_ports_init(block_id, inbox);
    }
    fn stream_ports_validate(&self) -> Result<(), Error> {
        self.note(self.kernel.stream_ports_validate(), Error::to_string)
    }
    fn stream_input_finish(&mut self, port_id: PortId) -> Result<(), Error> {
        self.kernel.stream_input_finish(port_id)
    }
    async fn stream_ports_notify_finished(&mut self) {
        self.kernel.stream_ports_notify_finished().await;
    }
    fn stream_input(&mut self, id: &PortId) -> Result<&mut dyn BufferReader, Error> {
        self.kernel.stream_input(id)
    }
    fn connect_stream_output(
        &mut self,
        id: &PortId,
        reader: &mut dyn BufferReader,
    ) -> Result<(), Error> {
        self.kernel.connect_stream_output(id, reader)
    }
    fn message_inputs() -> &'static [&'static str] {
        K::message_inputs()
    }
    fn message_outputs() -> &'static [&'static str] {
        K::message_outputs()
    }
    async fn call_handler(
        &mut self,
        io: &mut WorkIo,
        mo: &mut MessageOutputs,
        meta: &mut BlockMeta,
        id: PortId,
        message: Pmt,
    ) -> Result<Pmt, Error> {
        let result = self.kernel.call_handler(io, mo, meta, id, message).await;
        self.note(result, Error::to_string)
    }
}
