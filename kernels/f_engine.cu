// The F-engine in two passes: filter bank, transform, delay, phase, gain, quantisation,
// transposition.
//
// Three kernels for these (`pfb`, `fft`, `postproc`) move 18 bytes of memory for each sample, two
// of them 10. How the work is cut up is written in f_engine.cuh.
#include "f_engine_filter.cuh"
#include "f_engine_finish.cuh"
#include "f_engine_measure.cuh"
