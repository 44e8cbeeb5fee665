// Package cuda is the backend of an NVIDIA GPU, with build tag cuda; without it the package is empty.
//
// A [Backend] has the memory of one GPU, a queue of work, and the module of kernels. An operation checks
// its operands, copies what it has of the host (ids, page tables) into a pinned ring, and appends a launch
// to the queue; [Backend.Sync] waits. So an operation reads its slices before it returns.
//
// The kernels are exact: each sum has the order of the CPU's kernels with the same number of lanes, so
// results have the CPU's bits for `--precision high` (TestSameAsCPU). They are the reference; they are not
// tuned. The router of a mixture runs on the host.
//
// Tests run on a simulated driver, package sim's, when LD_LIBRARY_PATH names it; see sim/build.sh.
package cuda
