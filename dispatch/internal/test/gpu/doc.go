// Package gpu holds tests only: models that package dispatch places on GPUs answer as on the CPU, and plans put on GPUs what
// they gain by. Most GPUs are made up, with the CPU's kernels; files with build tag cuda use those of the machine, or
// simulated ones (scripts/check-cuda.sh).
package gpu
