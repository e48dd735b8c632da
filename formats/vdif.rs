//! VDIF: the VLBI data interchange format.
