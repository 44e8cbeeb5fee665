// Package gpu tests that models with blocks on GPUs answer as on the CPU, and that plans place on
// GPUs what becomes faster there. Most GPUs are simulated with the CPU's kernels. Files with the
// build tag cuda use the machine's GPUs, or simulated ones (scripts/check-cuda.sh).
package gpu
