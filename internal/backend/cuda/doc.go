// Package cuda is the backend of an NVIDIA GPU, with build tag cuda; without it the package is empty.
//
// A [Backend] has the memory of one GPU, a queue of work, and the module of kernels. An operation checks
// its operands, copies what it has of the host (ids, page tables) into a pinned ring, and appends a launch
// to the queue; [Backend.Sync] waits. So an operation reads its slices before it returns.
//
// There are two sets of kernels. The exact ones, of exact.cu, add each sum in the order of the CPU's kernels with the
// same number of lanes, so results have the CPU's bits for `--precision high` (TestSameAsCPU). They are the reference,
// and not tuned. With [Options].Fast, those of fast.cu take over where an operation may round: products and attention
// on tensor cores, norms, and fused pairs of operations. An element's sum then has an order that only shapes, and
// positions in attention, decide. The router of a mixture runs on the host.
//
// The last launch is pending until the next one, or until something else goes to the queue, so that an operation can
// replace it by a kernel that computes both; see fuse.go.
//
// Tests run on a simulated driver, package sim's, when LD_LIBRARY_PATH names it; see sim/build.sh.
package cuda
