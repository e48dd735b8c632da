//! Device and implementation of each block.

use super::document::{Entry, wrong_type};
use super::expand::Expansion;
use super::scope::Names;
use fxgraph_core::device::{DeviceName, decimal};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::kind::{CPU, ImplementationInfo, KindEntry};
use fxgraph_core::tree::Node;
use fxgraph_cuda as cuda;

/// Value of `device:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    /// This device.
    Device(DeviceName),
    /// A GPU if there is one and the kind has an implementation for it, else the CPU: this number modulo the number of
    /// GPUs.
    Auto(usize),
}

/// Device and implementation of a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Placement {
    pub(super) device: DeviceName,
    pub(super) implementation: &'static str,
    /// Place in the file that chose it, if any.
    pub(super) chosen: Option<Span>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { device: DeviceName::Cpu, implementation: CPU.name, chosen: None }
    }
}

impl Expansion<'_, '_> {
    /// Reads `device: ...`.
    pub(super) fn device(&mut self, node: &Node, names: &Names) -> Option<Wanted> {
        let value = self.compute(node, names)?;
        let Some(word) = value.text() else {
            let expected = "`cpu`, `cuda:0` (or another number), `auto` or `auto:0`";
            self.problems.push(wrong_type(&Node::new(value.value, node.span), expected));
            return None;
        };
        let wanted = match word {
            "auto" => Some(Wanted::Auto(0)),
            word => match word.strip_prefix("auto:") {
                Some(number) => decimal(number).map(Wanted::Auto),
                None => DeviceName::parse(word).map(Wanted::Device),
            },
        };
        if wanted.is_none() {
            self.problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_DEVICE,
                    node.span,
                    format!("there is no device `{word}`"),
                )
                .label("no such device")
                .help("use `cpu`, `cuda:0`, `cuda:1`, ..., or `auto` for a GPU if there is one (`auto:1` for the second)"),
            );
        }
        wanted
    }

    /// Returns device and implementation of a block, if they fit together.
    pub(super) fn place(
        &mut self,
        entry: &Entry,
        names: &Names,
        kind: &KindEntry,
    ) -> Option<Placement> {
        let own = match &entry.device {
            Some(node) => Some((self.device(node, names)?, node.span)),
            None => None,
        };
        let chosen = entry.implementation.as_ref().map(|node| node.span);
        let chosen = chosen.or(own.map(|(_, span)| span)).or(self.default_device.1);
        let device = match own.map_or(self.default_device.0, |(wanted, _)| wanted) {
            Wanted::Device(device) => device,
            Wanted::Auto(number) => match cuda::count() {
                Ok(count) if count > 0 => DeviceName::Cuda(number % count),
                _ => DeviceName::Cpu,
            },
        };
        if let Some(node) = &entry.implementation {
            let implementation = self.implementation(node, names, kind)?;
            if implementation.device == device.family() {
                return Some(Placement { device, implementation: implementation.name, chosen });
            }
            // The flowgraph's `device` is a default; the CPU implementation of this block overrides it.
            if implementation.device == DeviceName::Cpu.family() && own.is_none() {
                let device = DeviceName::Cpu;
                return Some(Placement { device, implementation: implementation.name, chosen });
            }
            let message = format!(
                "implementation `{}` of `{}` does not run on `{device}`",
                implementation.name, kind.name
            );
            let help = match implementation.device {
                "cuda" => "set `device: cuda:0`, for this block or for the whole flowgraph",
                _ => "leave out `device`, or choose another implementation",
            };
            self.problems.push(
                Diagnostic::error(codes::UNKNOWN_IMPLEMENTATION, node.span, message)
                    .label(format!("is for `{}`", implementation.device))
                    .help(help),
            );
            return None;
        }
        let default = |family: &str| {
            kind.implementations.iter().find(|implementation| implementation.device == family)
        };
        if let Some(implementation) = default(device.family()) {
            return Some(Placement { device, implementation: implementation.name, chosen });
        }
        if let Some((Wanted::Device(_), span)) = own {
            let message = format!("`{}` has no implementation for `{device}`", kind.name);
            self.problems.push(
                Diagnostic::error(codes::UNKNOWN_DEVICE, span, message)
                    .label("runs on the CPU only")
                    .help("leave out `device`; frames are copied between devices automatically"),
            );
            return None;
        }
        let implementation = default(DeviceName::Cpu.family());
        Some(Placement {
            device: DeviceName::Cpu,
            implementation: implementation.map_or(CPU.name, |implementation| implementation.name),
            chosen,
        })
    }

    fn implementation(
        &mut self,
        node: &Node,
        names: &Names,
        kind: &KindEntry,
    ) -> Option<ImplementationInfo> {
        let value = self.compute(node, names)?;
        let known: Vec<&str> =
            kind.implementations.iter().map(|implementation| implementation.name).collect();
        let Some(word) = value.text() else {
            let expected = format!("one of `{}`", known.join("`, `"));
            self.problems.push(wrong_type(&Node::new(value.value, node.span), &expected));
            return None;
        };
        let found =
            kind.implementations.iter().copied().find(|implementation| word == implementation.name);
        if found.is_none() {
            self.problems.push(
                Diagnostic::error(
                    codes::UNKNOWN_IMPLEMENTATION,
                    node.span,
                    format!("`{}` has no implementation `{word}`", kind.name),
                )
                .label("no such implementation")
                .maybe_help(suggest(word, "implementation", &known)),
            );
        }
        found
    }
}
