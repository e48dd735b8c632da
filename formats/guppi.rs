//! GUPPI raw: channelised voltages in blocks with a header of FITS cards.
