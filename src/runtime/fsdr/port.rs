//! Stream ports for FutureSDR, which give each edge the notifiers of its two blocks.
//!
//! FutureSDR ends a writer when one of its readers finishes. These ports never report that a reader has
//! finished: the ends of streams are flags of the edges.

use futuresdr::runtime::buffer::{BufferReader, BufferWriter, PortCore};
use futuresdr::runtime::dev::{BlockInbox, BlockNotifier};
use futuresdr::runtime::macros::async_trait;
use futuresdr::runtime::{BlockId, Error, PortId};
use fxgraph_core::edge::Edge;
use fxgraph_core::kind::Waker;
use std::any::Any;
use std::sync::Arc;

/// One input of a block.
pub(super) struct InPort {
    core: PortCore,
    edge: Arc<Edge>,
}

/// One output of a block.
pub(super) struct OutPort {
    core: PortCore,
    edges: Vec<Arc<Edge>>,
}

impl InPort {
    pub fn new(edge: Arc<Edge>) -> Self {
        Self { core: PortCore::new_disconnected(), edge }
    }
}

impl OutPort {
    pub fn new(edges: Vec<Arc<Edge>>) -> Self {
        Self { core: PortCore::new_disconnected(), edges }
    }

    fn attach(&self, reader: &InPort) -> Result<(), Error> {
        if !self.edges.iter().any(|edge| Arc::ptr_eq(edge, &reader.edge)) {
            return Err(self.core.not_connected_error());
        }
        // Notifies the inbox directly, not through its channel: wake-ups coalesce and cannot fail.
        let set = |waker: &Waker, notifier: BlockNotifier| waker.set(move || notifier.notify());
        if set(&reader.edge.reader, reader.core.notifier())
            && set(&reader.edge.writer, self.core.notifier())
        {
            Ok(())
        } else {
            Err(Error::ValidationError(format!("{:?} is connected twice", reader.core.port_id())))
        }
    }
}

impl BufferWriter for OutPort {
    type Reader = InPort;

    fn init(&mut self, block_id: BlockId, port_id: PortId, inbox: BlockInbox) {
        self.core.init(block_id, port_id, inbox);
    }

    fn validate(&self) -> Result<(), Error> {
        if self.edges.iter().all(|edge| edge.writer.is_set()) {
            Ok(())
        } else {
            Err(self.core.not_connected_error())
        }
    }

    fn connect(&mut self, reader: &mut InPort) {
        // An error shows in `validate`.
        let _ = self.attach(reader);
    }

    fn connect_dyn(&mut self, reader: &mut dyn BufferReader) -> Result<(), Error> {
        match reader.as_any_mut().downcast_mut::<InPort>() {
            Some(reader) => self.attach(reader),
            None => Err(Error::ValidationError("not a port for frames".to_owned())),
        }
    }

    async fn notify_finished(&mut self) {}

    fn block_id(&self) -> BlockId {
        self.core.block_id()
    }

    fn port_id(&self) -> PortId {
        self.core.port_id()
    }
}

#[async_trait]
impl BufferReader for InPort {
    fn as_any_mut(&mut self) -> &mut dyn Any {
        self
    }

    fn init(&mut self, block_id: BlockId, port_id: PortId, inbox: BlockInbox) {
        self.core.init(block_id, port_id, inbox);
    }

    fn validate(&self) -> Result<(), Error> {
        if self.edge.reader.is_set() { Ok(()) } else { Err(self.core.not_connected_error()) }
    }

    async fn notify_finished(&mut self) {}

    fn finish(&mut self) {}

    fn finished(&self) -> bool {
        false
    }

    fn block_id(&self) -> BlockId {
        self.core.block_id()
    }

    fn port_id(&self) -> PortId {
        self.core.port_id()
    }
}
