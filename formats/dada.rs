//! DADA: baseband data with a header of 4096 bytes of ASCII keywords, of PSRDADA and dspsr.
