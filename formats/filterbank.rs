//! SIGPROC filterbank: detected spectra, of pulsar and FRB searches.
