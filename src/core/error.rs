//! Errors of blocks, and texts of causes and panics.

use crate::frame::NotOnHost;
use std::any::Any;
use std::error::Error;

/// Error of a block that cannot start or continue. The text is for the user, in lower case, with subject, rule and
/// value.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct BlockError {
    message: String,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
    shared: Option<Box<SharedFault>>,
}

/// A fault that several blocks report, such as that of their GPU. A run reports it once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SharedFault {
    /// Name of the device or other part that failed, such as `cuda:0`.
    pub of: String,
    /// The block that caused it, if it is known.
    pub block: Option<String>,
}

impl BlockError {
    /// An error with the text `message`.
    pub fn new(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None, shared: None }
    }

    /// The same error, caused by `source`.
    #[must_use]
    pub fn because(mut self, source: impl Error + Send + Sync + 'static) -> Self {
        self.source = Some(Box::new(source));
        self
    }

    /// The same error, which other blocks report too.
    #[must_use]
    pub fn shared(mut self, fault: SharedFault) -> Self {
        self.shared = Some(Box::new(fault));
        self
    }

    /// The fault that other blocks report too, of this error or of one of its causes.
    #[must_use]
    pub fn shared_fault(&self) -> Option<&SharedFault> {
        let own = self.shared.as_deref();
        own.or_else(|| self.source.as_ref()?.downcast_ref::<Self>()?.shared_fault())
    }
}

impl From<NotOnHost> for BlockError {
    fn from(error: NotOnHost) -> Self {
        Self::new(error.to_string())
    }
}

/// Text of `error` and its causes, joined by colons. A cause that the text before it already contains
/// is left out.
#[must_use]
pub fn with_causes(error: &dyn Error) -> String {
    let causes = std::iter::successors(error.source(), |&cause| cause.source());
    causes.map(ToString::to_string).fold(error.to_string(), |text, cause| {
        if text.contains(&cause) { text } else { format!("{text}: {cause}") }
    })
}

/// Text of a panic.
#[must_use]
pub fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

#[cfg(test)]
mod tests {
    use super::{BlockError, SharedFault, with_causes};
    use std::io;

    #[test]
    fn shared_fault_of_a_cause_is_found() {
        let fault = SharedFault { of: "cuda:0".to_owned(), block: None };
        let cause = BlockError::new("the GPU failed").shared(fault.clone());
        let error = BlockError::new("cannot copy").because(BlockError::new("a job").because(cause));
        assert_eq!(error.shared_fault(), Some(&fault));
        assert_eq!(BlockError::new("other").because(full()).shared_fault(), None);
    }

    fn full() -> io::Error {
        io::Error::other("the disk is full")
    }

    #[test]
    fn with_causes_omits_cause_quoted_in_error() {
        let quoted = BlockError::new("cannot write: the disk is full").because(full());
        assert_eq!(with_causes(&quoted), "cannot write: the disk is full");
        let plain = BlockError::new("cannot write").because(full());
        assert_eq!(with_causes(&plain), "cannot write: the disk is full");
    }
}
