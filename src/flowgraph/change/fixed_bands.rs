//! Changes of bands and of delays of filters that readers cannot follow, such as a sink with the band in the header of its
//! file, or a block whose inputs must have one band.

use crate::plan::block::PlannedBlock;
use crate::plan::configure::rejection;
use crate::plan::flowgraph::Plan;
use fxgraph_core::diagnostic::{Diagnostic, Span, codes};
use fxgraph_core::port::PortType;

impl Plan {
    /// Diagnostics for a change of a centre frequency or of the delay of filters from this plan to `after`, by the text at `span`, that reaches a
    /// block that cannot follow it.
    pub(crate) fn unfollowed_bands(&self, after: &Self, span: Span) -> Vec<Diagnostic> {
        let centre = |port: &PortType| {
            let delay = port.clock.filter_delay_samples.to_bits();
            (port.band.map(|band| band.centre_hz.to_bits()), delay)
        };
        let differ = |(a, b): (&PlannedBlock, &PlannedBlock)| {
            let [a_outputs, b_outputs] = [a, b].map(|block| block.ports.outputs.iter().map(centre));
            !a.is_shared_with(b) && a_outputs.ne(b_outputs)
        };
        let is_changed: Vec<bool> = self.blocks.iter().zip(&after.blocks).map(differ).collect();
        // The first block of the chain; those after it only pass the change on.
        let Some(first) = self.first_of(&is_changed) else { return Vec::new() };
        let found = after.fixed_readers(is_changed);
        found.map(|block| self.unfollowed(after, first, &block.name, span)).collect()
    }

    /// Diagnostics of the blocks whose inputs do not fit each other in `after`, the plan after all parts of a change, such as
    /// polarisations at two centre frequencies.
    #[must_use]
    pub fn unfitting_inputs(&self, after: &Self) -> Vec<Diagnostic> {
        let nowhere = Span { file: 0, start: 0, end: 0 };
        let blocks = self.blocks.iter().zip(&after.blocks);
        let changed = blocks.filter(|(old, new)| !old.is_shared_with(new)).map(|(_, new)| new);
        let rejected = changed.flat_map(|block| {
            let rejections = block.configured.connect(&block.ports.inputs).err();
            let problem = |each| rejection(each, &block.name, |_| nowhere);
            rejections.into_iter().flatten().map(problem)
        });
        // They are about the running flowgraph and have no place in the text of the change.
        rejected.map(|problem| Diagnostic { span: None, ..problem }).collect()
    }

    /// Name of a block that reads the output of block `index`, directly or through others, and cannot follow another centre
    /// frequency of it.
    #[must_use]
    pub fn fixes_band_of(&self, index: usize) -> Option<&str> {
        let is_changed = (0..self.blocks.len()).map(|n| n == index).collect();
        self.fixed_readers(is_changed).next().map(|block| block.name.as_str())
    }

    /// Blocks with a fixed band that read one of those in `is_changed`, directly or through others.
    fn fixed_readers(&self, mut is_changed: Vec<bool>) -> impl Iterator<Item = &PlannedBlock> {
        let reads_changed = |is_changed: &[bool], block: &PlannedBlock| {
            block.inputs.iter().any(|(from, _)| is_changed[*from])
        };
        // One pass is enough unless a block comes before its source in the list.
        for _ in 0..self.blocks.len() {
            let before = is_changed.clone();
            for (n, block) in self.blocks.iter().enumerate() {
                is_changed[n] |= reads_changed(&is_changed, block);
            }
            if before == is_changed {
                break;
            }
        }
        let fixed = self.blocks.iter().filter(|block| block.resources.fixes_band);
        fixed.filter(move |block| reads_changed(&is_changed, block))
    }

    /// A block with changed output none of whose sources has any.
    fn first_of(&self, is_changed: &[bool]) -> Option<usize> {
        let mut changed = (0..is_changed.len()).filter(|n| is_changed[*n]);
        changed.find(|n| !self.blocks[*n].inputs.iter().any(|(from, _)| is_changed[*from]))
    }

    /// Diagnostics like [`unfollowed_bands`](Self::unfollowed_bands) for `new` in the place of block `index`.
    pub(crate) fn unfollowed_swap(
        &self,
        index: usize,
        new: &PlannedBlock,
        span: Span,
    ) -> Vec<Diagnostic> {
        let mut after = self.clone();
        for (port, other) in after.blocks[index].ports.outputs.iter_mut().zip(&new.ports.outputs) {
            port.band = other.band;
            port.clock.filter_delay_samples = other.clock.filter_delay_samples;
        }
        self.unfollowed_bands(&after, span)
    }

    fn unfollowed(&self, after: &Self, by: usize, reader: &str, span: Span) -> Diagnostic {
        let hz = |plan: &Self| {
            let band = plan.blocks[by].ports.outputs.iter().find_map(|port| port.band);
            band.map_or("none".to_owned(), |band| format!("{} Hz", band.centre_hz))
        };
        let delay = |plan: &Self| {
            let port = plan.blocks[by].ports.outputs.first();
            let samples = port.map_or(0.0, |port| port.clock.filter_delay_samples);
            format!("{samples} ADC samples")
        };
        let (what, before, now) = if hz(self) == hz(after) {
            ("delay of the filters", delay(self), delay(after))
        } else {
            ("centre frequency", hz(self), hz(after))
        };
        let message = format!(
            "the {what} of `{}` must stay {before} while `{reader}` runs, got {now}",
            self.blocks[by].name,
        );
        Diagnostic::error(codes::CHANGE, span, message)
            .label(format!("changes the {what}"))
            .help("stop the flowgraph and start it with the change")
    }
}
