//! SigMF: samples of radio signals, with their description in JSON.
