//! Metrics in Prometheus' text format, family by family.
//!
//! A scrape of a large flowgraph has tens of thousands of lines. Families go straight to the encoder, without a
//! registry or a vector of metrics.

use fxgraph::runtime::{LATENCY_BOUNDS_SECONDS, Latencies};
use prometheus::TextEncoder;
use prometheus::proto::{
    Bucket, Counter, Gauge, Histogram, LabelPair, Metric, MetricFamily, MetricType,
};
use std::collections::HashSet;

/// Labels with their values.
#[derive(Clone, Debug, Default)]
pub(crate) struct Labels(Vec<LabelPair>);

impl Labels {
    /// Creates labels; each name must be valid in Prometheus.
    pub fn new<'a>(labels: impl IntoIterator<Item = (&'a str, &'a str)>) -> Self {
        Self(labels.into_iter().map(pair).collect())
    }

    /// Returns these labels with `label` added.
    pub fn and(&self, label: Option<(&str, &str)>) -> Self {
        Self(self.0.iter().cloned().chain(label.map(pair)).collect())
    }
}

fn pair((name, value): (&str, &str)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name.to_owned());
    pair.set_value(value.to_owned());
    pair
}

/// Labels of a metric.
pub(crate) trait Labelled {
    /// Labels of a block, which replace those of the flowgraph.
    fn block(&self) -> Option<&Labels> {
        None
    }

    /// Values of the other labels of the family, in order.
    fn values(&self) -> impl Iterator<Item = &str>;
}

impl Labelled for &Labels {
    fn block(&self) -> Option<&Labels> {
        Some(self)
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        std::iter::empty()
    }
}

/// Labels of a block, and the value of one more label.
impl Labelled for (&Labels, &str) {
    fn block(&self) -> Option<&Labels> {
        Some(self.0)
    }

    fn values(&self) -> impl Iterator<Item = &str> {
        std::iter::once(self.1)
    }
}

impl<T: AsRef<str>, const COUNT: usize> Labelled for [T; COUNT] {
    fn values(&self) -> impl Iterator<Item = &str> {
        self.iter().map(AsRef::as_ref)
    }
}

/// Name and help of a family, and the names of its own labels, in addition to those of the block or the flowgraph.
#[derive(Clone, Copy)]
pub(crate) struct Head<'a> {
    pub name: &'a str,
    pub help: &'a str,
    pub labels: &'a [&'a str],
}

/// Response to one scrape.
pub(crate) struct Page {
    text: String,
    /// Labels of metrics about the whole flowgraph.
    flowgraph: Labels,
    families: HashSet<String>,
}

impl Page {
    pub fn new(flowgraph: Labels) -> Self {
        Self { text: String::new(), flowgraph, families: HashSet::new() }
    }

    pub fn finish(self) -> String {
        self.text
    }

    pub fn gauge<'h, L: Labelled>(
        &mut self,
        head: impl Into<Head<'h>>,
        rows: impl Iterator<Item = (L, f64)>,
    ) {
        self.family(head.into(), MetricType::GAUGE, rows, |metric, value| {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
        });
    }

    pub fn counter<'h, L: Labelled>(
        &mut self,
        head: impl Into<Head<'h>>,
        rows: impl Iterator<Item = (L, f64)>,
    ) {
        self.family(head.into(), MetricType::COUNTER, rows, |metric, value| {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
        });
    }

    /// Writes latencies as a histogram for each block.
    pub fn histogram<'a, 'h>(
        &mut self,
        head: impl Into<Head<'h>>,
        rows: impl Iterator<Item = (&'a Labels, &'a Latencies)>,
    ) {
        self.family(head.into(), MetricType::HISTOGRAM, rows, |metric, latencies| {
            metric.set_histogram(histogram(latencies));
        });
    }

    /// Writes a family, unless it has no metrics or its name is taken: a counter and a gauge of two blocks may have
    /// the same name.
    fn family<L: Labelled, V>(
        &mut self,
        head: Head,
        kind: MetricType,
        rows: impl Iterator<Item = (L, V)>,
        set: impl Fn(&mut Metric, V),
    ) {
        let metrics: Vec<Metric> = rows
            .map(|(labels, value)| {
                let others = head.labels.iter().copied().zip(labels.values()).map(pair);
                let block = &labels.block().unwrap_or(&self.flowgraph).0;
                let mut metric = Metric::from_label(block.iter().cloned().chain(others).collect());
                set(&mut metric, value);
                metric
            })
            .collect();
        if metrics.is_empty() {
            return;
        }
        if !self.families.insert(head.name.to_owned()) {
            tracing::debug!("skipping the metric {}: its name is taken", head.name);
            return;
        }
        let mut family = MetricFamily::default();
        family.set_name(head.name.to_owned());
        family.set_help(head.help.to_owned());
        family.set_field_type(kind);
        family.set_metric(metrics);
        if let Err(error) = TextEncoder::new().encode_utf8(&[family], &mut self.text) {
            tracing::debug!("skipping the metric {}: {error}", head.name);
        }
    }
}

fn histogram(latencies: &Latencies) -> Histogram {
    let mut histogram = Histogram::default();
    let mut count = 0;
    let bucket = |(bound, frames): (&f64, &u64)| {
        count += frames;
        let mut bucket = Bucket::default();
        bucket.set_upper_bound(*bound);
        bucket.set_cumulative_count(count);
        bucket
    };
    histogram
        .set_bucket(LATENCY_BOUNDS_SECONDS.iter().zip(&latencies.counts).map(bucket).collect());
    histogram.set_sample_count(latencies.counts.iter().sum());
    histogram.set_sample_sum(latencies.sum.as_secs_f64());
    histogram
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const HEAD: Head = Head { name: "a_total", help: "One\n\\ two.", labels: &["x"] };

    #[test]
    fn page_escapes_help_and_label_values() {
        let mut page = Page::new(Labels::new([("flowgraph", "a\"b\\c\nd")]));
        page.counter(HEAD, [(["p"], 1.5), (["q"], 2e9)].into_iter());
        let block = Labels::new([("block", "f[0].pfb"), ("kind", "pfb")]);
        page.gauge(Head { name: "b", help: "B.", labels: &[] }, [(&block, 0.0)].into_iter());
        let expected = "# HELP a_total One\\n\\\\ two.\n# TYPE a_total counter
a_total{flowgraph=\"a\\\"b\\\\c\\nd\",x=\"p\"} 1.5
a_total{flowgraph=\"a\\\"b\\\\c\\nd\",x=\"q\"} 2000000000
# HELP b B.\n# TYPE b gauge
b{block=\"f[0].pfb\",kind=\"pfb\"} 0\n";
        assert_eq!(page.finish(), expected);
    }

    #[test]
    fn page_skips_empty_and_duplicate_families() {
        let mut page = Page::new(Labels::default());
        page.gauge(HEAD, std::iter::empty::<([&str; 1], f64)>());
        page.gauge(HEAD, [(["first"], 1.0)].into_iter());
        page.counter(HEAD, [(["second"], 1.0)].into_iter());
        let text = page.finish();
        assert!(text.contains("gauge\na_total{x=\"first\"} 1\n"), "{text}");
        assert!(!text.contains("second"), "{text}");
    }

    #[test]
    fn histogram_counts_frames_up_to_each_bound() {
        let mut page = Page::new(Labels::default());
        let mut latencies = Latencies::default();
        latencies.counts[0] = 2;
        latencies.counts[LATENCY_BOUNDS_SECONDS.len()] = 3;
        latencies.sum = Duration::from_millis(2500);
        let block = Labels::new([("block", "sink")]);
        let head = Head { name: "seconds", help: "Help.", labels: &[] };
        page.histogram(head, [(&block, &latencies)].into_iter());
        let text = page.finish();
        let lines: Vec<&str> = text.lines().skip(2).collect();
        assert_eq!(lines.len(), LATENCY_BOUNDS_SECONDS.len() + 3);
        assert_eq!(lines[0], "seconds_bucket{block=\"sink\",le=\"0.001\"} 2");
        assert_eq!(lines[12], "seconds_bucket{block=\"sink\",le=\"10\"} 2");
        assert_eq!(lines[13], "seconds_bucket{block=\"sink\",le=\"+Inf\"} 5");
        assert_eq!(lines[14], "seconds_sum{block=\"sink\"} 2.5");
        assert_eq!(lines[15], "seconds_count{block=\"sink\"} 5");
    }
}
