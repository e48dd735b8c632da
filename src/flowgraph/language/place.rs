//! Device and implementation of each block.

use crate::language::scope::Substitution;
use crate::text::document::{Entry, wrong_type};
use fxgraph_core::device::{DeviceName, decimal};
use fxgraph_core::diagnostic::{Diagnostic, Span, codes, suggest};
use fxgraph_core::kind::{CPU, ImplementationInfo, KindEntry};
use fxgraph_core::tree::Node;
use fxgraph_cuda as cuda;

/// Value of `device:`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// This device.
    Device(DeviceName),
    /// A GPU if there is one and the kind has an implementation for it, else the CPU: this number modulo the number of
    /// GPUs.
    Auto(usize),
}

/// Device and implementation of a block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Placement {
    pub(crate) device: DeviceName,
    pub(crate) implementation: &'static str,
    /// Place in the file that chose it, if any.
    pub(crate) chosen: Option<Span>,
}

impl Default for Placement {
    fn default() -> Self {
        Self { device: DeviceName::Cpu, implementation: CPU.name, chosen: None }
    }
}

impl Wanted {
    /// Reads `device: ...`.
    pub(crate) fn read(node: &Node, values: &mut Substitution<'_>) -> Option<Self> {
        let value = values.node(node)?;
        let Some(word) = value.text() else {
            let expected = "`cpu`, `cuda:0` (or another number), `auto` or `auto:0`";
            values.problems.push(wrong_type(&Node::new(value.value, node.span), expected));
            return None;
        };
        let wanted = match word {
            "auto" => Some(Self::Auto(0)),
            word => match word.strip_prefix("auto:") {
                Some(number) => decimal(number).map(Self::Auto),
                None => DeviceName::parse(word).map(Self::Device),
            },
        };
        if wanted.is_none() {
            values.problems.push(
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
}

impl Placement {
    /// Reads device and implementation of a block, if they fit together. `default` is the device of blocks without
    /// `device`, and its place in the file.
    pub(crate) fn read(
        entry: &Entry,
        kind: &KindEntry,
        default: (Wanted, Option<Span>),
        values: &mut Substitution<'_>,
    ) -> Option<Self> {
        let own = match &entry.device {
            Some(node) => Some((Wanted::read(node, values)?, node.span)),
            None => None,
        };
        let chosen = entry.implementation.as_ref().map(|node| node.span);
        let chosen = chosen.or(own.map(|(_, span)| span)).or(default.1);
        let device = match own.map_or(default.0, |(wanted, _)| wanted) {
            Wanted::Device(device) => device,
            Wanted::Auto(number) => match cuda::count() {
                Ok(count) if count > 0 => DeviceName::Cuda(number % count),
                _ => DeviceName::Cpu,
            },
        };
        if let Some(node) = &entry.implementation {
            let implementation = implementation(node, kind, values)?;
            if implementation.device == device.family() {
                return Some(Self { device, implementation: implementation.name, chosen });
            }
            // The flowgraph's `device` is a default; the CPU implementation of this block overrides it.
            if implementation.device == DeviceName::Cpu.family() && own.is_none() {
                let device = DeviceName::Cpu;
                return Some(Self { device, implementation: implementation.name, chosen });
            }
            let message = format!(
                "implementation `{}` of `{}` does not run on `{device}`",
                implementation.name, kind.name
            );
            let help = match implementation.device {
                "cuda" => "set `device: cuda:0`, for this block or for the whole flowgraph",
                _ => "leave out `device`, or choose another implementation",
            };
            values.problems.push(
                Diagnostic::error(codes::UNKNOWN_IMPLEMENTATION, node.span, message)
                    .label(format!("is for `{}`", implementation.device))
                    .help(help),
            );
            return None;
        }
        let first = |family: &str| {
            kind.implementations.iter().find(|implementation| implementation.device == family)
        };
        if let Some(implementation) = first(device.family()) {
            return Some(Self { device, implementation: implementation.name, chosen });
        }
        if let Some((Wanted::Device(_), span)) = own {
            let message = format!("`{}` has no implementation for `{device}`", kind.name);
            values.problems.push(
                Diagnostic::error(codes::UNKNOWN_DEVICE, span, message)
                    .label("runs on the CPU only")
                    .help("leave out `device`; frames are copied between devices automatically"),
            );
            return None;
        }
        let implementation = first(DeviceName::Cpu.family());
        Some(Self {
            device: DeviceName::Cpu,
            implementation: implementation.map_or(CPU.name, |implementation| implementation.name),
            chosen,
        })
    }
}

fn implementation(
    node: &Node,
    kind: &KindEntry,
    values: &mut Substitution<'_>,
) -> Option<ImplementationInfo> {
    let value = values.node(node)?;
    let known: Vec<&str> =
        kind.implementations.iter().map(|implementation| implementation.name).collect();
    let Some(word) = value.text() else {
        let expected = format!("one of `{}`", known.join("`, `"));
        values.problems.push(wrong_type(&Node::new(value.value, node.span), &expected));
        return None;
    };
    let found =
        kind.implementations.iter().copied().find(|implementation| word == implementation.name);
    if found.is_none() {
        values.problems.push(
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
