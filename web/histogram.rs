//! Latencies as a histogram of Prometheus.

use fxgraph::runtime::{LATENCY_BOUNDS_SECONDS, Latencies};
use prometheus::Opts;
use prometheus::core::{Collector, Desc, Describer};
use prometheus::proto::{Bucket, Histogram, LabelPair, Metric, MetricFamily, MetricType};

/// Histograms that are counted elsewhere.
pub(crate) struct Histograms {
    desc: Desc,
    family: MetricFamily,
}

impl Histograms {
    /// One for each row: the values of `labels`, and the counts.
    pub fn new<'a>(
        options: Opts,
        labels: &[&str],
        rows: impl Iterator<Item = (&'a [String], Latencies)>,
    ) -> prometheus::Result<Self> {
        let constant: Vec<(String, String)> = options
            .const_labels
            .iter()
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect();
        let desc =
            options.variable_labels(labels.iter().map(|l| (*l).to_owned()).collect()).describe()?;
        let mut family = MetricFamily::default();
        family.set_name(desc.fq_name.clone());
        family.set_help(desc.help.clone());
        family.set_field_type(MetricType::HISTOGRAM);
        let metric = |(values, latencies): (&[String], Latencies)| {
            let named = labels.iter().map(|label| (*label).to_owned()).zip(values.iter().cloned());
            let mut metric =
                Metric::from_label(constant.iter().cloned().chain(named).map(pair).collect());
            metric.set_histogram(histogram(&latencies));
            metric
        };
        family.set_metric(rows.map(metric).collect());
        Ok(Self { desc, family })
    }
}

impl Collector for Histograms {
    fn desc(&self) -> Vec<&Desc> {
        vec![&self.desc]
    }

    fn collect(&self) -> Vec<MetricFamily> {
        vec![self.family.clone()]
    }
}

fn pair((name, value): (String, String)) -> LabelPair {
    let mut pair = LabelPair::default();
    pair.set_name(name);
    pair.set_value(value);
    pair
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
